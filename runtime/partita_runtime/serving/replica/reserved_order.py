"""The order in which a vGPU runs its batches: that of their reservations. Pure."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

MOST_EXPECTED: Final = 1024
"""Most batches that are expected at a time. With one more, the one with the earliest start is forgotten."""

T = TypeVar("T")


class BatchKey(NamedTuple):
    """A batch on one stage."""

    frontend: str
    number: int
    """Of the batch, within the frontend."""
    stage: Hashable = None
    """Which of the vGPU's stages: a batch may come to several of them."""


@dataclass(frozen=True, slots=True)
class ReservedTimes:
    """What the scheduling core has reserved for one batch on one stage (microseconds on the replica's clock)."""

    start: int
    latest: int
    """If the batch starts later, it misses its deadline."""
    sends_from: int
    """From when it may be sent to the next stage: the network is free from then on, by the core's account."""


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    """A batch that has arrived."""

    start: int
    number: int
    """In order of arrival."""
    work: T
    reservation: ReservedTimes | None


class ReservedOrder(Generic[T]):
    """Batches that wait for a vGPU, and those that will come. `T` is what has to be done for a batch.

    The next batch is the one with the earliest reserved start of those that have arrived. It waits for batches that are
    reserved before it and have not arrived: for each until that one would miss its deadline, and never beyond its own
    reserved start. So no batch starts later than reserved because another one is late or lost. A batch without a
    reservation counts as reserved for the time when it arrived.
    """

    def __init__(self) -> None:
        self._expected: dict[BatchKey, ReservedTimes] = {}
        self._waiting: dict[BatchKey, _Waiting[T]] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        """How many batches have arrived and wait."""
        return len(self._waiting)

    def expect(self, batch: BatchKey, reservation: ReservedTimes) -> None:
        """A batch will come. Ignored if it is there already."""
        if batch in self._waiting:
            return
        self._expected[batch] = reservation
        if len(self._expected) > MOST_EXPECTED:
            del self._expected[min(self._expected, key=lambda key: self._expected[key].start)]

    def arrive(self, batch: BatchKey, work: T, now: int) -> None:
        """A batch is there."""
        reservation = self._expected.pop(batch, None)
        start = now if reservation is None else reservation.start
        self._waiting[batch] = _Waiting(start, self._arrivals, work, reservation)
        self._arrivals += 1

    def withdraw(self, batch: BatchKey) -> None:
        """A batch is lost or cancelled: it is not expected any more, and does not run if it waits."""
        self._expected.pop(batch, None)
        self._waiting.pop(batch, None)

    def forget(self, frontend: str, stage: Hashable = None) -> None:
        """A frontend has left a stage, and its batches are gone."""
        for batch in [*self._expected, *self._waiting]:
            if (batch.frontend, batch.stage) == (frontend, stage):
                self.withdraw(batch)

    def due(self) -> int | None:
        """When the next batch may run, which may be in the past; None if no batch waits."""
        if not self._waiting:
            return None
        start = self._next()[1].start
        return max((min(r.latest, start) for r in self._expected.values() if r.start < start), default=0)

    def take(self) -> tuple[T, ReservedTimes | None]:
        """Remove the next batch; there must be one."""
        batch, waiting = self._next()
        del self._waiting[batch]
        return waiting.work, waiting.reservation

    def _next(self) -> tuple[BatchKey, _Waiting[T]]:
        return min(self._waiting.items(), key=lambda item: (item[1].start, item[1].number))
