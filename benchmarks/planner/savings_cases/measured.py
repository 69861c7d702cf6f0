"""What the blocks of an example's models take on this machine's CPU, and their arithmetic and memory traffic."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import torch
from pydantic import BaseModel

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import with_size_classes
from partita_api.profile import Profile, ProfileRequest
from partita_profiling.job import run
from partita_runtime.models.layers import NOMINAL_BATCH, Work
from partita_runtime.models.partitioned_model import partition_source

_SIDE: Final = 1024
"""Rows of the matrices whose product gives the speed of the CPU's arithmetic."""
_COPIED_BYTES: Final = 1 << 28
_M = TypeVar("_M", bound=BaseModel)


class CpuSpeed(BaseModel, frozen=True):
    """The speed of one thread."""

    flops_per_second: float
    bytes_per_second: float

    @classmethod
    def measured(cls) -> "CpuSpeed":
        """A product of matrices, and a copy that no cache holds."""
        torch.set_num_threads(1)
        left, right = torch.rand(2, _SIDE, _SIDE)
        source = torch.zeros(_COPIED_BYTES // 4)
        target = torch.zeros_like(source)
        return cls(
            flops_per_second=2 * _SIDE**3 / _least_seconds(lambda: left @ right),
            bytes_per_second=2 * _COPIED_BYTES / _least_seconds(lambda: target.copy_(source)),
        )


class BlockWork(BaseModel, frozen=True):
    """What one block computes and moves for a batch, apart from how fast that is."""

    flops: float
    """Of one sample."""
    weights_bytes: float
    """Read once for a batch."""
    activation_bytes: float
    """Read and written for one sample."""
    kernels: int

    @classmethod
    def of(cls, work: Work, weights_bytes: int) -> "BlockWork":
        """From the estimate for the nominal batch."""
        read = min(weights_bytes, work.traffic_bytes)  # an embedding reads few of its rows
        return cls(
            flops=work.flops / NOMINAL_BATCH,
            weights_bytes=read,
            activation_bytes=(work.traffic_bytes - read) / NOMINAL_BATCH,
            kernels=work.kernels,
        )

    def seconds(self, batch: int, flops_per_second: float, bytes_per_second: float) -> float:
        """The least time of a batch (the roofline model), without the start of kernels."""
        moved = self.weights_bytes + batch * self.activation_bytes
        return max(batch * self.flops / flops_per_second, moved / bytes_per_second)


class MeasuredModel(BaseModel, frozen=True):
    """One model on one thread of the CPU."""

    profile: Profile
    work: tuple[BlockWork, ...]

    def with_kernels(self, kernels: int) -> "MeasuredModel":
        """The same model with so many more kernels in its last block."""
        last = self.work[-1].model_copy(update={"kernels": self.work[-1].kernels + kernels})
        return self.model_copy(update={"work": (*self.work[:-1], last)})


def measured_models(
    spec: InferenceSessionSpec, batch: int, blocks: int, seconds: float, cache: Path
) -> dict[str, MeasuredModel]:
    """By module, with a module for each size class; what is in the folder `cache` is not measured again."""
    found = {}
    for module in with_size_classes(spec).modules:
        if module.model is not None:
            request = ProfileRequest(
                model=module.model,
                input=module.input,
                inputs=module.inputs,
                blocks=blocks,
                batch_sizes=(batch,),
                pool="cpu",
                slowdown=1.0,  # CPU time, which other processes do not change
            )
            found[module.name] = _kept(
                cache / f"{request.key}.json", MeasuredModel, lambda request=request: _measured(request, seconds)
            )
    return found


def cpu_speed(cache: Path) -> CpuSpeed:
    """The speed of this machine's CPU, from the folder `cache` if it is there."""
    return _kept(cache / "cpu.json", CpuSpeed, CpuSpeed.measured)


def _kept(file: Path, kind: type[_M], measure: Callable[[], _M]) -> _M:
    if file.exists():
        return kind.model_validate_json(file.read_text())
    file.parent.mkdir(parents=True, exist_ok=True)
    measured = measure()
    file.write_text(measured.model_dump_json(by_alias=True))
    return measured


def _measured(request: ProfileRequest, seconds: float) -> MeasuredModel:
    profile = run(request, _say, now=datetime.now(UTC), seconds=seconds)
    estimated = partition_source(request.model, request.takes, request.blocks).work
    work = [BlockWork.of(work, kept.weights_bytes) for work, kept in zip(estimated, profile.memory, strict=True)]
    return MeasuredModel(profile=profile, work=tuple(work))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _least_seconds(call: Callable[[], object]) -> float:
    """The CPU time of the fastest of a few calls."""
    taken = []
    for _ in range(6):
        started = time.thread_time()
        call()
        taken.append(time.thread_time() - started)
    return min(taken)
