"""Stages that compute with torch: built from JSON, connected by arrays as over the network."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tests.runtime.models.sample_models import residuals, typed
from torch.utils._python_dispatch import TorchDispatchMode

from partita_api.session.execution import Backend, CutDType
from partita_api.session.module import DType, ModelSource, TensorSpec
from partita_runtime.execution.build import build_executor
from partita_runtime.execution.executor import NUMPY_DTYPES, Array, BuiltExecutor
from partita_runtime.execution.stage_build import Device, StageBuild
from partita_runtime.execution.torch_stage import LARGEST_HALF, stage_boundaries
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.partitioned_model import partition_source
from partita_runtime.models.standard_inputs import standard_input

SMALL = TensorSpec(shape=(3, 16, 16))


def build(entrypoint: str = "residuals", kwargs: dict[str, Any] | None = None, **fields: Any) -> BuiltExecutor:
    source = ModelSource(entrypoint=f"tests.runtime.models.sample_models:{entrypoint}", kwargs=kwargs or {})
    stage = StageBuild(model=source, **{"input": SMALL, "blocks": 4, **fields})
    return build_executor(StageBuild.model_validate_json(stage.model_dump_json(by_alias=True)))


def as_received(arrays: list[Array]) -> list[Array]:
    """Read-only copies, like views of a network buffer."""
    return [np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape) for array in arrays]


def whole_answer(pixels: Array) -> list[Array]:
    with torch.no_grad():
        answer = residuals()(torch.from_numpy(pixels))
    return [answer["scores"].numpy(), answer["brightness"].numpy()[:, None]]


@pytest.mark.parametrize(
    ("cut_dtype", "tolerance"),
    [pytest.param(CutDType.FP32, 1e-5, id="full precision"), pytest.param(CutDType.FP16, 5e-3, id="half precision")],
)
@pytest.mark.parametrize("stages", [[(0, 4)], [(0, 1), (1, 4)], [(0, 2), (2, 3), (3, 4)]], ids=["one", "two", "three"])
def test_stages_in_a_row_answer_like_the_whole_model(
    stages: list[tuple[int, int]], cut_dtype: CutDType, tolerance: float
) -> None:
    built = [build(first=first, end=end, cut_dtype=cut_dtype, max_batch=3) for first, end in stages]
    assert [b.inputs for b in built[1:]] == [b.outputs for b in built[:-1]]
    for b in built:
        b.executor.warm_up([1, 2, 3])

    for batch in (1, 3):
        arrays: list[Array] = [standard_input(SMALL, batch)]
        want = whole_answer(arrays[0])
        for stage in built:
            arrays = stage.executor.run(as_received(arrays))
            assert [(a.shape, str(a.dtype)) for a in arrays] == [
                ((batch, *spec.shape), {"FP16": "float16", "FP32": "float32"}[spec.dtype]) for spec in stage.outputs
            ]
        for array, whole in zip(arrays, want, strict=True):
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, whole, rtol=0, atol=tolerance)


@pytest.mark.parametrize("cuts", [(0, 2), (0, 1, 2)], ids=["one stage", "two stages"])
@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES])
def test_models_take_and_answer_with_every_element_type_of_numbers(dtype: str, cuts: tuple[int, ...]) -> None:
    spec = TensorSpec(shape=(3,), dtype=DType(dtype))
    stages = [
        build("typed", input=spec, blocks=2, first=first, end=end, cut_dtype=CutDType.FP32)
        for first, end in pairwise(cuts)
    ]
    given = standard_input(spec, 2)
    arrays = [given]
    for stage in stages:
        arrays = stage.executor.run(as_received(arrays))

    (_, same) = arrays
    assert same.dtype == (np.float32 if dtype == "FP16" else given.dtype)
    np.testing.assert_array_equal(same, given.astype(np.float32) if dtype == "FP64" and len(stages) == 2 else given)
    assert [spec.dtype for spec in stages[-1].outputs] == ["FP32", "FP32" if dtype == "FP16" else dtype]
    with torch.no_grad():
        np.testing.assert_allclose(arrays[0], typed()(torch.from_numpy(given))[0].numpy(), rtol=1e-5, atol=1e-6)


def test_stage_holds_only_its_own_blocks_weights() -> None:
    whole = build().executor.memory_bytes
    parts = [build(first=first, end=first + 1).executor.memory_bytes for first in range(4)]

    assert sum(parts) == whole == sum(p.numel() * 4 for p in residuals().parameters())


def test_numbers_beyond_half_precision_are_limited_at_cuts_and_not_in_answers() -> None:
    pixels = standard_input(SMALL, 1)
    large = {"entrypoint": "answers", "kwargs": {"kind": "large"}, "blocks": 2}

    (crossing,) = build(**large, end=1).executor.run([pixels])
    (answer,) = build(**large).executor.run([pixels])

    assert (crossing.dtype, float(crossing.max())) == (np.float16, LARGEST_HALF)
    assert answer.max() > LARGEST_HALF


class Copies(TorchDispatchMode):
    """The tensors that are copied to another device or element type."""

    def __init__(self) -> None:
        super().__init__()
        self.moved: list[int] = []
        """Addresses of those that get another device."""
        self.converted_on: set[str] = set()
        """Devices of those that get another element type."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            if answer.dtype != args[0].dtype:
                self.converted_on.add(args[0].device.type)
            if answer.device != args[0].device:
                self.moved.append(args[0].data_ptr())
        return answer


