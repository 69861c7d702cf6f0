"""The decisions of the scheduling core, as data."""

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
    """Even a batch of this request alone would miss its deadline."""
    OVERLOAD = "Overload"
    """Dropped early: the requests behind it keep their batch size."""
    NO_WORKERS = "NoWorkers"
    """No pipeline of its module has a worker on every stage."""
    WORKER_LOST = "WorkerLost"
    """Its batch was lost with a worker, and no time is left to run it again."""
    EXECUTION_FAILED = "ExecutionFailed"
    """Its batch failed twice, or failed once with no time left to run it again."""
    NO_COORDINATOR = "NoCoordinator"
    """The coordinator, which schedules for several frontends, was unavailable until its deadline."""


class Dispatch(NamedTuple):
    """Run this batch, on this path, at these times."""

    batch_id: int
    module: str
    pipeline: str
    request_ids: tuple[int, ...]
    path: tuple[str, ...]
    """The worker of each stage."""
    starts: tuple[int, ...]
    """Reserved start of each stage (microseconds)."""
    finish: int
    """Reserved end of the last stage (microseconds)."""
    deadline: int
    """The earliest deadline in the batch (microseconds)."""
    transfer_starts: tuple[int, ...] = ()
    """Reserved start of the transfer to stage 1, 2, ... (microseconds); one fewer than stages."""
    preempts: int | None = None
    """A running batch that stops now in favour of this one; the core has queued its requests again."""
    links_free: tuple[int, ...] = ()
    """From when the links of each transfer are free until its reserved start (microseconds)."""
    slack: int = 0
    """How much later than reserved it may end and still meet its deadline (microseconds)."""


class Drop(NamedTuple):
    """Do not serve this request."""

    request_id: int
    module: str
    reason: DropReason
    detail: str = ""
    """The error of the execution, if it failed."""


Action = Dispatch | Drop
