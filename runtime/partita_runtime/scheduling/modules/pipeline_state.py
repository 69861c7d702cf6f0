"""The state of pipelines: their worker pools, and their latencies corrected by feedback."""

from collections import Counter
from collections.abc import Mapping
from math import sqrt
from typing import Final

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import ScheduledPipeline, ScheduledStage
from partita_runtime.scheduling.workers.correction import LatencyCorrection
from partita_runtime.scheduling.workers.pools import WorkerPool

DEVIATIONS: Final = 3
"""Standard deviations kept free before a deadline: about 99 % of batches meet it if times are normally distributed."""


class StageState:
    """One stage: its workers and its latencies."""

    __slots__ = ("correction", "latency", "pool", "ref", "spec")

    def __init__(self, ref: StageRef, spec: ScheduledStage) -> None:
        self.ref = ref
        self.spec = spec
        self.pool = WorkerPool()
        self.correction = LatencyCorrection()
        self.latency: list[int] = []
        """Microseconds reserved for a batch of b at index b - 1."""
        self.correct()

    def hand_over(self, successor: "StageState | None") -> None:
        """Remove all workers; they join the successor in the new plan if it runs the same blocks on the same vGPUs."""
        workers = list(self.pool)
        for worker in workers:
            self.pool.leave(worker)
        if successor is not None and _work(self.spec) == _work(successor.spec):
            successor.correction = self.correction
            successor.correct()
            for worker in workers:
                successor.pool.join(worker)

    def correct(self) -> None:
        """Recompute `latency` from the profile and the correction."""
        factor = self.correction.factor
        self.latency = [max(1, round(micros * factor)) for micros in self.spec.latency_micros]


class PipelineCounters:
    """How the batches of one pipeline ended."""

    __slots__ = ("batch_sizes", "in_time", "late")

    def __init__(self) -> None:
        self.batch_sizes: Counter[int] = Counter()
        self.in_time = 0
        self.late = 0


class PipelineState:
    """One pooled pipeline of one module."""

    __slots__ = (
        "_ctrl_micros",
        "_per_request_micros",
        "batch_size",
        "counters",
        "margin",
        "name",
        "stages",
        "total",
        "transfer",
    )

    def __init__(self, module: str, spec: ScheduledPipeline, bandwidth: Mapping[str, float]) -> None:
        self.name = spec.name
        self.batch_size = spec.batch_size
        self.stages = tuple(StageState(StageRef(module, spec.name, i), stage) for i, stage in enumerate(spec.stages))
        self.transfer = [transfer_micros(spec, k, bandwidth) for k in range(len(self.stages) - 1)]
        """Microseconds from stage k to stage k + 1 for a batch of b, at [k][b - 1]."""
        self.counters = PipelineCounters()
        self._ctrl_micros = 0
        self._per_request_micros = 0
        self.total: list[int] = []
        """Microseconds from dispatch to answer for a batch of b without waiting, with `margin`, at index b - 1."""
        self.margin: list[int] = []
        """Microseconds kept free for executions of a batch of b that take longer than expected, at index b - 1."""
        self.sum_up()

    @property
    def eligible(self) -> bool:
        """Whether every stage has a worker."""
        for stage in self.stages:  # noqa: SIM110  a generator is slower
            if not stage.pool.size:
                return False
        return True

    def delay(self, batch_size: int) -> int:
        """Microseconds from dispatch until the first stage can start (Symphony, Figure 18)."""
        return self._ctrl_micros + self._per_request_micros * batch_size

    def set_delays(self, ctrl_micros: int, per_request_micros: int) -> None:
        """Change the delay from dispatch until the first stage can start."""
        self._ctrl_micros = ctrl_micros
        self._per_request_micros = per_request_micros
        self.sum_up()

    def sum_up(self) -> None:
        """Recompute `margin` and `total` from the latencies and the delays."""
        self.margin = [self._margin(b) for b in range(1, self.batch_size + 1)]
        self.total = [
            self.delay(b)
            + self.margin[b - 1]
            + sum(stage.latency[b - 1] for stage in self.stages)
            + sum(transfer[b - 1] for transfer in self.transfer)
            for b in range(1, self.batch_size + 1)
        ]

    def _margin(self, batch_size: int) -> int:
        """The execution times of stages are independent, so their variances add up."""
        variance = 0.0
        for stage in self.stages:
            variance += (stage.correction.spread * stage.spec.latency_micros[batch_size - 1]) ** 2
        return round(DEVIATIONS * sqrt(variance))

    def observe(self, stage: int, batch_size: int, actual: int) -> None:
        """Add the measured time of one execution (microseconds)."""
        executed = self.stages[stage]
        if executed.correction.observe(executed.spec.latency_micros[batch_size - 1], actual):
            executed.correct()
            self.sum_up()

    def doubt_correction(self, micros: int) -> None:
        """Move corrections towards the profile if one request takes at most `micros` only without them."""
        profiled = (
            self.total[0]
            - self.margin[0]
            - sum(stage.latency[0] - stage.spec.latency_micros[0] for stage in self.stages)
        )
        if profiled <= micros < self.total[0]:
            for stage in self.stages:
                if stage.correction.doubt():
                    stage.correct()
            self.sum_up()

    def throughput(self) -> float:
        """Requests per microsecond at the planned batch size with the present workers."""
        b = self.batch_size
        return min(len(stage.pool) * b / stage.latency[b - 1] for stage in self.stages)


def _work(stage: ScheduledStage) -> tuple[str, int, int, int]:
    """What the workers of a stage are built for: stages with equal values can share workers."""
    return stage.pool, stage.first_block, stage.end_block, stage.vgpu_divisor


def transfer_micros(spec: ScheduledPipeline, before: int, bandwidth: Mapping[str, float]) -> list[int]:
    """Microseconds to move a batch of b from stage `before` to the next one, at index b - 1.

    The slower network of the two pools counts.
    """
    pools = spec.stages[before].pool, spec.stages[before + 1].pool
    speeds = [bandwidth[pool] for pool in pools if pool in bandwidth]
    bits = 8 * spec.stages[before].output_bytes
    return [round(bits * b / min(speeds) * 1e6) if speeds else 0 for b in range(1, spec.batch_size + 1)]
