"""Times on a part of a GPU while the other parts are busy.

CUDA's Multi-Process Service gives each process a percentage of a GPU's threads, fixed when the process first uses the
GPU. So each vGPU is one process: one process times the model while the others run it in a loop.
`python -m partita_profiling.vgpu` is such a process.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Final

import torch

from partita_api.meta import SpecModel
from partita_api.profile import ProfileRequest, VgpuLatency
from partita_profiling.isolation import end_with_parent
from partita_profiling.timing import BlockTimer, Progress
from partita_runtime.models.partitioned_model import partition_source

READY: Final = "ready"
GO: Final = "go"
LATENCY_PREFIX: Final = "latency "
PIPE_DIRECTORY_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"


class Role(StrEnum):
    """The role of a process."""

    TIME = "Time"
    LOAD = "Load"


class VgpuTask(SpecModel):
    """The task of one process: the first line of its standard input."""

    role: Role
    request: ProfileRequest
    device: str
    seconds: float


class VgpuError(Exception):
    """The process of a vGPU ended; the message contains its last line."""


def shares_gpus() -> bool:
    """Whether there is a GPU and the MPS control daemon runs."""
    directory = Path(os.environ.get(PIPE_DIRECTORY_VARIABLE, "/tmp/nvidia-mps"))
    return torch.cuda.is_available() and (directory / "control").exists()


def time_divided(
    request: ProfileRequest, divisor: int, *, device: str, seconds: float, progress: Progress
) -> VgpuLatency:
    """Times on one of `divisor` equal vGPUs while the others run the same model. Raises VgpuError."""
    task = VgpuTask(role=Role.TIME, request=request, device=device, seconds=seconds)
    with ExitStack() as processes:
        started = [
            processes.enter_context(_process(task.model_copy(update={"role": role}), divisor))
            for role in (Role.TIME, *[Role.LOAD] * (divisor - 1))
        ]
        for process in started:
            _expect(process, READY)
        for process in started:
            _send(process, GO)
        progress(f"timing {divisor} vGPUs of 1/{divisor} at the same time")
        latency = VgpuLatency.model_validate_json(_expect(started[0], LATENCY_PREFIX))
    return latency.model_copy(update={"divisor": divisor})


@contextmanager
def _process(task: VgpuTask, divisor: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "partita_profiling.vgpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(100 // divisor)},
    )
    try:
        _send(process, task.model_dump_json())
        yield process
    finally:
        process.kill()
        process.communicate()


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _expect(process: subprocess.Popen[str], prefix: str) -> str:
    """The next line that begins with `prefix`, without the prefix."""
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        if line.startswith(prefix):
            return line.removeprefix(prefix)
        last = line
    raise VgpuError(f"the process of a vGPU ended with status {process.wait()}; its last line: {last!r}")


def main() -> None:
    """Run the task of the first line of standard input after the second line arrives."""
    end_with_parent()
    task = VgpuTask.model_validate_json(sys.stdin.readline())
    model = partition_source(task.request.model, task.request.takes, task.request.blocks)
    timer = BlockTimer(model, task.request, torch.device(task.device))
    timer.run_all(task.request.batch_sizes[-1])
    print(READY, flush=True)
    sys.stdin.readline()
    if task.role is Role.TIME:
        print(LATENCY_PREFIX + timer.time_all(task.seconds, lambda _: None).model_dump_json(), flush=True)
        return
    while True:  # until the parent ends this process
        timer.run_all(task.request.batch_sizes[-1])


if __name__ == "__main__":
    main()
