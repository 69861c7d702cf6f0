"""What the scheduling core decides, as data."""

from enum import StrEnum
from typing import NamedTuple


class StageRef(NamedTuple):
    """One stage of one pooled pipeline of one module."""

    module: str
    pipeline: str
    stage: int


class DropReason(StrEnum):
    """Why a request is not served."""

    TOO_LATE = "TooLate"
    """Even alone it would miss its deadline."""
    OVERLOAD = "Overload"
    """Dropped early, so that the requests behind it keep their batch size."""
    NO_WORKERS = "NoWorkers"
    """No pipeline of its module has a worker on every stage."""
    WORKER_LOST = "WorkerLost"
    """Its batch died with a worker, and there is no time left to run it again."""
    EXECUTION_FAILED = "ExecutionFailed"
    """Its batch could not be executed, twice, or once and there is no time left to run it again."""
    NO_RANK = "NoRank"
    """The scheduler that its frontend shares with others was away for as long as it could wait."""


class Dispatch(NamedTuple):
    """Run this batch, on this path, at these times."""

    batch_id: int
    module: str
    pipeline: str
    request_ids: tuple[int, ...]
    path: tuple[str, ...]
    """The worker of each stage."""
    starts: tuple[int, ...]
    """When each stage is reserved to start (microseconds)."""
    finish: int
    """When the last stage is reserved to finish (microseconds)."""
    deadline: int
    """The earliest deadline in the batch (microseconds)."""
    transfer_starts: tuple[int, ...] = ()
    """When the feature map is reserved to leave for stage 1, 2, ...: one fewer than stages (microseconds)."""
    preempts: int | None = None
    """A batch whose execution ends here and now, to make room; the core has queued its requests again."""


class Drop(NamedTuple):
    """This request is not served."""

    request_id: int
    module: str
    reason: DropReason
    detail: str = ""
    """What the execution failed with, if it did."""


Action = Dispatch | Drop
