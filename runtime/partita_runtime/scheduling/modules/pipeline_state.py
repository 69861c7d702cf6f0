"""The state of pipelines: their worker pools, and their latencies corrected by feedback."""

from collections import Counter
from collections.abc import Mapping
from math import sqrt
from typing import Final

from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import ScheduledPipeline, ScheduledStage
from partita_runtime.scheduling.workers.correction import LatencyCorrection
from partita_runtime.scheduling.workers.link_estimate import LinkEstimate
from partita_runtime.scheduling.workers.pools import WorkerPool

DEVIATIONS: Final = 3
"""Standard deviations kept free before a deadline: about 99 % of batches meet it if times are normally distributed."""


class StageState:
    """One stage: its workers, its latencies, and the transfers to it."""

    __slots__ = ("correction", "input_bytes", "latency", "link", "pool", "ref", "spec", "transfer")

    def __init__(self, ref: StageRef, spec: ScheduledStage, input_bytes: int, link: LinkEstimate) -> None:
        """`input_bytes` of each sample come over `link` from the stage before; 0 for the first stage."""
        self.ref = ref
        self.spec = spec
        self.input_bytes = input_bytes
        self.link = link
        self.pool = WorkerPool()
        self.correction = LatencyCorrection()
        self.latency: list[int] = []
        """Microseconds reserved for a batch of b at index b - 1."""
        self.transfer: list[int] = []
        """Microseconds reserved for the transfer of a batch of b from another node, at index b - 1."""
        self.correct()

    def hand_over(self, successor: "StageState | None") -> None:
        """Remove all workers; they join the successor in the new plan if it runs the same blocks on the same vGPUs."""
        workers = list(self.pool)
        for worker in workers:
            self.pool.leave(worker)
        if successor is not None and _work(self.spec) == _work(successor.spec):
            successor.correction = self.correction
            if successor.link.declared == self.link.declared:
                successor.link = self.link
            successor.correct()
            for worker in workers:
                successor.pool.join(worker)

    def correct(self) -> None:
        """Recompute `latency` and `transfer` from the profile, the link and their corrections."""
        factor = self.correction.factor
        self.latency = [max(1, round(micros * factor)) for micros in self.spec.latency_micros]
        sizes = range(1, len(self.latency) + 1)
        self.transfer = [self.link.micros(self.input_bytes * b) if self.input_bytes else 0 for b in sizes]

    def corrected_micros(self) -> int:
        """How much longer one request takes than profiled and declared (microseconds)."""
        declared = round(self.input_bytes * self.link.declared)
        return self.latency[0] - self.spec.latency_micros[0] + self.transfer[0] - declared


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
    )

    def __init__(self, module: str, spec: ScheduledPipeline, bandwidth: Mapping[str, float]) -> None:
        self.name = spec.name
        self.batch_size = spec.batch_size
        self.stages = tuple(
            StageState(
                StageRef(module, spec.name, number),
                stage,
                spec.stages[number - 1].output_bytes if number else 0,
                LinkEstimate(micros_per_byte(spec, number - 1, bandwidth) if number else 0.0),
            )
            for number, stage in enumerate(spec.stages)
        )
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
            + sum(stage.latency[b - 1] + stage.transfer[b - 1] for stage in self.stages)
            for b in range(1, self.batch_size + 1)
        ]

    def _margin(self, batch_size: int) -> int:
        """The times of executions and transfers are independent, so their variances add up."""
        variance = 0.0
        for stage in self.stages:
            variance += (stage.correction.spread * stage.spec.latency_micros[batch_size - 1]) ** 2
            variance += (stage.link.spread * stage.transfer[batch_size - 1]) ** 2
        return round(DEVIATIONS * sqrt(variance))

    def observe(self, stage: int, batch_size: int, actual: int) -> None:
        """Add the measured time of one execution (microseconds)."""
        executed = self.stages[stage]
        if executed.correction.observe(executed.spec.latency_micros[batch_size - 1], actual):
            executed.correct()
            self.sum_up()

    def observe_transfer(self, stage: int, batch_size: int, least: int, most: int) -> None:
        """Add one transfer to a stage, which took between `least` and `most` (microseconds)."""
        receiver = self.stages[stage]
        if receiver.link.observe(receiver.input_bytes * batch_size, least, most):
            receiver.correct()
            self.sum_up()

    def doubt_correction(self, micros: int) -> None:
        """Move corrections towards profile and declaration if they alone prevent a request that has `micros` in all."""
        expected = self.total[0] - self.margin[0]
        profiled = expected - sum(stage.corrected_micros() for stage in self.stages)
        if profiled <= micros < self.total[0]:
            for stage in self.stages:
                execution, transfer = stage.correction.doubt(), stage.link.doubt(spread_only=expected <= micros)
                if execution or transfer:
                    stage.correct()
            self.sum_up()

    def throughput(self) -> float:
        """Requests per microsecond at the planned batch size with the present workers."""
        b = self.batch_size
        return min(len(stage.pool) * b / stage.latency[b - 1] for stage in self.stages)


def _work(stage: ScheduledStage) -> tuple[str, int, int, int]:
    """What the workers of a stage are built for: stages with equal values can share workers."""
    return stage.pool, stage.first_block, stage.end_block, stage.vgpu_divisor


def micros_per_byte(spec: ScheduledPipeline, before: int, bandwidth: Mapping[str, float]) -> float:
    """Microseconds for each byte from stage `before` to the next one; 0 if the bandwidth of neither pool is declared.

    The slower network of the two pools counts.
    """
    pools = spec.stages[before].pool, spec.stages[before + 1].pool
    speeds = [bandwidth[pool] for pool in pools if pool in bandwidth]
    return 8e6 / min(speeds) if speeds else 0.0


def transfer_micros(spec: ScheduledPipeline, before: int, bandwidth: Mapping[str, float]) -> list[int]:
    """Microseconds to move a batch of b from stage `before` to the next one as declared, at index b - 1."""
    size, micros = spec.stages[before].output_bytes, micros_per_byte(spec, before, bandwidth)
    return [round(size * b * micros) for b in range(1, spec.batch_size + 1)]
