"""Where requests are held while their session has no replicas. Pure: its owner says what time it is, and who may go in.

Whoever is let in has a place until answered, for no more are let in at a time than the replicas take: those that come
up first are one or two of each stage, and would drop most of a crowd.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, Protocol

from partita_runtime.serving.protocol.inference import RequestError, UnservedError
from partita_runtime.serving.session.body_memory import BodyMemory, BodyReading
from partita_runtime.serving.telemetry.signals import Meter, Outcome

MOST_HELD: Final = 1000
"""Requests that are held at once, unless a frontend is told otherwise."""
REMEMBERED_MICROS: Final = 10_000_000
"""For how long somebody who has given up still asks for replicas: whoever starts them does not look all the time."""

_NOBODY_CAME: Final = (
    "the session has scaled to zero, and its replicas did not come up for as long as a request is held "
    "(autoscaling.scaleToZero.holdSeconds); try again"
)


class Waiter(Protocol):
    """Who is held; called once for each time that it waits, and never before `WaitingRoom.enter` is back."""

    def let_in(self, now: int) -> None:
        """Replicas are there: its time begins."""

    def turned_away(self, error: UnservedError) -> None:
        """None came up in time."""


@dataclass(eq=False, slots=True)
class Place:
    """One request's."""

    waiter: Waiter
    samples: int
    since: int
    until: int
    """When it is turned away (microseconds)."""
    memory: BodyReading
    inside: bool = False
    """Whether it was let in."""


class WaitingRoom:
    """The requests that are held, first come, first served. `now` is in microseconds."""

    def __init__(self, most: int, bodies: BodyMemory, meter: Meter) -> None:
        """At most `most` requests are held at once, and no more than `bodies` has room for."""
        self._most = most
        self._bodies = bodies
        self._meter = meter
        self._waiting: OrderedDict[Place, None] = OrderedDict()
        self._inside = 0
        """Samples that were let in and are not answered."""
        self._left: deque[tuple[int, int]] = deque()
        """When somebody gave up, and how many samples."""

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def asking(self, now: int) -> int:
        """Samples for which replicas are wanted: those that wait, and those that gave up a moment ago."""
        while self._left and self._left[0][0] <= now - REMEMBERED_MICROS:
            self._left.popleft()
        return sum(place.samples for place in self._waiting) + sum(samples for _, samples in self._left)

    def enter(self, waiter: Waiter, samples: int, size: int, now: int, until: int) -> Place:
        """Hold a request of so many samples and bytes. Raises UnservedError (503) if there is no room for it."""
        if len(self._waiting) >= self._most:
            raise UnservedError(
                Outcome.OVERLOAD, 503, f"{self._most} requests are held already until replicas are up; try again"
            )
        memory = self._bodies.reading()
        try:
            memory.grew(size)
        except RequestError as error:
            raise UnservedError(Outcome.OVERLOAD, 503, str(error)) from None
        place = Place(waiter, samples, now, until, memory)
        self._waiting[place] = None
        self._meter.held += samples
        return place

    def again(self, place: Place, now: int) -> bool:
        """One that was let in, and found that there is nobody to serve it, goes on waiting; False if its time is up."""
        if now >= place.until:
            return False
        self._inside -= place.samples
        place.inside, place.since = False, now
        self._waiting[place] = None
        self._waiting.move_to_end(place, last=False)
        return True

    def leave(self, place: Place, now: int) -> None:
        """It is answered, or nobody waits for it any more."""
        place.memory.end()
        if place.inside:
            place.inside = False
            self._inside -= place.samples
        elif place in self._waiting:
            self._take_out(place, now)
            self._left.append((now, place.samples))

    def open(self, width: int, now: int) -> None:
        """Let requests in, of which so many samples may be inside; one if it is larger than that."""
        while self._waiting:
            place = next(iter(self._waiting))
            if self._inside and self._inside + place.samples > width:
                return
            self._take_out(place, now)
            self._left.clear()
            self._inside += place.samples
            place.inside = True
            place.waiter.let_in(now)

    def expire(self, now: int) -> None:
        """Turn those away who have waited for too long."""
        for place in [place for place in self._waiting if place.until <= now]:
            self.leave(place, now)
            place.waiter.turned_away(UnservedError(Outcome.NO_WORKERS, 503, _NOBODY_CAME))

    def _take_out(self, place: Place, now: int) -> None:
        del self._waiting[place]
        self._meter.held_micros += (now - place.since) * place.samples
