"""Stages of .onnx files: built from JSON, connected by arrays as over the network."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from tests.runtime.models.onnx_files import exported, floats, made, packaged
from tests.runtime.models.sample_models import residuals

from partita_api.session.execution import Backend, CutDType
from partita_api.session.module import DType, ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import NUMPY_DTYPES, Array, BuiltExecutor
from partita_runtime.execution.stage_build import Device, StageBuild
from partita_runtime.models.files import load_file
from partita_runtime.models.standard_inputs import standard_input

SMALL = TensorSpec(shape=(3, 16, 16))
LINE = TensorSpec(shape=(3, 48, 160))
"""A line of text as the recognition of the package takes it."""


def build(file: Path, spec: TensorSpec = LINE, **fields: Any) -> BuiltExecutor:
    stage = StageBuild(model=ModelSource(file=str(file)), input=spec, **{"blocks": 4, **fields})
    return build_executor(StageBuild.model_validate_json(stage.model_dump_json(by_alias=True)))


@pytest.mark.parametrize(
    ("cut_dtype", "tolerance"),
    [pytest.param(CutDType.FP32, 1e-5, id="full precision"), pytest.param(CutDType.FP16, 2e-2, id="half precision")],
)
@pytest.mark.parametrize("stages", [[(0, 4)], [(0, 1), (1, 4)], [(0, 2), (2, 3), (3, 4)]], ids=["one", "two", "three"])
def test_stages_in_a_row_read_the_same_text(
    stages: list[tuple[int, int]], cut_dtype: CutDType, tolerance: float
) -> None:
    file = packaged("PP-OCRv6_rec_small")
    whole = load_file(file)
    built = [build(file, first=first, end=end, cut_dtype=cut_dtype, max_batch=3) for first, end in stages]

    assert {b.backend_used for b in built} == {"OnnxRuntime"}
    assert not any(b.warnings for b in built)
    assert [b.inputs for b in built[1:]] == [b.outputs for b in built[:-1]]
    for batch in (1, 3):
        arrays: list[Array] = [standard_input(LINE, batch)]
        (want,) = whole(torch.from_numpy(arrays[0]))
        for stage in built:
            arrays = [np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape) for a in stage.executor.run(arrays)]
        (answer,) = arrays
        np.testing.assert_allclose(answer, want.numpy(), rtol=0, atol=tolerance)
        assert (answer.argmax(-1) == want.numpy().argmax(-1)).all(), "every character"


@pytest.mark.parametrize("cuts", [(0, 2), (0, 1, 2)], ids=["one stage", "two stages"])
@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES])
def test_models_take_and_answer_with_every_element_type_of_numbers(
    dtype: str, cuts: tuple[int, ...], tmp_path: Path
) -> None:
    element = onnx.helper.np_dtype_to_tensor_dtype(NUMPY_DTYPES[dtype])
    weights = np.arange(9, dtype=np.float32).reshape(3, 3)
    model = made(
        [
            onnx.helper.make_node("Cast", ["x"], ["numbers"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("MatMul", ["numbers", "weights"], ["once"]),
            onnx.helper.make_node("MatMul", ["once", "weights"], ["y"]),
            onnx.helper.make_node("Identity", ["x"], ["same"]),
        ],
        inputs=[onnx.helper.make_tensor_value_info("x", element, ["batch", 3])],
        outputs=[floats("y", "batch", 3), onnx.helper.make_tensor_value_info("same", element, ["batch", 3])],
        weights=[onnx.numpy_helper.from_array(weights, "weights")],
    )
    onnx.save_model(model, tmp_path / "model.onnx")
    spec = TensorSpec(shape=(3,), dtype=DType(dtype))
    given = standard_input(spec, 2)
    arrays = [given]
    for first, end in pairwise(cuts):
        stage = build(tmp_path / "model.onnx", spec, blocks=2, first=first, end=end, cut_dtype=CutDType.FP32)
        arrays = stage.executor.run(arrays)

    (answer, same) = arrays
    assert same.dtype == (np.float32 if dtype == "FP16" else given.dtype)
    np.testing.assert_array_equal(same, given.astype(np.float32) if dtype == "FP64" and len(cuts) == 3 else given)
    np.testing.assert_allclose(answer, given.astype(np.float32) @ weights @ weights, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        pytest.param(Backend.EAGER, [], id="the default"),
        pytest.param(Backend.ONNX_RUNTIME, [], id="by name"),
        pytest.param(Backend.INDUCTOR, ["Inductor is not for .onnx files"], id="one of torch"),
        pytest.param(Backend.TENSORRT, ["TensorRT needs a GPU"], id="one of GPUs"),
    ],
)
def test_onnx_runtime_computes_with_every_backend(backend: Backend, says: list[str], tmp_path: Path) -> None:
    onnx.save_model(exported(residuals(), SMALL), str(tmp_path / "model.onnx"))

    built = build(tmp_path / "model.onnx", SMALL, backend=backend)

    assert (built.backend_used, built.device_used) == ("OnnxRuntime", "cpu")
    assert [warning[: len(start)] for warning, start in zip(built.warnings, says, strict=True)] == says
    pixels = standard_input(SMALL, 2)
    with torch.no_grad():
        want = residuals()(torch.from_numpy(pixels))
    scores, brightness = built.executor.run([pixels])
    np.testing.assert_allclose(scores, want["scores"].numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(brightness[:, 0], want["brightness"].numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("blocks", [1, 4])
def test_a_whole_model_reads_lines_of_any_width_as_they_are(blocks: int) -> None:
    """Without padding, also if its profile has several blocks, whose shapes are those of the size class."""
    file = packaged("PP-OCRv6_rec_small")
    stage = build(file, blocks=blocks, max_batch=2, any_size=True)
    whole = load_file(file)

    assert stage.any_size
    for width in (160, 57, 8, 120):
        lines = np.random.default_rng(width).uniform(-1, 1, (2, 3, 48, width)).astype(np.float32)
        (want,) = whole(torch.from_numpy(lines))
        (answer,) = stage.executor.run([lines])
        positions = want.shape[1]
        assert answer.shape[1:] == stage.outputs[0].shape, "answers have the shape of the size class"
        np.testing.assert_allclose(answer[:, :positions], want.numpy(), rtol=0, atol=1e-6)
        assert not answer[:, positions:].any()


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((1, 3, 48, 161), id="too wide"),
        pytest.param((1, 3, 48, 0), id="empty"),
        pytest.param((3, 3, 48, 8), id="too many"),
    ],
)
def test_larger_samples_than_those_of_the_size_class_are_refused(shape: tuple[int, ...]) -> None:
    stage = build(packaged("PP-OCRv6_rec_small"), blocks=1, max_batch=2, any_size=True)
    with pytest.raises(ValueError, match=r"is float32|a batch of 3 is outside 1 to 2"):
        stage.executor.run([np.zeros(shape, np.float32)])


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"any_size": False}, id="not asked for"),
        pytest.param({"end": 3}, id="a part of the model"),
        pytest.param({"backend": Backend.TENSORRT}, id="a backend of fixed sizes"),
    ],
)
def test_other_stages_take_the_size_of_their_class_only(fields: dict[str, Any]) -> None:
    stage = build(packaged("PP-OCRv6_rec_small"), **{"any_size": True, **fields})
    assert not stage.any_size
    with pytest.raises(ValueError, match=r"tensor 0 is float32\[1, 3, 48, 100\], not"):
        stage.executor.run([np.zeros((1, 3, 48, 100), np.float32)])


def test_a_model_with_a_larger_answer_for_smaller_samples_says_what_to_change(tmp_path: Path) -> None:
    nodes = [
        onnx.helper.make_node("Shape", ["x"], ["width"], start=1),
        onnx.helper.make_node("Add", ["width", "width"], ["twice"]),
        onnx.helper.make_node("Sub", ["most", "twice"], ["missing"]),
        onnx.helper.make_node("Concat", ["none", "missing"], ["pads"], axis=0),
        onnx.helper.make_node("Pad", ["x", "pads"], ["y"]),
    ]
    weights = [
        onnx.numpy_helper.from_array(np.array([16]), "most"),
        onnx.numpy_helper.from_array(np.array([0, 0, 0]), "none"),
    ]
    model = made(nodes, [floats("x", "batch", "width")], [floats("y", "batch", "rest")], weights)
    onnx.save_model(model, tmp_path / "model.onnx")
    stage = build(tmp_path / "model.onnx", TensorSpec(shape=(8,)), blocks=1, any_size=True)
    assert stage.executor.run([np.zeros((1, 8), np.float32)])[0].shape == (1, 8)
    with pytest.raises(ValueError, match=r"answered \[1, 12\], which is not within \[1, 8\].*remove sizeStep"):
        stage.executor.run([np.zeros((1, 4), np.float32)])


def test_a_module_of_torch_runs_eagerly_with_a_warning() -> None:
    source = ModelSource(entrypoint="tests.runtime.models.sample_models:residuals")
    built = build_executor(StageBuild(model=source, input=SMALL, blocks=2, backend=Backend.ONNX_RUNTIME))
    assert built.backend_used == "Eager"
    assert built.warnings == ("OnnxRuntime computes models of .onnx files only, so the stage runs eagerly",)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_the_cpu_computes_with_a_warning() -> None:
    built = build(packaged("ch_ppocr_mobile_v2.0_cls_mobile"), TensorSpec(shape=(3, 48, 192)), device=Device.CUDA)
    assert built.device_used == "cpu"
    assert "no CUDA device" in built.warnings[0]


def test_a_stage_holds_only_its_own_weights() -> None:
    file = packaged("PP-OCRv6_rec_small")
    parts = [build(file, first=first, end=first + 1).executor.memory_bytes for first in range(4)]
    assert sum(parts) == build(file).executor.memory_bytes
    assert max(parts) < sum(parts) / 2
