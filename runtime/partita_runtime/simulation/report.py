"""The results of a simulation."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from partita_runtime.scheduling.events import Dispatch, DropReason
from partita_runtime.simulation.emulation.executions import BatchExecution


class ScalingStep(NamedTuple):
    """One window of the autoscaler, with its decision."""

    at_seconds: float
    """The end of the window."""
    gpus: Mapping[str, int]
    """Whole accelerators in use from then on, by pool, including those of starting replicas."""
    ready: int
    """Replicas that accepted batches."""
    offered_rate: float
    """Requests per second that arrived at all modules together."""
    bad_rate: float
    """Share of the requests that ended in the window that were dropped or late, over all modules."""
    idle_fraction: float
    """Share of the GPU time without a batch."""
    reason: str
    """Why replicas changed, or did not."""


class LoadPoint(NamedTuple):
    """The goodput at one offered load, both in requests per second."""

    offered: float
    goodput: float


@dataclass(frozen=True)
class SimulationReport:
    """Requests are counted end to end: one is in time if all of its sub-requests were answered before its deadline."""

    seconds: float
    """How long requests arrived; the simulation ran until all had ended."""
    seed: int
    offered: int
    in_time: int
    late: int
    dropped: Mapping[DropReason, int]
    p50_ms: float
    """Latency of answered requests; 0 if there were none."""
    p99_ms: float
    idle_by_pool: Mapping[str, float]
    """Share of the workers' time without a batch while requests arrived, by GPUPool."""
    idle_by_worker: Mapping[str, float]
    batch_sizes: Mapping[str, Mapping[int, int]]
    """Batches by their size, by "module/pipeline"."""
    timeline: tuple[BatchExecution, ...] = ()
    """All executions, if the timeline was requested."""
    held: int = 0
    """Requests held while the session was scaled to zero; their latency begins when they are admitted."""
    held_seconds: float = 0.0
    """Total time of holding these requests."""
    scaling: tuple[ScalingStep, ...] = ()
    """The steps of the autoscaler, if it was simulated: the start, then each of its windows."""

    @property
    def attainment(self) -> float:
        """Share of the offered requests that were answered in time; 1 if there were none."""
        return self.in_time / self.offered if self.offered else 1.0

    @property
    def goodput(self) -> float:
        """Requests per second that were answered in time."""
        return self.in_time / self.seconds

    @property
    def mean_gpus(self) -> dict[str, float]:
        """Accelerators in use on average while requests arrived, by pool; empty without the autoscaler."""
        ends = [*(step.at_seconds for step in self.scaling[1:]), self.seconds]
        held = [(step.gpus, end - step.at_seconds) for step, end in zip(self.scaling, ends, strict=False)]
        pools = dict.fromkeys(pool for gpus, _ in held for pool in gpus)
        return {pool: sum(gpus.get(pool, 0) * time for gpus, time in held) / self.seconds for pool in pools}

    def to_json(self) -> dict[str, Any]:
        """The whole report as a JSON object."""
        document = asdict(self)
        document["timeline"] = [execution._asdict() for execution in self.timeline]
        document["scaling"] = [step._asdict() for step in self.scaling]
        return {**document, "attainment": self.attainment, "goodput": self.goodput}

    def rows(self) -> list[tuple[str, str]]:
        """Names and values of the main figures, for a table."""
        return [
            ("offered", f"{self.offered / self.seconds:.1f} requests/s for {self.seconds:g} s"),
            ("goodput", f"{self.goodput:.1f} requests/s"),
            ("attainment", f"{self.attainment:.2%}"),
            ("latency p50", f"{self.p50_ms:.1f} ms"),
            ("latency p99", f"{self.p99_ms:.1f} ms"),
            ("late", str(self.late)),
            *((("held", f"{self.held}, for {self.held_seconds / self.held:.1f} s on average"),) if self.held else ()),
            *((f"dropped: {reason}", str(count)) for reason, count in sorted(self.dropped.items())),
            *((f"idle: {pool}", f"{idle:.1%}") for pool, idle in sorted(self.idle_by_pool.items())),
            *((f"GPUs held: {pool}", self._held(pool, mean)) for pool, mean in sorted(self.mean_gpus.items())),
            *((f"mean batch: {name}", f"{_mean(sizes):.1f}") for name, sizes in sorted(self.batch_sizes.items())),
        ]

    def _held(self, pool: str, mean: float) -> str:
        counts = [step.gpus.get(pool, 0) for step in self.scaling]
        return f"{mean:.1f} on average, {min(counts)} to {max(counts)}"


class Tally:
    """Counters of a running simulation."""

    def __init__(self) -> None:
        self.offered = 0
        self.in_time = 0
        self.late = 0
        self.dropped: Counter[DropReason] = Counter()
        self.latencies: list[int] = []
        self.batch_sizes: dict[str, Counter[int]] = {}

    @classmethod
    def of(cls, latencies: NDArray[np.int64], slo: int) -> Self:
        """Requests that were answered with these latencies (microseconds)."""
        tally = cls()
        tally.latencies = latencies.tolist()
        tally.in_time = int((latencies <= slo).sum())
        tally.late = latencies.size - tally.in_time
        return tally

    def answered(self, latency: int, slo: int) -> None:
        """One request was answered after `latency` microseconds."""
        self.latencies.append(latency)
        if latency <= slo:
            self.in_time += 1
        else:
            self.late += 1

    def count_batch(self, dispatch: Dispatch) -> None:
        """One batch was answered."""
        name = f"{dispatch.module}/{dispatch.pipeline}"
        sizes = self.batch_sizes.get(name)
        if sizes is None:
            sizes = self.batch_sizes[name] = Counter()
        sizes[len(dispatch.request_ids)] += 1

    def percentile_ms(self, percent: float) -> float:
        """A percentile of the latencies in milliseconds."""
        return float(np.percentile(self.latencies, percent)) / 1000 if self.latencies else 0.0


def _mean(sizes: Mapping[int, int]) -> float:
    batches = sum(sizes.values())
    return sum(size * count for size, count in sizes.items()) / batches if batches else 0.0
