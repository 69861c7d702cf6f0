"""Cutting ONNX graphs: the blocks together answer like the whole model."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper
from tests.runtime.models.architectures import ARCHITECTURES, IMAGE, lively
from tests.runtime.models.onnx_files import exported, floats, made, packaged
from tests.runtime.models.sample_models import Encoder
from torch.utils import _pytree as pytree

from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.models.capture import examples
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.files import load_file
from partita_runtime.models.layers import MAX_CROSSING
from partita_runtime.models.onnx.graph import with_inputs
from partita_runtime.models.onnx.module import OnnxModule, joined, onnx_module
from partita_runtime.models.onnx.observation import inferred, observed, shown_by_runs
from partita_runtime.models.partitioned_model import PartitionedModel, partition

FOUR = TensorSpec(shape=(4,))
ROOT = Path(__file__).resolve().parents[3]
WEIGHTS = numpy_helper.from_array(np.eye(4, dtype=np.float32) * 2, "weights")
MATMUL = helper.make_node("MatMul", ["x", "weights"], ["y"])
NETWORKS = {
    "text detection": ("PP-OCRv6_det_small", (3, 96, 160)),
    "text recognition": ("PP-OCRv6_rec_small", (3, 48, 160)),
    "text direction": ("ch_ppocr_mobile_v2.0_cls_mobile", (3, 48, 192)),
}


def modules(model: PartitionedModel, first: int, end: int) -> list[OnnxModule]:
    found = [model.block(i) for i in range(first, end)]
    return [block for block in found if isinstance(block, OnnxModule)]


def assert_cut_like(model: PartitionedModel, tensors: list[torch.Tensor], want: list[torch.Tensor]) -> None:
    """The blocks one by one, and joined to two stages, answer with `want`; what crosses is as declared."""
    batch, middle = len(tensors[0]), len(model.blocks) // 2
    crossing = tensors
    for block in range(len(model.blocks)):
        crossing = model.run(block, block + 1, crossing)
        for tensor, declared in zip(crossing, model.boundaries[block + 1], strict=True):
            assert tuple(tensor.shape) == (batch, *declared.shape)
            assert str(tensor.dtype) == f"torch.{declared.dtype}"
    stages = joined(modules(model, 0, middle)), joined(modules(model, middle, len(model.blocks)))
    for answer in (crossing, stages[1](*stages[0](*tensors))):
        assert len(answer) == len(want)
        for tensor, whole in zip(answer, want, strict=True):
            scale = float(whole.abs().max())
            assert scale > 0
            torch.testing.assert_close(tensor, whole, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_blocks_of_exported_architectures_answer_like_the_module(name: str) -> None:
    model = lively(name)
    cut = partition(onnx_module(exported(model, IMAGE)), IMAGE, 6)

    assert len(cut.blocks) == 6
    assert all(1 <= len(tensors) <= MAX_CROSSING for tensors in cut.cuts)
    for batch in (1, 3):
        pixels = torch.randn(batch, *IMAGE.shape)
        with torch.no_grad():
            leaves = pytree.tree_leaves(model(pixels))
        assert_cut_like(cut, [pixels], [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])


@pytest.mark.parametrize("opset", [11, 13, 17, 20])
def test_every_opset_is_cut(opset: int) -> None:
    model = lively("resnet")
    pixels = torch.randn(2, *IMAGE.shape)

    cut = partition(onnx_module(exported(model, IMAGE, opset)), IMAGE, 4)

    assert len(cut.blocks) == 4
    with torch.no_grad():
        assert_cut_like(cut, [pixels], [model(pixels).logits])


@pytest.mark.parametrize(("name", "shape"), NETWORKS.values(), ids=NETWORKS)
def test_trained_networks_with_dynamic_widths_answer_as_a_whole(name: str, shape: tuple[int, ...]) -> None:
    spec = TensorSpec(shape=shape)
    whole = load_file(packaged(name))
    assert isinstance(whole, OnnxModule)
    (pixels,) = examples(spec, 3)

    cut = partition(whole, spec, 6)

    assert (len(cut.blocks), cut.warnings) == (6, ())
    assert_cut_like(cut, [pixels], list(whole(pixels)))


@pytest.mark.parametrize("name", ["resnet", "PP-OCRv6_det_small"])
def test_inferred_shapes_are_those_of_runs(name: str) -> None:
    """Text detection of a wide picture takes seconds for each run."""
    if name in ARCHITECTURES:
        inputs, whole = IMAGE, onnx_module(exported(lively(name), IMAGE))
    else:
        inputs, loaded = TensorSpec(shape=(3, 96, 160)), load_file(packaged(name))
        assert isinstance(loaded, OnnxModule)
        whole = loaded
    model = with_inputs(whole.model, inputs)

    assert inferred(model) == shown_by_runs(model, whole.weights, inputs)


def test_shapes_that_inference_does_not_find_are_those_of_runs() -> None:
    whole = load_file(packaged("PP-OCRv6_rec_small"))
    assert isinstance(whole, OnnxModule)
    spec = TensorSpec(shape=(3, 48, 160))
    model = with_inputs(whole.model, spec)

    assert inferred(model) is None
    assert observed(model, whole.weights, spec) == shown_by_runs(model, whole.weights, spec)


def test_the_cut_is_the_same_in_every_process() -> None:
    here = partition(load_file(packaged("PP-OCRv6_rec_small")), TensorSpec(shape=(3, 48, 160)), 5).digest
    code = (
        "from tests.runtime.models.onnx_files import packaged\n"
        "from partita_api.session.module import TensorSpec\n"
        "from partita_runtime.models.files import load_file\n"
        "from partita_runtime.models.partitioned_model import partition\n"
        "print(partition(load_file(packaged('PP-OCRv6_rec_small')), TensorSpec(shape=(3, 48, 160)), 5).digest)"
    )
    there = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here
    other = partition(load_file(packaged("PP-OCRv6_rec_small")), TensorSpec(shape=(3, 48, 192)), 5).digest
    assert other != here


def test_a_value_that_a_block_only_passes_on_arrives() -> None:
    double = [helper.make_node("MatMul", [source, "weights"], [f"v{i}"]) for i, source in enumerate(("x", "v0", "v1"))]
    model = onnx_module(made([*double, helper.make_node("Add", ["v2", "x"], ["y"])], weights=[WEIGHTS]))

    cut = partition(model, FOUR, 3)

    assert [len(tensors) for tensors in cut.cuts] == [2, 2]
    assert_cut_like(cut, [torch.ones(2, 4)], [torch.full((2, 4), 9.0)])


def test_shapes_of_values_in_other_blocks_are_known() -> None:
    # The shape of the input is needed in the last block, where the input is not.
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("MatMul", ["x", "weights"], ["v0"]),
        helper.make_node("MatMul", ["v0", "weights"], ["v1"]),
        helper.make_node("Reshape", ["v1", "shape"], ["y"]),
    ]
    cut = partition(onnx_module(made(nodes, weights=[WEIGHTS])), FOUR, 2)

    assert [len(tensors) for tensors in cut.cuts] == [1]
    assert_cut_like(cut, [torch.ones(3, 4)], [torch.full((3, 4), 4.0)])


def test_no_cut_is_behind_a_shape_that_depends_on_numbers() -> None:
    # As many rows as numbers above 0: in the standard input their count follows no batch size.
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["v0"]),
        helper.make_node("NonZero", ["v0"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["v0", "weights"], ["v1"]),
        helper.make_node("ReduceSum", ["numbers"], ["sum"], keepdims=0),
        helper.make_node("Add", ["v1", "sum"], ["y"]),
    ]
    cut = partition(onnx_module(made(nodes, weights=[WEIGHTS])), FOUR, 2)
    assert all(tensor.shape == (4,) for tensors in cut.cuts for tensor in tensors)


def test_weights_are_in_memory_once() -> None:
    large = numpy_helper.from_array(np.ones((64, 64), np.float32), "weights")
    model = onnx_module(made([MATMUL], [floats("x", "batch", 64)], [floats("y", "batch", 64)], weights=[large]))
    assert sum(t.nbytes for t in model.state_dict().values()) == 64 * 64 * 4
    assert len(model.model.SerializeToString()) < 1000, "the graph does not contain them, too"
    assert joined([model, model]).weights["weights"].data_ptr() == model.weights["weights"].data_ptr()


@pytest.mark.parametrize(
    ("model", "spec", "says"),
    [
        pytest.param(
            made([helper.make_node("Add", ["x", "z"], ["y"])], [floats("x", "batch", 4), floats("z", "batch", 4)]),
            FOUR,
            "it takes x, z, not one tensor; declare inputs of the module",
            id="two inputs",
        ),
        pytest.param(
            made([MATMUL], weights=[WEIGHTS]), TensorSpec(shape=(5,)), r"samples are \[4\], not \[5\]", id="shape"
        ),
        pytest.param(made([MATMUL], weights=[WEIGHTS]), TensorSpec(shape=(4, 4)), r"\[4\], not \[4, 4\]", id="rank"),
        pytest.param(
            made([MATMUL], weights=[WEIGHTS]),
            TensorSpec(shape=(4,), dtype=DType.INT64),
            "elements of type FLOAT, not INT64; correct the module's input.dtype",
            id="element type",
        ),
        pytest.param(
            made([MATMUL], [floats("x", 1, 4)], weights=[WEIGHTS]),
            FOUR,
            "exported for batches of 1 only; export it with a dynamic batch dimension",
            id="batches of one",
        ),
        pytest.param(
            made([MATMUL], [floats("x", "batch", "any")], weights=[WEIGHTS]),
            TensorSpec(shape=(5,)),
            r"cannot run the model on an input of \['batch', 5\]: .*correct the module's input",
            id="its operators refuse the shape",
        ),
    ],
)
def test_a_model_that_does_not_fit_the_module_is_refused(model: ModelProto, spec: TensorSpec, says: str) -> None:
    with pytest.raises(ModelError, match=says) as raised:
        partition(onnx_module(model), spec, 2)
    assert raised.value.reason is ModelErrorReason.BAD_INPUT


def test_an_output_without_a_batch_dimension_is_refused() -> None:
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)]
    with pytest.raises(ModelError, match="output 0 of the model has no leading batch dimension"):
        partition(onnx_module(made(nodes, outputs=[floats("y")])), FOUR, 2)


def test_the_table_that_an_input_selects_from_is_its_vocabulary() -> None:
    inputs = tuple(NamedInput(name=name, shape=(6,), dtype=DType.INT64) for name in ("input_ids", "attention_mask"))
    model = onnx_module(exported(Encoder().eval(), inputs))
    assert partition(model, inputs, 2).vocabularies == (50, 0)
    assert partition(onnx_module(made([MATMUL], weights=[WEIGHTS])), FOUR, 1).vocabularies == (0,)


def test_weights_in_another_file_are_read(tmp_path: Path) -> None:
    large = numpy_helper.from_array(np.full((64, 64), 0.5, np.float32), "weights")
    model = made([MATMUL], [floats("x", "batch", 64)], [floats("y", "batch", 64)], weights=[large])
    path = tmp_path / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size == 64 * 64 * 4

    (answer,) = load_file(path)(torch.ones(2, 64))

    torch.testing.assert_close(answer, torch.full((2, 64), 32.0))


def test_values_need_not_be_in_memory_together_to_be_cut() -> None:
    # 150 values of 12 MB in a run with a batch of 3: 1.8 GB, if all of them are kept.
    code = (
        "import resource\n"
        "from onnx import helper\n"
        "from partita_api.session.module import TensorSpec\n"
        "from partita_runtime.models.onnx.observation import shown_by_runs\n"
        "from tests.runtime.models.onnx_files import floats, made\n"
        "names = ['x', *(f'v{i}' for i in range(149)), 'y']\n"
        "nodes = [helper.make_node('Relu', [a], [b]) for a, b in zip(names, names[1:])]\n"
        "model = made(nodes, [floats('x', 'batch', 1000, 1000)], [floats('y', 'batch', 1000, 1000)])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "shown_by_runs(model, {}, TensorSpec(shape=(1000, 1000)))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400_000, "kilobytes"


def test_models_of_a_process_share_the_memory_of_their_values() -> None:
    # Each model has values of 64 MB; two of them are alive at a time.
    code = (
        "import resource\n"
        "import torch\n"
        "from onnx import helper\n"
        "from partita_runtime.models.onnx.module import onnx_module\n"
        "from tests.runtime.models.onnx_files import floats, made\n"
        "names = ['x', 'a', 'b', 'c', 'y']\n"
        "nodes = [helper.make_node('Sin', [a], [b]) for a, b in zip(names, names[1:])]\n"
        "sides = floats('x', 'batch', 4000, 4000), floats('y', 'batch', 4000, 4000)\n"
        "models = [onnx_module(made(nodes, sides[:1], sides[1:])) for _ in range(6)]\n"
        "given = torch.ones(1, 4000, 4000)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for model in models: model(given)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400_000, "kilobytes"
