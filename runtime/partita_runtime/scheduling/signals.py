"""Snapshots of the counters of the scheduling core; rates and fractions are differences of two snapshots."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.scheduling.modules.module_state import ModuleState
from partita_runtime.scheduling.modules.pipeline_state import PipelineState, StageState
from partita_runtime.scheduling.workers.pools import Worker


@dataclass(frozen=True, slots=True)
class CoreModuleSignals:
    """Requests of one module since the core was made."""

    arrived: int
    dispatched: int
    """Requests put into batches; a request that is queued again after a loss counts again."""
    in_time: int
    late: int
    cancelled: int
    dropped: Mapping[DropReason, int]
    queued: int
    """Requests in the queue now."""
    queueing_micros: int
    """Sum over dispatched requests of the time from arrival to dispatch."""


@dataclass(frozen=True, slots=True)
class CorePipelineSignals:
    """Batches of one pipeline since the core was made."""

    batches: int
    requests: int
    in_time: int
    late: int
    batch_sizes: Mapping[int, int]
    """Batches by their size."""


@dataclass(frozen=True, slots=True)
class CoreStageSignals:
    """One stage of one pipeline, which is one partition pool."""

    pool: str
    """The GPUPool of its workers."""
    workers: tuple[str, ...]
    """Workers that accept batches, lowest number first."""
    executions: int
    predicted_micros: int
    """Sum of the profiled times of all executions."""
    actual_micros: int
    """Sum of their real times."""
    correction: float
    """The profiled latencies are multiplied with it."""
    transfers: int = 0
    """Batches that came from the stage before over the network."""
    declared_transfer_micros: int = 0
    """Sum of the times of all transfers with the declared bandwidth."""
    actual_transfer_micros: int = 0
    """Sum of their real times, without the time that they waited for others."""
    link_latency_micros: float = 0.0
    """Estimated latency of the network from the stage before."""
    link_bits_per_second: float = 0.0
    """Its estimated bandwidth; 0 for a first stage, and if no bandwidth is declared."""


@dataclass(frozen=True, slots=True)
class CoreWorkerSignals:
    """One worker."""

    node: str
    since: int
    """When it joined."""
    busy_micros: int
    """Busy time since then, including the running batch up to now."""
    draining: bool


@dataclass(frozen=True, slots=True)
class CoreSignals:
    """A snapshot of the core's counters."""

    now: int
    plan: str
    modules: Mapping[str, CoreModuleSignals]
    pipelines: Mapping[tuple[str, str], CorePipelineSignals]
    """By (module, pipeline)."""
    stages: Mapping[StageRef, CoreStageSignals]
    workers: Mapping[str, CoreWorkerSignals]
    stale_reports: int
    """Reports on batches or stages that had ended or were unknown."""


def snapshot(
    now: int, plan: str, modules: Iterable[ModuleState], workers: Mapping[str, Worker], stale_reports: int
) -> CoreSignals:
    """Copy the counters of all modules and workers."""
    modules = list(modules)
    pipelines = [(module.name, pipeline) for module in modules for pipeline in module.pipelines]
    return CoreSignals(
        now=now,
        plan=plan,
        modules={module.name: _module(module) for module in modules},
        pipelines={(name, pipeline.name): _pipeline(pipeline) for name, pipeline in pipelines},
        stages={stage.ref: _stage(stage) for _, pipeline in pipelines for stage in pipeline.stages},
        workers={
            worker.name: CoreWorkerSignals(worker.node.name, worker.since, worker.busy_until(now), worker.draining)
            for worker in workers.values()
        },
        stale_reports=stale_reports,
    )


def _module(module: ModuleState) -> CoreModuleSignals:
    counters = module.counters
    return CoreModuleSignals(
        arrived=counters.arrived,
        dispatched=counters.dispatched,
        in_time=counters.in_time,
        late=counters.late,
        cancelled=counters.cancelled,
        dropped=dict(counters.dropped),
        queued=len(module.queue),
        queueing_micros=counters.queueing_micros,
    )


def _pipeline(pipeline: PipelineState) -> CorePipelineSignals:
    counters = pipeline.counters
    return CorePipelineSignals(
        batches=counters.batch_sizes.total(),
        requests=sum(size * batches for size, batches in counters.batch_sizes.items()),
        in_time=counters.in_time,
        late=counters.late,
        batch_sizes=dict(sorted(counters.batch_sizes.items())),
    )


def _stage(stage: StageState) -> CoreStageSignals:
    correction, link = stage.correction, stage.link
    return CoreStageSignals(
        pool=stage.spec.pool,
        workers=tuple(worker.name for worker in stage.pool),
        executions=correction.executions,
        predicted_micros=correction.predicted_micros,
        actual_micros=correction.actual_micros,
        correction=correction.factor,
        transfers=link.transfers,
        declared_transfer_micros=link.declared_micros,
        actual_transfer_micros=link.actual_micros,
        link_latency_micros=link.latency_micros,
        link_bits_per_second=8e6 / link.micros_per_byte if link.declared else 0.0,
    )
