"""Samples of variable size: which an input takes, in which size class they are, and how they are padded."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from partita_api.fields.number import SignedNumber
from partita_api.session.module import DType, ModelSource, Module, NamedInput, TensorSpec
from partita_api.session.sizes import Size
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.protocol.variable_size import SizedInputs, dimensions, padded_rows, takes

LINES = TensorSpec(shape=(3, 48, 1280), variable_dimension=2)
TEXT = TensorSpec(shape=(512,), variable_dimension=0)
FIXED = TensorSpec(shape=(3, 48, 1280))


def sized(*sizes: int, without: Collection[int] = (), **spec: object) -> SizedInputs:
    """Two rows of any width up to the last size; some size classes are without replicas."""
    given = TensorSpec.model_validate({"shape": (2, sizes[-1]), "variable_dimension": 1, **spec})
    classes = tuple(Size(size=size) for size in sizes)
    module = Module(name="read", model=ModelSource(file="read.onnx"), input=given, sizes=classes)
    return SizedInputs.of(module, {f"read-s{size}" for size in sizes if size not in without})


@pytest.mark.parametrize(
    ("spec", "shape", "want"),
    [
        pytest.param(LINES, (3, 48, 1280), True, id="the largest size"),
        pytest.param(LINES, (3, 48, 1), True, id="the smallest size"),
        pytest.param(LINES, (3, 48, 1281), False, id="too large"),
        pytest.param(LINES, (3, 48, 0), False, id="empty"),
        pytest.param(LINES, (3, 47, 1280), False, id="smaller in another dimension"),
        pytest.param(LINES, (48, 1280), False, id="a dimension less"),
        pytest.param(LINES, (1, 3, 48, 1280), False, id="a dimension more"),
        pytest.param(TEXT, (7,), True, id="tokens"),
        pytest.param(FIXED, (3, 48, 1280), True, id="the fixed size"),
        pytest.param(FIXED, (3, 48, 640), False, id="smaller than the fixed size"),
    ],
)
def test_an_input_takes_samples_up_to_its_shape(spec: TensorSpec, shape: tuple[int, ...], want: bool) -> None:
    assert takes(spec, shape) is want


def test_messages_say_the_sizes_that_a_sample_may_have() -> None:
    assert dimensions(LINES) == ["3", "48", "1 to 1280"]
    assert dimensions(FIXED) == ["3", "48", "1280"]


@pytest.mark.parametrize(
    ("width", "want"),
    [
        pytest.param(1, "read-s4", id="smaller than all"),
        pytest.param(4, "read-s4", id="as large as the first"),
        pytest.param(5, "read-s8", id="larger than the first"),
        pytest.param(16, "read-s16", id="as large as the last"),
    ],
)
def test_a_sample_is_of_the_smallest_class_that_it_fits_into(width: int, want: str) -> None:
    inputs = sized(4, 8, 16)
    sample = np.ones((2, width), np.float32)
    assert inputs.class_of([sample]) == want
    assert inputs.padded([[sample]])[0][0].shape == (2, int(want.removeprefix("read-s")))


@pytest.mark.parametrize(
    ("width", "want"),
    [
        pytest.param(3, 16, id="padded over the next class, which has no replicas either"),
        pytest.param(8, 16, id="as large as its class"),
        pytest.param(9, 16, id="of a class with replicas"),
        pytest.param(17, 32, id="larger"),
    ],
)
def test_a_sample_of_a_class_without_replicas_is_padded_to_the_next_larger_one(width: int, want: int) -> None:
    inputs = sized(4, 8, 16, 32, without=(4, 8))
    sample = np.ones((2, width), np.float32)
    assert inputs.served_by([sample]) == f"read-s{want}"
    assert inputs.padded([[sample]])[0][0].shape == (2, want)
    assert inputs.class_of([np.ones((2, 3), np.float32)]) == "read-s4"


@pytest.mark.parametrize(
    ("dtype", "padding", "want"),
    [
        pytest.param("FP32", None, 0, id="0 by default"),
        pytest.param("FP32", "-2.5", -2.5, id="a negative number"),
        pytest.param("FP16", "-2.5", -2.5, id="in half precision"),
        pytest.param("INT64", "-100", -100, id="a token"),
        pytest.param("UINT8", "255", 255, id="a white pixel"),
    ],
)
def test_samples_are_filled_up_at_the_end(dtype: str, padding: str | None, want: float) -> None:
    inputs = sized(4, 8, dtype=dtype, padding=padding)
    sample = np.arange(1, 11).reshape(2, 5).astype(NUMPY_DTYPES[inputs.specs[0].dtype])
    ((padded,),) = inputs.padded([[sample]])
    assert padded.dtype == sample.dtype
    np.testing.assert_array_equal(padded[:, :5], sample)
    np.testing.assert_array_equal(padded[:, 5:], np.full((2, 3), want))


def test_a_sample_of_the_size_of_its_class_is_not_copied() -> None:
    sample = np.ones((2, 8), np.float32)
    assert sized(4, 8).padded([[sample]])[0][0] is sample


@pytest.mark.parametrize(
    ("widths", "want"),
    [
        pytest.param([3], 4, id="the next multiple"),
        pytest.param([4], 4, id="a multiple"),
        pytest.param([1, 7, 6], 8, id="of the largest sample"),
        pytest.param([13], 15, id="at most the size of the class"),
        pytest.param([16], 16, id="of a class without replicas"),
        pytest.param([], None, id="of no sample"),
    ],
)
def test_batches_of_any_size_have_the_size_of_their_largest_sample(widths: list[int], want: int | None) -> None:
    inputs = replace(sized(10, 15, 16, 40, without=(16,)), step=4)
    batch = [[np.full((2, width), width, np.float32)] for width in widths]
    padded = inputs.padded(batch, any_size=True)
    assert [array.shape[1] for (array,) in padded] == [want] * len(widths)
    for (array,), width in zip(padded, widths, strict=True):
        np.testing.assert_array_equal(array[0], [width] * width + [0] * (array.shape[1] - width))


def test_without_a_step_batches_have_the_size_of_their_class() -> None:
    ((padded,),) = sized(10, 20).padded([[np.ones((2, 3), np.float32)]], any_size=True)
    assert padded.shape == (2, 10)


def test_inputs_that_vary_are_padded_together_each_with_its_own_value() -> None:
    ids = NamedInput(name="ids", shape=(8,), dtype=DType.INT64, variable_dimension=0, padding=SignedNumber("1"))
    mask = NamedInput(name="mask", shape=(1, 8), dtype=DType.BOOL, variable_dimension=1)
    language = NamedInput(name="language", shape=(2,), dtype=DType.INT16)
    model = ModelSource(file="read.onnx")
    sizes = (Size(size=4), Size(size=8))
    inputs = SizedInputs.of(Module(name="read", model=model, inputs=(ids, language, mask), sizes=sizes), {"read-s4"})
    sample = [np.full(3, 7), np.array([5, 6], np.int16), np.ones((1, 3), np.bool_)]
    assert inputs.served_by(sample) == "read-s4"
    ((ids_then, language_then, mask_then),) = inputs.padded([sample])
    np.testing.assert_array_equal(ids_then, [7, 7, 7, 1])
    np.testing.assert_array_equal(mask_then, [[True, True, True, False]])
    assert language_then is sample[1]


def test_rows_of_different_shapes_become_one_tensor() -> None:
    rows = [np.full((2, 3), 1, np.float32), np.full((1, 4), 2, np.float32)]
    want = [[[1, 1, 1, 0], [1, 1, 1, 0]], [[2, 2, 2, 2], [0, 0, 0, 0]]]
    np.testing.assert_array_equal(padded_rows(rows), np.array(want, np.float32))
