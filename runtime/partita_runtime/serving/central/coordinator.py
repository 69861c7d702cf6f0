"""The coordinator of a session with several frontends: it decides for all of them which batch runs where and when.

It holds what the scheduling core holds (Symphony, section 4.2: the RankThread), and its frontends hold the same: a
coordinator that was restarted learns everything again once they have connected. It does not depend on Ray.
"""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.central.coordinator_link import SILENT_TICKS
from partita_runtime.serving.central.messages import (
    COORDINATOR_DIALECT,
    CoordinatorMessage,
    Decisions,
    FrontendEvents,
    MetricsReport,
    Register,
    Registered,
    RegisterReporter,
)
from partita_runtime.serving.central.metrics_aggregator import MetricsAggregator, Scheduled
from partita_runtime.serving.central.shared_plan import SharedPlan
from partita_runtime.serving.dispatch.scheduler import Alarm
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.reception import Reception
from partita_runtime.serving.transport.streams import MessageStream, Receiver
from partita_runtime.serving.transport.transport import TCP, Listening, Transport
from partita_runtime.serving.transport.wire import Array, PeerAddress, WireError

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
_MEASURE_TICKS: Final = 2
_UNMEASURED_TICKS: Final = 4
"""After the first frontend a coordinator waits this long for the others, before it reports for the whole session."""


class PlanCoordinator:
    """Schedules one plan for the frontends that are registered for it."""

    def __init__(self, plan: SchedulingPlan) -> None:
        self.id = uuid.uuid4().hex
        self.shared = SharedPlan(plan, now_micros())
        self._streams: dict[str, MessageStream[CoordinatorMessage]] = {}
        self._alarm = Alarm(self._ring)

    def register(self, message: Register, stream: MessageStream[CoordinatorMessage]) -> None:
        """Register a frontend. Raises ValueError if its id is registered already."""
        self.shared.register(message, now_micros())
        self._streams[message.frontend] = stream
        stream.send(Registered())

    def handle(self, frontend: str, events: FrontendEvents) -> None:
        """Handle what happened at a frontend. Raises ValueError or KeyError for events that are impossible."""
        now = now_micros()
        wakeup = self.shared.next_wakeup()
        if wakeup is not None and wakeup < now:
            self._decide(wakeup)
        self.shared.handle(frontend, events, now)
        self._alarm.wake()

    def leave(self, frontend: str) -> None:
        """A frontend is gone."""
        del self._streams[frontend]
        self.shared.leave(frontend, now_micros())
        if self._streams:
            self._alarm.wake()
        else:
            self._alarm.silence()

    def _ring(self, due: int) -> int | None:
        self._decide(due)
        return self.shared.next_wakeup()

    def _decide(self, due: int) -> None:
        """Decide what was due. As in `scheduler.CoreInProcess`, the delays of a batch include a late event loop."""
        now = now_micros()
        at = max(due, now - self.shared.delay)
        for frontend, decisions in self.shared.advance(at, max(0, now - due)).items():
            self._streams[frontend].send(decisions)


@dataclass(eq=False)
class _FrontendConnection:
    """A frontend's connection, for scheduling or for metrics."""

    plan: PlanCoordinator | None = None
    """The plan that it is registered for; None on a stream for metrics."""
    frontend: str = ""
    silent_ticks: int = 0

    @property
    def is_reporter(self) -> bool:
        """Whether it reports metrics."""
        return self.plan is None


