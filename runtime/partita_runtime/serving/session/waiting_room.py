"""Where requests are held while their session has no replicas. Pure: its owner has the clock and opens it.

Requests are let in only as fast as the replicas can run them. The first replicas to start are one or two for each
stage, and would drop most of the requests if all were let in at once.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from partita_runtime.serving.session.body_memory import BodyMemory, BodyMemoryError, BodyReading
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason
from partita_runtime.serving.telemetry.signals import Meter

MOST_HELD: Final = 1000
"""Most requests that are held at once, by default."""
REMEMBERED_MICROS: Final = 10_000_000
"""How long a request that gave up still counts as demand for replicas: the operator checks from time to time."""

_EXPIRED: Final = "No replica started within holdSeconds. Try again."


class Waiter(Protocol):
    """A held request. `let_in` or `turned_away` is called once for each wait, and never within `WaitingRoom.enter`."""

    def let_in(self, now: int) -> None:
        """There are replicas: the request's SLO begins."""

    def turned_away(self, error: UnservedError) -> None:
        """No replicas have started in time."""


@dataclass(eq=False, slots=True)
class Place:
    """The place of one request."""

    waiter: Waiter
    samples: int
    since: int
    """When the wait began (microseconds)."""
    until: int
    """When the request is turned away (microseconds)."""
    memory: BodyReading
    inside: bool = False
    """Whether it was let in."""


class _GaveUp(NamedTuple):
    at: int
    samples: int


class WaitingRoom:
    """The held requests, first come, first served. `now` is in microseconds."""

    def __init__(self, most: int, bodies: BodyMemory, meter: Meter) -> None:
        """Holds at most `most` requests at once, and no more bytes than `bodies` allows."""
        self._most = most
        self._bodies = bodies
        self._meter = meter
        self._waiting: OrderedDict[Place, None] = OrderedDict()
        self._inside = 0
        """Samples that were let in and are not answered."""
        self._gave_up: deque[_GaveUp] = deque()

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def asking(self, now: int) -> int:
        """Samples that need replicas: those that wait, and those that gave up a moment ago."""
        while self._gave_up and self._gave_up[0].at <= now - REMEMBERED_MICROS:
            self._gave_up.popleft()
        return sum(place.samples for place in self._waiting) + sum(left.samples for left in self._gave_up)

    def enter(self, waiter: Waiter, samples: int, size: int, now: int, until: int) -> Place:
        """Hold a request of so many samples and bytes. Raises UnservedError (OVERLOAD) if there is no room for it."""
        if len(self._waiting) >= self._most:
            raise UnservedError(
                UnservedReason.OVERLOAD, f"{self._most} requests are held already. Try again when replicas are up."
            )
        memory = self._bodies.reading()
        try:
            memory.grew(size)
        except BodyMemoryError as error:
            raise UnservedError(UnservedReason.OVERLOAD, str(error)) from None
        place = Place(waiter, samples, now, until, memory)
        self._waiting[place] = None
        self._meter.held += samples
        return place

    def again(self, place: Place, now: int) -> bool:
        """Hold a request again that was let in but found no replicas; False if its time is up."""
        if now >= place.until:
            return False
        self._inside -= place.samples
        place.inside, place.since = False, now
        self._waiting[place] = None
        self._waiting.move_to_end(place, last=False)
        return True

    def leave(self, place: Place, now: int) -> None:
        """A request has ended, or its client has left."""
        place.memory.end()
        if place.inside:
            place.inside = False
            self._inside -= place.samples
        elif place in self._waiting:
            self._take_out(place, now)
            self._gave_up.append(_GaveUp(now, place.samples))

    def open(self, width: int, now: int) -> None:
        """Let requests in until `width` samples are inside; a larger request is let in alone."""
        while self._waiting:
            place = next(iter(self._waiting))
            if self._inside and self._inside + place.samples > width:
                return
            self._take_out(place, now)
            self._gave_up.clear()
            self._inside += place.samples
            place.inside = True
            place.waiter.let_in(now)

    def expire(self, now: int) -> None:
        """Turn away the requests that have waited too long."""
        for place in [place for place in self._waiting if place.until <= now]:
            self.leave(place, now)
            place.waiter.turned_away(UnservedError(UnservedReason.NO_REPLICAS, _EXPIRED))

    def _take_out(self, place: Place, now: int) -> None:
        del self._waiting[place]
        self._meter.held_micros += (now - place.since) * place.samples
