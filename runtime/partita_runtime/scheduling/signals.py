"""What the scheduling core counts, as snapshots; rates and fractions come from the difference of two."""

from collections.abc import Mapping
from dataclasses import dataclass

from partita_runtime.scheduling.events import DropReason, StageRef


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