def test_a_batch_is_copied_to_the_device_as_it_came_from_the_network() -> None:
    # One thread of the CPU would convert and copy it for longer than a GPU computes.
    model = partition_source(ModelSource(entrypoint="tests.runtime.models.sample_models:residuals"), SMALL, 4)
    entry, _ = stage_boundaries(model, 1, 2, SMALL, CutDType.FP16, torch.device("meta"))
    arrays = as_received([np.zeros((2, *spec.shape), np.float16) for spec in entry.specs])

    with Copies() as copies:
        tensors = entry.to_device(arrays)

    assert {(tensor.device.type, tensor.dtype) for tensor in tensors} == {("meta", torch.float32)}
    assert copies.converted_on == {"meta"}
    assert copies.moved == [array.ctypes.data for array in arrays]


@pytest.fixture(scope="module")
def whole_model() -> BuiltExecutor:
    """The model as one stage."""
    return build(blocks=1, max_batch=4)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        pytest.param([], "takes 1 tensors, not 0", id="none"),
        pytest.param([np.zeros((1, 3, 8, 16), np.float32)], r"not float32\[1, 3, 16, 16\]", id="shape"),
        pytest.param([np.zeros((1, 3, 16, 16), np.float64)], "tensor 0 is float64", id="element type"),
        pytest.param([np.zeros((5, 3, 16, 16), np.float32)], "a batch of 5 is outside 1 to 4", id="batch too large"),
        pytest.param([np.zeros((0, 3, 16, 16), np.float32)], "a batch of 0", id="empty batch"),
        pytest.param([np.float32(1)], "a batch of 0", id="scalar"),
    ],
)
def test_arrays_of_the_wrong_shape_or_type_are_refused(
    arrays: list[Array], says: str, whole_model: BuiltExecutor
) -> None:
    with pytest.raises(ValueError, match=says):
        whole_model.executor.run(arrays)


def test_model_that_changed_since_its_profile_is_refused() -> None:
    partition = build().partition

    assert build(first=1, end=2, partition=partition).partition == partition
    with pytest.raises(ModelError, match="changed since") as raised:
        build(kwargs={"depth": 5}, partition=partition)
    assert raised.value.reason is ModelErrorReason.PARTITION_CHANGED


def test_blocks_that_the_model_does_not_have_are_refused() -> None:
    with pytest.raises(ModelError, match=r"blocks \[3, 9\) were requested, but the model has 4"):
        build(first=3, end=9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_the_cpu_computes_with_a_warning() -> None:
    built = build(blocks=1, device=Device.CUDA)

    assert built.device_used == "cpu"
    assert "no CUDA device" in built.warnings[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_answers_like_the_cpu() -> None:
    pixels = standard_input(SMALL, 3)
    first = build(first=0, end=2, device=Device.CUDA)
    second = build(first=2, end=4, device=Device.CUDA)

    answer = second.executor.run(first.executor.run([pixels]))

    assert first.device_used == second.device_used == "cuda"
    for array, whole in zip(answer, whole_answer(pixels), strict=True):
        np.testing.assert_allclose(array, whole, rtol=0, atol=1e-2)


def test_inductor_answers_like_eager() -> None:
    built = build(kwargs={"depth": 1}, blocks=1, backend=Backend.INDUCTOR)
    eager = build(kwargs={"depth": 1}, blocks=1)

    assert built.backend_used == "Inductor" or "Inductor cannot build" in built.warnings[0]
    for batch in (1, 2, 5):
        pixels = [standard_input(SMALL, batch)]
        for one, other in zip(built.executor.run(pixels), eager.executor.run(pixels), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def test_every_stage_of_a_process_is_compiled_when_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    # torch compiles one code object for 8 cases at most, and runs further ones eagerly without an error.
    compiled: list[object] = []
    runs: list[object] = []

    def counted(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        compiled.append(graph)

        def run(*tensors: torch.Tensor) -> Any:
            runs.append(graph)
            return graph.forward(*tensors)

        return run

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counted))
    stages = [build(first=first, end=first + 1, backend=Backend.INDUCTOR).executor for first in range(4)]
    assert len(compiled) == 2 * len(stages), "for a single sample, and for all other batch sizes"
    runs.clear()

    for stage in stages:
        stage.warm_up([1, 2, 5])

    assert len(compiled) == 2 * len(stages)
    assert len(runs) == 3 * len(stages)


def test_without_a_compiler_the_stage_runs_eagerly_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("/nowhere/c++",))
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)

    built = build(kwargs={"depth": 2}, blocks=1, backend=Backend.INDUCTOR)

    assert built.backend_used == "Eager"
    assert "Inductor cannot build the stage, so it runs eagerly" in built.warnings[0]
    assert built.executor.run([standard_input(SMALL, 2)])[0].shape == (2, 4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_there_are_no_cuda_graphs_with_a_warning() -> None:
    built = build(blocks=1, backend=Backend.CUDA_GRAPHS)

    assert built.backend_used == "Eager"
    assert built.warnings == ("CudaGraphs cannot build the stage, so it runs eagerly: there is no CUDA device",)
    assert built.executor.run([standard_input(SMALL, 2)])[0].shape == (2, 4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_cuda_graphs_answer_like_eager_after_any_batch_size() -> None:
    built = build(blocks=1, backend=Backend.CUDA_GRAPHS, device=Device.CUDA, max_batch=4)
    assert (built.backend_used, built.warnings) == ("CudaGraphs", ())
    built.executor.warm_up(range(1, 5))

    for batch in (3, 1, 4, 3):
        pixels = standard_input(SMALL, batch)
        for array, whole in zip(built.executor.run([pixels]), whole_answer(pixels), strict=True):
            np.testing.assert_allclose(array, whole, rtol=0, atol=1e-2)
