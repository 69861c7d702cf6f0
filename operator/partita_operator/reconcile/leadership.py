"""Leader election: the replica of the operator that holds the Lease works, and the others are hot standbys.

As in client-go, replicas do not compare their clocks. A standby measures on its own monotonic clock how long the Lease
has not changed, and takes it after the Lease's duration. The holder stops earlier: two thirds of the duration after the
last renewal that it knows of.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOLDS_FOR: Final = 2 / 3
"""Share of the duration after which the holder stops, if it could not renew."""
RENEWS_AFTER: Final = 1 / 3
"""Share of the duration after which the holder renews."""
LOOKS_AFTER: Final = 1 / 6
"""Share of the duration after which a standby reads the Lease again, and a failed renewal is repeated."""


@dataclass(frozen=True)
class LeaseRecord:
    """The Lease as the API server has it."""

    holder: str
    """Identity of the holder; empty if it released the Lease."""
    duration_seconds: int
    transitions: int
    """How often the holder changed."""
    version: str
    """Resource version, which changes with each renewal."""


@dataclass(frozen=True)
class LeaseObservation:
    """A Lease, and when it last changed."""

    record: LeaseRecord | None
    """None if the Lease does not exist."""
    since: float
    """Seconds on the observer's monotonic clock when this record was first seen."""


class LeaseStep(StrEnum):
    """The next step of a replica with the Lease."""

    TAKE = "Take"
    RENEW = "Renew"
    WAIT = "Wait"


def observe(before: LeaseObservation | None, record: LeaseRecord | None, now: float) -> LeaseObservation:
    """The observation after the Lease was read as `record` at `now`."""
    if before is not None and before.record == record:
        return before
    return LeaseObservation(record, now)


def next_step(identity: str, seen: LeaseObservation, now: float) -> LeaseStep:
    """The next step of the replica with this identity at `now`."""
    record = seen.record
    if record is None or not record.holder:
        return LeaseStep.TAKE
    if record.holder == identity:
        return LeaseStep.RENEW
    return LeaseStep.TAKE if now - seen.since >= record.duration_seconds else LeaseStep.WAIT


def still_holds(renewed: float | None, duration_seconds: float, now: float) -> bool:
    """Whether a replica may act on a Lease that it last renewed at `renewed` (None: never)."""
    return renewed is not None and now - renewed < duration_seconds * HOLDS_FOR
