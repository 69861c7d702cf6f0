"""Key figures of a result. Pure."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from partita_api.inferencesession import ObjectiveType
from partita_api.pipelineplan import Alternative, PipelinePlanSpec, Stage
from partita_devtools.demo.result import DemoResult, ReadPicture, SignalSample
from partita_runtime.serving.telemetry.signals import SessionStageSignals

WITHOUT_PARTITIONING: Final = "no-partitioning"
"""The planning strategy that does not partition models."""
MOST_UNLIKE: Final = 0.01
"""The largest share of characters that may be read otherwise than by the example's package."""
SLOWER: Final = 1.1
"""Factor from which a stage counts as slower than its profile."""


@dataclass(frozen=True)
class Comparison:
    """The plan compared with the best one without partitioning."""

    value: float
    """Price per hour, or requests per second: the plan's objective."""
    whole: Alternative | None
    """None if it was not computed."""

    @property
    def whole_value(self) -> float | None:
        """The objective without partitioning; None if there is no such plan, or none was computed."""
        if self.whole is None or not self.whole.feasible or self.whole.value is None:
            return None
        return float(self.whole.value)

    @property
    def ratio(self) -> float | None:
        """The plan's objective as a share of that without partitioning."""
        return self.value / self.whole_value if self.whole_value else None


def comparison(plan: PipelinePlanSpec) -> Comparison:
    """The plan's objective compared with that of whole models."""
    whole = next((a for a in plan.alternatives if a.strategy == WITHOUT_PARTITIONING), None)
    return Comparison(float(plan.solution.value), whole)


def achievement(plan: PipelinePlanSpec) -> str:
    """The plan's objective, in words."""
    match plan.solution.objective:
        case ObjectiveType.COST:
            return f"costs {float(plan.cost.allocated_per_hour):.2f} an hour"
        case ObjectiveType.POWER:
            return f"draws {float(plan.solution.value):.0f} W"
        case _:
            return f"serves {plan.throughput} requests/s"


def comparison_sentence(plan: PipelinePlanSpec) -> str:
    """The comparison, in words."""
    found = comparison(plan)
    if found.whole is None:
        return "no plan without partitioning was computed"
    if found.whole_value is None or found.ratio is None:
        return "without partitioning there is no plan at all"
    change = abs(1 - found.ratio)
    kind = plan.solution.objective
    digits = 2 if kind is ObjectiveType.COST else 0
    without = f"{found.whole_value:.{digits}f} {kind.unit} without partitioning"
    word = "more" if found.ratio > 1 else "less"
    return f"the same as {without}" if change < 0.0005 else f"{change:.0%} {word} than {without}"


def unlike_package(pictures: Sequence[ReadPicture]) -> str:
    """How many characters of all pictures are read otherwise than by the package, in words."""
    different, characters = (
        sum(getattr(picture, name) for picture in pictures) for name in ("different", "characters")
    )
    return f"{different} of {characters} characters differ ({different / max(1, characters):.2%})"


def reads_like_package(pictures: Sequence[ReadPicture]) -> bool:
    """Whether at most MOST_UNLIKE of all characters are read otherwise than by the package."""
    characters = sum(picture.characters for picture in pictures)
    return sum(picture.different for picture in pictures) <= MOST_UNLIKE * characters


def stage_name(key: str) -> str:
    """A stage as people read it, from module/pipeline/number."""
    module, pipeline, number = key.split("/")
    return f"{module} {pipeline} stage {int(number) + 1}"


@dataclass(frozen=True)
class StageRow:
    """One stage of the plan, and its last measurements with work."""

    module: str
    pipeline: str
    number: int
    batch_size: int
    stage: Stage
    last: SessionStageSignals | None

    @property
    def key(self) -> str:
        """module/pipeline/number."""
        return f"{self.module}/{self.pipeline}/{self.number}"


def stage_rows(result: DemoResult) -> tuple[StageRow, ...]:
    """Every stage of the plan."""
    seen: dict[tuple[str, str, int], SessionStageSignals] = {}
    for sample in result.samples:
        for signals in sample.signals.stages:
            if signals.actual_micros > 0 or (signals.module, signals.pipeline, signals.stage) not in seen:
                seen[signals.module, signals.pipeline, signals.stage] = signals
    return tuple(
        StageRow(module.name, pipeline.name, n, pipeline.batch_size, stage, seen.get((module.name, pipeline.name, n)))
        for module, pipeline, n, stage in result.plan.spec.stages()
    )


