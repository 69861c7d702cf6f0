"""Builds executors that compute with torch."""

import gc
from collections.abc import Callable, Mapping
from typing import Final

import torch

from partita_api.session.execution import Backend
from partita_runtime.execution.executor import BuiltExecutor, StageExecutor
from partita_runtime.execution.onnx_runtime import has_cuda, onnx_runtime
from partita_runtime.execution.process_settings import settle_process
from partita_runtime.execution.profiled_time import ProfiledTimeExecutor
from partita_runtime.execution.shared_weights import SharedWeights
from partita_runtime.execution.stage_build import Device, StageBuild
from partita_runtime.execution.torch_cuda_graphs import cuda_graphs
from partita_runtime.execution.torch_eager import eager
from partita_runtime.execution.torch_inductor import inductor
from partita_runtime.execution.torch_stage import (
    Boundary,
    CannotBuildError,
    Compute,
    StageBlocks,
    TorchExecutor,
    stage_boundaries,
)
from partita_runtime.execution.torch_tensor_rt import tensor_rt
from partita_runtime.models.errors import ModelError, ModelErrorReason
from partita_runtime.models.partitioned_model import PartitionedModel, partition_source

_BUILDERS: Final[Mapping[Backend, Callable[[StageBlocks, Boundary], Compute]]] = {
    Backend.INDUCTOR: inductor,
    Backend.CUDA_GRAPHS: cuda_graphs,
    Backend.TENSORRT: tensor_rt,
}
"""Backends that may raise CannotBuildError; the fallback is Eager, which always works."""


def build_torch_executor(build: StageBuild, weights: SharedWeights | None = None) -> BuiltExecutor:
    """The stage's blocks on its device, with the requested backend or its fallback.

    It takes those of the `weights` that are its own. Changes settings of the whole process (see `settle_process`).
    Raises ModelError.
    """
    settle_process(build.threads)
    warnings: list[str] = []
    model = _stage_of_model(build)
    device = pick_device(build.device, model, warnings)
    model = model.to(device) if weights is None else weights.placed(model, device)
    end = len(model.blocks) if build.end is None else build.end
    entry, exit = stage_boundaries(model, build.first, end, build.takes, build.cut_dtype, device)
    uncut = model.uncut if build.any_size and build.backend is not Backend.TENSORRT else None
    blocks = StageBlocks([model.block(i) for i in range(build.first, end)] if uncut is None else [uncut])
    backend, compute = pick_backend(build.backend, blocks, entry, device, warnings)
    any_size = uncut is not None
    executor: StageExecutor = TorchExecutor(blocks, compute, entry, exit, max_batch=build.max_batch, any_size=any_size)
    if build.latency_micros is not None:
        executor = ProfiledTimeExecutor(executor, build.latency_micros)
    return BuiltExecutor(
        executor=executor,
        backend_used=backend,
        device_used=device.type,
        inputs=entry.specs,
        outputs=exit.specs,
        any_size=any_size,
        partition=model.digest,
        warnings=(*model.warnings, *warnings),
    )


def pick_device(requested: Device, model: PartitionedModel, warnings: list[str]) -> torch.device:
    """The device, or the CPU with a warning added to `warnings`."""
    if requested is Device.CUDA and not torch.cuda.is_available():
        warnings.append("there is no CUDA device here, so the stage computes on the CPU")
        return torch.device("cpu")
    if requested is Device.CUDA and model.is_onnx and not has_cuda():
        warnings.append(
            "ONNX Runtime here has no CUDA, so the stage computes on the CPU; install onnxruntime-gpu instead of "
            "onnxruntime"
        )
        return torch.device("cpu")
    return torch.device(requested)


def pick_backend(
    requested: Backend, blocks: StageBlocks, entry: Boundary, device: torch.device, warnings: list[str]
) -> tuple[Backend, Compute]:
    """The backend and its function, or the eager one with a warning added to `warnings`."""
    if blocks.are_onnx:
        return Backend.ONNX_RUNTIME, onnx_runtime(requested, blocks, device, warnings)
    if requested is Backend.ONNX_RUNTIME:
        warnings.append("OnnxRuntime computes models of .onnx files only, so the stage runs eagerly")
    if requested in _BUILDERS:
        try:
            return requested, _BUILDERS[requested](blocks, entry)
        except CannotBuildError as error:
            warnings.append(f"{requested} cannot build the stage, so it runs eagerly: {error}")
    return Backend.EAGER, eager(blocks)


def _stage_of_model(build: StageBuild) -> PartitionedModel:
    """The model with this stage's blocks only. Raises ModelError."""
    model = partition_source(build.model, build.takes, build.blocks, content=build.content)
    if build.partition not in (None, model.digest):
        raise ModelError(
            ModelErrorReason.PARTITION_CHANGED,
            f"the model is cut as {model.digest} here, but as {build.partition} in its profile: the model or a library "
            "has changed since; delete the profile's ConfigMap to profile and plan again",
        )
    model = model.keep(build.first, len(model.blocks) if build.end is None else build.end)
    gc.collect()  # graphs are reference cycles, which would keep the weights of other blocks
    return model
