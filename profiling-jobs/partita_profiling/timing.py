"""Measures the execution times of a model's blocks."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from partita_api.profile import ProfileRequest, VgpuLatency
from partita_api.session.execution import Backend, CutDType
from partita_runtime.execution.process_settings import settle_process
from partita_runtime.execution.torch_build import pick_backend
from partita_runtime.execution.torch_stage import Boundary, Compute, StageBlocks, stage_boundaries
from partita_runtime.models.partitioned_model import PartitionedModel
from partita_runtime.models.standard_inputs import standard_inputs

Progress = Callable[[str], None]
"""Receives one line of progress."""

LEAST_REPEATS: Final = 3
ENOUGH_REPEATS: Final = 10
MOST_REPEATS: Final = 50
MOST_SECONDS: Final = 2.0
"""How long a block is timed at one batch size, unless LEAST_REPEATS take longer."""
STEADY_SPREAD: Final = 0.02
"""With ENOUGH_REPEATS and a spread below this, the measurement stops."""


@dataclass(frozen=True)
class Timing:
    """The result of repeated measurements."""

    median_micros: float
    spread: float
    """Interquartile range divided by the median."""
    repeats: int


def time_repeatedly(measure: Callable[[], float], seconds: float) -> Timing:
    """Call `measure`, which returns microseconds, once to warm up and then until its times are steady.

    Stops after about `seconds`, but not before LEAST_REPEATS.
    """
    end = time.perf_counter() + seconds
    measure()
    times: list[float] = []
    while len(times) < LEAST_REPEATS or (
        time.perf_counter() < end
        and len(times) < MOST_REPEATS
        and not (len(times) >= ENOUGH_REPEATS and spread(times) < STEADY_SPREAD)
    ):
        times.append(measure())
    return Timing(statistics.median(times), spread(times), len(times))


def spread(times: Sequence[float]) -> float:
    """Interquartile range divided by the median; 0 for fewer than two times, or a median of 0."""
    median = statistics.median(times)
    if len(times) < 2 or not median:
        return 0.0
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / median


class BlockTimer:
    """Times the blocks of a model on one device, as a replica with one CPU thread runs them."""

    def __init__(self, model: PartitionedModel, request: ProfileRequest, device: torch.device) -> None:
        """Move `model` to `device`; blocks that the backend cannot compile run eagerly, with an entry in `warnings`."""
        settle_process(threads=1)
        model = model.to(device)
        warnings: list[str] = []
        self._request = request
        # ONNX Runtime returns when its result is in the memory of the host, so a clock of the host measures it.
        self._on_gpu = device.type == "cuda" and not model.is_onnx
        self._count = len(model.blocks)
        # In full precision: the conversion to half precision is part of the transfer, not of a block.
        ends = [stage_boundaries(model, b, b + 1, request.takes, CutDType.FP32, device) for b in range(self._count)]
        self._entry: Boundary = ends[0][0]
        self._exit: Boundary = ends[-1][1]
        self._computes: list[Compute] = [
            pick_backend(Backend(request.backend), StageBlocks([model.block(b)]), entry, device, warnings)[1]
            for b, (entry, _) in enumerate(ends)
        ]
        self.warnings = tuple(dict.fromkeys(warnings))  # most blocks have the same

    def run_all(self, batch: int) -> None:
        """One run of the whole model on the standard input."""
        for call in self._calls(batch):
            call()

    def time_all(self, seconds: float, progress: Progress) -> VgpuLatency:
        """Every block at every batch size of the request, under divisor 1.

        The time of the first block includes the copy from host memory, that of the last one the copy back. Takes about
        `seconds`, or longer if LEAST_REPEATS of all measurements take longer.
        """
        end = time.perf_counter() + seconds
        sizes = self._request.batch_sizes
        cells_left = self._count * len(sizes)
        columns: list[list[Timing]] = []
        for size in sizes:
            column = []
            for call in self._calls(size):
                share = min(MOST_SECONDS, (end - time.perf_counter()) / cells_left)
                column.append(time_repeatedly(partial(self._micros, call), share))
                cells_left -= 1
            columns.append(column)
            progress(f"batch size {size}: {sum(t.median_micros for t in column) / 1000:.3f} ms")
        rows = list(zip(*columns, strict=True))
        return VgpuLatency(
            divisor=1,
            median_micros=tuple(tuple(round(timing.median_micros, 3) for timing in row) for row in rows),
            spread=tuple(tuple(round(timing.spread, 4) for timing in row) for row in rows),
        )

    def _calls(self, batch: int) -> Iterator[Callable[[], None]]:
        """One call per block, on the outputs of the blocks before it for the standard input."""
        arrays = standard_inputs(self._request.takes, batch)
        with torch.inference_mode():
            tensors: Sequence[torch.Tensor] = self._entry.to_device(arrays)
        for block, compute in enumerate(self._computes):

            def call(block: int = block, compute: Compute = compute, tensors: Sequence[torch.Tensor] = tensors) -> None:
                with torch.inference_mode():
                    answer = compute(self._entry.to_device(arrays) if block == 0 else tensors)
                    if block == self._count - 1:
                        self._exit.to_host(answer)

            yield call
            if block < self._count - 1:
                with torch.inference_mode():
                    tensors = compute(tensors)

    def _micros(self, call: Callable[[], None]) -> float:
        if self._on_gpu:
            return _cuda_micros(call)
        if self._request.slowdown is not None:
            # CPU time instead of elapsed time: shared cores do not slow the emulated class down further.
            worked = time.thread_time_ns()
            call()
            return self._request.slowdown * (time.thread_time_ns() - worked) / 1000
        started = time.perf_counter_ns()
        call()
        return (time.perf_counter_ns() - started) / 1000


def _cuda_micros(call: Callable[[], None]) -> float:
    """Time on the device, from the first operation to the last."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000
