"""Which replica of the operator works: the one that holds the Lease. The others stand by, with everything in memory.

As in client-go, nobody compares a clock with another's: whoever waits measures by its own steady clock for how long the
Lease has not changed, and takes it once that is longer than its duration. Whoever holds it stops well before, at
two thirds of the duration after the last renewal that it knows of.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOLDS_FOR: Final = 2 / 3
"""Share of the duration after which the holder stops, if it could not renew."""
RENEWS_AFTER: Final = 1 / 3
"""Share of the duration after which the holder renews."""
LOOKS_AFTER: Final = 1 / 6
"""Share of the duration after which whoever waits looks again, and a renewal that failed is repeated."""


@dataclass(frozen=True)
class LeaseRecord:
    """The Lease as the API server has it."""

    holder: str
    """Identity of the replica that works; empty if it has given the Lease back."""
    duration_seconds: int
    transitions: int
    """How often it has changed hands."""
    version: str
    """Resource version: another one for each renewal."""


@dataclass(frozen=True)
class Observation:
    """A Lease, and since when it has been as it is."""

    record: LeaseRecord | None
    """None if there is none."""
    since: float
    """Seconds of the observer's steady clock at which it was first seen so."""


class Step(StrEnum):
    """What a replica does about the Lease."""

    TAKE = "Take"
    RENEW = "Renew"
    WAIT = "Wait"


def observe(before: Observation | None, record: LeaseRecord | None, now: float) -> Observation:
    """What is known after the Lease was read as `record` at `now`."""
    if before is not None and before.record == record:
        return before
    return Observation(record, now)


def next_step(identity: str, seen: Observation, now: float) -> Step:
    """What the replica of this identity does at `now`."""
    record = seen.record
    if record is None or not record.holder:
        return Step.TAKE
    if record.holder == identity:
        return Step.RENEW
    return Step.TAKE if now - seen.since >= record.duration_seconds else Step.WAIT


def still_holds(renewed: float | None, duration_seconds: float, now: float) -> bool:
    """Whether a replica may act on a Lease that it last renewed at `renewed` (None: never)."""
    return renewed is not None and now - renewed < duration_seconds * HOLDS_FOR
