"""The admission of requests to a simulated session that is scaled to zero: held as in its frontend, then admitted."""

from typing import Protocol

from partita_api.session.autoscaling import ScaleToZero
from partita_runtime.scheduling.events import DropReason
from partita_runtime.serving.session.body_memory import BodyMemory
from partita_runtime.serving.session.unserved_error import UnservedError
from partita_runtime.serving.session.waiting_room import MOST_HELD, Place, WaitingRoom
from partita_runtime.serving.telemetry.signals import Meter
from partita_runtime.simulation.application import SimulatedApplication
from partita_runtime.simulation.emulation.clock import VirtualClock


class Replicas(Protocol):
    """The replicas for which requests are held."""

    @property
    def width(self) -> int:
        """Samples in progress at once if each ready replica runs a full batch; 0 while requests are held."""

    def request_held(self) -> None:
        """A request is held."""


class AdmissionGate:
    """Between the arriving requests and the application that serves them."""

    def __init__(
        self, application: SimulatedApplication, zero: ScaleToZero | None, replicas: Replicas, clock: VirtualClock
    ) -> None:
        """Without `zero`, no request is held."""
        self._application = application
        self._hold_micros = None if zero is None else zero.hold_seconds * 1_000_000
        self._replicas = replicas
        self._clock = clock
        self.meter = Meter()
        """Counts the held requests."""
        self.last_arrival = 0
        self._room = WaitingRoom(MOST_HELD, BodyMemory(0), self.meter)

    @property
    def held(self) -> int:
        """Requests that wait for replicas."""
        return self._room.asking(self._clock.now)

    def arrive(self) -> None:
        """One more request."""
        now = self.last_arrival = self._clock.now
        if self._hold_micros is None or self._replicas.width:
            self._application.arrive()
            return
        try:
            request = _HeldRequest(self)
            request.place = self._room.enter(request, 1, 0, now, now + self._hold_micros)
        except UnservedError:
            self._application.refused(DropReason.OVERLOAD)
            return
        self._clock.at(now + self._hold_micros, self._expire)
        self._replicas.request_held()

    def open(self) -> None:
        """Admit as many held requests as the replicas can serve at once."""
        if self._replicas.width:
            self._room.open(self._replicas.width, self._clock.now)

    def begin(self, request: "_HeldRequest") -> None:
        """A held request is admitted, and its SLO begins."""
        self._application.arrive(lambda reason: self._ended(request, reason))

    def refuse(self) -> None:
        """No replica became ready while the request was held."""
        self._application.refused(DropReason.NO_WORKERS)

    def _expire(self) -> None:
        self._room.expire(self._clock.now)

    def _ended(self, request: "_HeldRequest", reason: DropReason | None) -> bool:
        """An admitted request is answered, or dropped for a reason; returns whether it is held again instead."""
        place = request.place
        assert place is not None, "the request was admitted"
        for_capacity = reason in (DropReason.NO_WORKERS, DropReason.OVERLOAD, DropReason.TOO_LATE)
        again = for_capacity and self._room.again(place, self._clock.now)
        if not again:
            self._room.leave(place, self._clock.now)
        self._clock.at(self._clock.now, self.open)
        return again


class _HeldRequest:
    """A request that is held."""

    def __init__(self, gate: AdmissionGate) -> None:
        self.place: Place | None = None
        self._gate = gate

    def let_in(self, now: int) -> None:
        self._gate.begin(self)

    def turned_away(self, error: UnservedError) -> None:
        self._gate.refuse()
