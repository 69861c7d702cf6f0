"""What the scheduling core counts, as snapshots; rates and fractions come from the difference of two."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.scheduling.modules import ModuleState
from partita_runtime.scheduling.pipelines import PipelineState, StageState
from partita_runtime.scheduling.workers.pools import Worker


@dataclass(frozen=True, slots=True)
class ModuleSignals:
    """Requests of one module since the core was made."""

    arrived: int
    dispatched: int
    """Requests put into batches; one that is queued again after a loss counts again."""
    in_time: int
    late: int
    cancelled: int
    dropped: Mapping[DropReason, int]
    queued: int
    """Requests in the queue now."""
    queueing_micros: int
    """Sum over dispatched requests of the time from arrival to dispatch."""


@dataclass(frozen=True, slots=True)
class PipelineSignals:
    """Batches of one pipeline since the core was made."""

    batches: int
    requests: int
    in_time: int
    late: int
    batch_sizes: Mapping[int, int]
    """Batches by their size."""


@dataclass(frozen=True, slots=True)
class StageSignals:
    """One stage of one pipeline, that is, one partition pool."""

    pool: str
    """The GPUPool that its workers are from."""
    workers: tuple[str, ...]
    """Workers that take batches now, lowest number first."""
    executions: int
    predicted_micros: int
    """Sum of what the profile says of all executions."""
    actual_micros: int
    """Sum of what they took."""
    correction: float
    """What the profile's latencies are multiplied with now."""


@dataclass(frozen=True, slots=True)
class WorkerSignals:
    """One worker."""

    node: str
    since: int
    """When it joined."""
    busy_micros: int
    """Time it worked since then, a running batch included up to now."""
    draining: bool


@dataclass(frozen=True, slots=True)
class CoreSignals:
    """A snapshot of the core's counters."""

    now: int
    plan: str
    modules: Mapping[str, ModuleSignals]
    pipelines: Mapping[tuple[str, str], PipelineSignals]
    """By (module, pipeline)."""
    stages: Mapping[StageRef, StageSignals]
    workers: Mapping[str, WorkerSignals]
    stale_reports: int
    """Reports on batches or stages that were not in flight."""


def snapshot(
    now: int, plan: str, modules: Iterable[ModuleState], workers: Mapping[str, Worker], stale_reports: int
) -> CoreSignals:
    """The counters of all modules and workers, frozen."""
    modules = list(modules)
    pipelines = [(module.name, pipeline) for module in modules for pipeline in module.pipelines]
    return CoreSignals(
        now=now,
        plan=plan,
        modules={module.name: _module(module) for module in modules},
        pipelines={(name, pipeline.name): _pipeline(pipeline) for name, pipeline in pipelines},
        stages={stage.ref: _stage(stage) for _, pipeline in pipelines for stage in pipeline.stages},
        workers={
            worker.name: WorkerSignals(worker.node.name, worker.since, worker.busy_until(now), worker.draining)
            for worker in workers.values()
        },
        stale_reports=stale_reports,
    )


def _module(module: ModuleState) -> ModuleSignals:
    counters = module.counters
    return ModuleSignals(
        arrived=counters.arrived,
        dispatched=counters.dispatched,
        in_time=counters.in_time,
        late=counters.late,
        cancelled=counters.cancelled,
        dropped=dict(counters.dropped),
        queued=len(module.queue),
        queueing_micros=counters.queueing_micros,
    )


def _pipeline(pipeline: PipelineState) -> PipelineSignals:
    counters = pipeline.counters
    return PipelineSignals(
        batches=counters.batch_sizes.total(),
        requests=sum(size * batches for size, batches in counters.batch_sizes.items()),
        in_time=counters.in_time,
        late=counters.late,
        batch_sizes=dict(sorted(counters.batch_sizes.items())),
    )


def _stage(stage: StageState) -> StageSignals:
    correction = stage.correction
    return StageSignals(
        pool=stage.spec.pool,
        workers=tuple(worker.name for worker in stage.pool),
        executions=correction.executions,
        predicted_micros=correction.predicted_micros,
        actual_micros=correction.actual_micros,
        correction=correction.factor,
    )