class CoordinatorServer(Receiver[CoordinatorMessage]):
    """The coordinator of one session, behind streams; use it on the event loop that it was started on."""

    def __init__(self, session_key: str, transport: Transport = TCP) -> None:
        self._session_key = session_key
        self._transport = transport
        self._reception = Reception()
        self._connections: dict[MessageStream[CoordinatorMessage], _FrontendConnection] = {}
        self._plans: list[PlanCoordinator] = []
        self._aggregator = MetricsAggregator(session_key, now_micros())
        self._listening: Listening | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, host: str) -> PeerAddress:
        """Listen, by TCP on a free port of `host`; the address to connect to."""
        self._listening = await self._transport.listen(host, lambda: self._reception.stream(COORDINATOR_DIALECT, self))
        self._ticking = asyncio.create_task(self._tick_forever())
        return PeerAddress(host=self._listening.host, port=self._listening.port, token=self._reception.token)

    async def stop(self) -> None:
        """Close everything."""
        if self._listening is not None:
            self._listening.close()
        if self._ticking is not None:
            self._ticking.cancel()
        for stream in [*self._connections]:
            stream.abort()

    @property
    def deserted(self) -> bool:
        """Whether no frontend is connected."""
        return not self._connections

    @property
    def plans(self) -> Sequence[SharedPlan]:
        """The plans that frontends are registered for."""
        return [plan.shared for plan in self._plans]

    def admit(self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage) -> None:
        """Frontends must register, once."""
        connection = self._connections.get(stream)
        match message:
            case Register() | RegisterReporter() if connection is None:
                if isinstance(message, RegisterReporter) and message.session != self._session_key:
                    raise WireError(f"this is the coordinator of {self._session_key}, not of {message.session}")
            case FrontendEvents() if connection is not None and not connection.is_reporter:
                return
            case MetricsReport() if connection is not None and connection.is_reporter:
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(
        self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage, tensors: list[Array]
    ) -> None:
        """Called by the stream."""
        try:
            self._take(stream, message)
        except (KeyError, ValueError) as error:
            raise WireError(f"a frontend reports impossible events: {error}") from None

    def lost(self, stream: MessageStream[CoordinatorMessage]) -> None:
        """Called by the stream."""
        connection = self._connections.pop(stream, None)
        if connection is None:
            return
        self._aggregator.leave(stream)
        if connection.plan is not None:
            connection.plan.leave(connection.frontend)
            if not connection.plan.shared:
                self._plans.remove(connection.plan)
        if self.deserted:
            self._aggregator = MetricsAggregator(self._session_key, now_micros())

    def _take(self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage) -> None:
        match message:
            case Register():
                plan = self._coordinator_of(message.plan)
                plan.register(message, stream)
                self._connections[stream] = _FrontendConnection(plan, message.frontend)
            case RegisterReporter():
                self._connections[stream] = _FrontendConnection()
            case FrontendEvents():
                connection = self._connections[stream]
                connection.silent_ticks = 0
                if connection.plan is not None:
                    connection.plan.handle(connection.frontend, message)
            case MetricsReport():
                self._connections[stream].silent_ticks = 0
                self._aggregator.take(stream, message, now_micros())

    def _coordinator_of(self, plan: SchedulingPlan) -> PlanCoordinator:
        known = next((known for known in self._plans if known.shared.plan == plan), None)
        if known is None:
            known = PlanCoordinator(plan)
            self._plans.append(known)
        return known

    def _scheduled(self, frontend: str) -> Scheduled | None:
        for plan in self._plans:
            if frontend in plan.shared:
                return Scheduled(plan.shared.plan, plan.id, plan.shared.signals(now_micros()))
        return None

    async def _tick_forever(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            ticks = 0 if self.deserted else ticks + 1
            try:
                self._tick(measure=ticks >= _UNMEASURED_TICKS and ticks % _MEASURE_TICKS == 0)
            except Exception:
                logger.exception("coordinator of %s", self._session_key)

    def _tick(self, measure: bool) -> None:
        metrics = self._aggregator.measured(self._scheduled, now_micros()) if measure else None
        for stream, connection in [*self._connections.items()]:
            connection.silent_ticks += 1
            if connection.silent_ticks > SILENT_TICKS:
                logger.warning("a frontend sends nothing; its connection is closed")
                stream.abort()
            elif not connection.is_reporter:
                stream.send(Decisions(due=0))
            elif metrics is not None:
                stream.send(metrics)
