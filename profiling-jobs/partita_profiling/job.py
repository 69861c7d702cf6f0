"""One profiling run, from a request to its Profile."""

from datetime import datetime

import torch

from partita_api.profile import MOST_TEXT, Profile, ProfileRequest, VgpuLatency
from partita_profiling.answer_check import check_answer
from partita_profiling.cuts import cut
from partita_profiling.emulation import emulated_latency
from partita_profiling.memory import block_memory
from partita_profiling.timing import BlockTimer, Progress
from partita_profiling.vgpu import shares_gpus, time_divided
from partita_runtime.execution.stage_build import Device
from partita_runtime.execution.torch_build import pick_device
from partita_runtime.models.onnx.module import runtime_version
from partita_runtime.models.partitioned_model import PartitionedModel, partition
from partita_runtime.models.source import load_source


def run(request: ProfileRequest, progress: Progress, *, now: datetime, seconds: float) -> Profile:
    """Load the model, cut it, check it, time it (or use emulated times), and return its Profile.

    seconds: about how long the timing of each vGPU divisor may take. Warnings go to `progress` and into the profile's
    environment. Raises ModelError, or VgpuError if the process of another vGPU ends.
    """
    source = request.model
    model_of, weights = source.entrypoint or source.file or source.hugging_face, source.weights
    progress(f"loading {model_of}" + (f" with {weights}" if weights else ""))
    loaded = load_source(source, progress=progress)
    whole = loaded.model
    model = partition(whole, request.takes, request.blocks)
    progress(f"cut into {len(model.blocks)} blocks, partition {model.digest}")
    warnings = [*model.warnings, *check_answer(whole, model, request.takes, max(request.batch_sizes))]
    memory = block_memory(model, request.takes)
    device = _device(request, model, warnings)
    if request.curve is not None:
        latency = _emulated(model, request, request.curve)
    else:
        latency = _measured(model, request, device, seconds, progress, warnings)
    for warning in warnings:
        progress(f"warning: {warning}")
    return Profile(
        key=request.key,
        request=request,
        partition=model.digest,
        content=loaded.content,
        batch_sizes=request.batch_sizes,
        latency=latency,
        cuts=tuple(cut(tensors) for tensors in model.cuts),
        memory=memory,
        outputs=model.outputs,
        output_names=model.output_names,
        vocabularies=model.vocabularies if any(model.vocabularies) else (),
        environment={
            "device": "emulated" if request.curve else _device_name(device),
            "torch": torch.__version__,
            **({"onnxruntime": runtime_version()} if model.is_onnx else {}),
            "date": now.isoformat(timespec="seconds"),
            "warnings": "\n".join(warnings)[:MOST_TEXT],
        },
    )


def _device(request: ProfileRequest, model: PartitionedModel, warnings: list[str]) -> torch.device:
    """The GPU if there is one; emulated and slowed-down classes use the CPU."""
    emulated = request.curve is not None or request.slowdown is not None
    if emulated or not torch.cuda.is_available():
        return torch.device("cpu")
    return pick_device(Device.CUDA, model, warnings)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu, one thread"


def _emulated(model: PartitionedModel, request: ProfileRequest, curve: tuple[int, int]) -> tuple[VgpuLatency, ...]:
    shares = [work.seconds for work in model.work]
    return tuple(emulated_latency(curve, shares, request.batch_sizes, divisor) for divisor in request.divisors)


def _measured(
    model: PartitionedModel,
    request: ProfileRequest,
    device: torch.device,
    seconds: float,
    progress: Progress,
    warnings: list[str],
) -> tuple[VgpuLatency, ...]:
    """Times on whole accelerators, then on parts of them if MPS runs."""
    timer = BlockTimer(model, request, device)
    latency = timer.time_all(seconds, progress)
    warnings.extend(timer.warnings)
    divisors = [divisor for divisor in request.divisors if divisor > 1]
    if divisors and not (device.type == "cuda" and shares_gpus()):
        warnings.append(
            "only whole accelerators were timed: vGPUs need a GPU with a reachable MPS control daemon "
            "(nvidia-cuda-mps-control, and its pipe directory mounted)"
        )
        divisors = []
    return (
        latency,
        *(time_divided(request, d, device=device.type, seconds=seconds, progress=progress) for d in divisors),
    )