def utilization(result: DemoResult) -> dict[str, list[tuple[float, float]]]:
    """For each pool of the plan, seconds since the load began and the busy share of its replicas' time."""
    divisors = {row.key: row.stage.vgpu_divisor for row in stage_rows(result)}
    series: dict[str, list[tuple[float, float]]] = {pool: [] for pool in result.plan.spec.gpus()}
    for sample in result.samples:
        for pool, busy in _busy(sample, divisors).items():
            series.setdefault(pool, []).append((sample.at_s, busy))
    return series


def replicas(result: DemoResult) -> dict[str, list[tuple[float, int]]]:
    """For each stage, by key, seconds since the load began and the replicas that take batches."""
    series: dict[str, list[tuple[float, int]]] = {row.key: [] for row in stage_rows(result)}
    for sample in result.samples:
        for stage in sample.signals.stages:
            series.setdefault(f"{stage.module}/{stage.pipeline}/{stage.stage}", []).append((sample.at_s, stage.ready))
    return series


def batch_sizes(result: DemoResult) -> dict[int, int]:
    """Batches that were dispatched under load, by size, over windows that do not overlap."""
    counts: Counter[int] = Counter()
    for sample in _disjoint(result.samples):
        counts.update(sample.signals.batch_sizes)
    return dict(sorted(counts.items()))


def mean_utilization(result: DemoResult, phase: int = 0) -> float | None:
    """Busy share of all replicas' time within a phase of load; None if there is no sample of it."""
    start = result.phases[phase].start_s
    end = start + result.phases[phase].report.duration_s
    # The first windows of a phase reach back into the time before it.
    settled = [s for s in result.samples if start + s.signals.window_seconds <= s.at_s <= end]
    within = settled or [s for s in result.samples if start <= s.at_s <= end]
    return 1 - sum(s.signals.idle_fraction for s in within) / len(within) if within else None


def reasons_for_misses(result: DemoResult) -> tuple[str, ...]:
    """Why the planned load missed the SLO, and what to do; empty if it did not."""
    phase, slo = result.phases[0], result.session.spec.slo
    if phase.report.attainment >= slo.attainment.fraction:
        return ()
    slow = [
        f"stage {row.key} took {row.last.actual_micros / 1000:.0f} ms for a batch; "
        f"its profile has {row.last.predicted_micros / 1000:.0f} ms"
        for row in stage_rows(result)
        if row.last is not None and row.last.actual_micros > SLOWER * row.last.predicted_micros > 0
    ]
    half = max(1, int(phase.rate / 2))
    return (
        *slow,
        f"the machine was {phase.busy:.0%} busy; stop other programs, or plan for less load: "
        f"{shlex.join(['partita', 'demo', '--example', result.example, '--rate', str(half)])}",
    )


def accelerators(result: DemoResult) -> dict[str, tuple[int, int]]:
    """For each pool, the accelerators that the plan allocates, and all of them."""
    used = result.plan.spec.gpus()
    return {
        pool.metadata.name: (used.get(pool.metadata.name, 0), pool.status.capacity or pool.spec.count or 0)
        for pool in result.pools
    }


def _busy(sample: SignalSample, divisors: Mapping[str, int]) -> dict[str, float]:
    weights: defaultdict[str, float] = defaultdict(float)
    busy: defaultdict[str, float] = defaultdict(float)
    for stage in sample.signals.stages:
        weight = stage.ready / divisors.get(f"{stage.module}/{stage.pipeline}/{stage.stage}", 1)
        weights[stage.pool] += weight
        busy[stage.pool] += weight * (1 - stage.idle_fraction)
    return {pool: busy[pool] / weight for pool, weight in weights.items() if weight}


def _disjoint(samples: tuple[SignalSample, ...]) -> Iterator[SignalSample]:
    covered = float("-inf")
    for sample in samples:
        if sample.at_s - sample.signals.window_seconds >= covered - 0.5:
            covered = sample.at_s
            yield sample
