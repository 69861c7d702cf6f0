"""Requests of a simulated session that has scaled to zero: they are held as in its frontend, and let in one by one."""

from typing import Protocol

from partita_api.autoscaling import ScaleToZero
from partita_runtime.scheduling.events import DropReason
from partita_runtime.serving.protocol.inference import UnservedError
from partita_runtime.serving.session.body_memory import BodyMemory
from partita_runtime.serving.session.waiting_room import MOST_HELD, Place, WaitingRoom
from partita_runtime.serving.telemetry.signals import Meter
from partita_runtime.simulation.application import SimulatedApplication
from partita_runtime.simulation.emulation.clock import VirtualClock


class Replicas(Protocol):
    """What requests are held for."""

    @property
    def width(self) -> int:
        """Samples that go at once where each ready replica runs a full batch; 0 while requests are held."""

    def asked_for(self) -> None:
        """A request is held."""


class AdmissionGate:
    """Between the requests that arrive and the application that answers them."""

    def __init__(
        self, application: SimulatedApplication, zero: ScaleToZero | None, replicas: Replicas, clock: VirtualClock
    ) -> None:
        """Nothing is held without `zero`."""
        self._application = application
        self._hold = None if zero is None else zero.hold_seconds * 1_000_000
        self._replicas = replicas
        self._clock = clock
        self.meter = Meter()
        """Counts what was held."""
        self.last_arrival = 0
        self._room = WaitingRoom(MOST_HELD, BodyMemory(0), self.meter)

    @property
    def held(self) -> int:
        """Requests that wait for replicas."""
        return self._room.asking(self._clock.now)

    def arrive(self) -> None:
        """One more request."""
        now = self.last_arrival = self._clock.now
        if self._hold is None or self._replicas.width:
            self._application.arrive()
            return
        try:
            request = _HeldRequest(self)
            request.place = self._room.enter(request, 1, 0, now, now + self._hold)
        except UnservedError:
            self._application.refused(DropReason.OVERLOAD)
            return
        self._clock.at(now + self._hold, self._expire)
        self._replicas.asked_for()

    def open(self) -> None:
        """Let in as many as the replicas take."""
        if self._replicas.width:
            self._room.open(self._replicas.width, self._clock.now)

    def begin(self, request: "_HeldRequest") -> None:
        """It was let in, and its SLO begins."""
        self._application.arrive(lambda reason: self._ended(request, reason))

    def refuse(self) -> None:
        """It waited in vain."""
        self._application.refused(DropReason.NO_WORKERS)

    def _expire(self) -> None:
        self._room.expire(self._clock.now)

    def _ended(self, request: "_HeldRequest", reason: DropReason | None) -> bool:
        """One that was let in is answered, or dropped for this reason; whether it is held again instead."""
        crowded = reason in (DropReason.NO_WORKERS, DropReason.OVERLOAD, DropReason.TOO_LATE)
        again = crowded and self._room.again(request.place, self._clock.now)
        if not again:
            self._room.leave(request.place, self._clock.now)
        self._clock.at(self._clock.now, self.open)
        return again


class _HeldRequest:
    """A request that is held."""

    place: Place

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate = gate

    def let_in(self, now: int) -> None:
        self._gate.begin(self)

    def turned_away(self, error: UnservedError) -> None:
        self._gate.refuse()
