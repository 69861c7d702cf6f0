"""What the scheduling core decides, as data."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Dispatch:
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


@dataclass(frozen=True, slots=True)
class Drop:
    """This request is not served."""

    request_id: int
    module: str
    reason: DropReason


Action = Dispatch | Drop
