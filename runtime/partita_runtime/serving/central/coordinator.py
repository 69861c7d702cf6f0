"""The rank of a session with several frontends: decides for all of them whose batch runs where and when.

It knows only what the scheduling core knows (Symphony, section 4.2: the RankThread), and nothing that it could not be
told again: one that is started anew has it all once its frontends have connected. Knows nothing of Ray.
"""

import asyncio
import hmac
import logging
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.serving.central.coordinator_link import SILENT_TICKS
from partita_runtime.serving.central.messages import (
    RANK_DIALECT,
    Decided,
    Part,
    RankMessage,
    Seated,
    TakePart,
    TakeSeat,
    Told,
)
from partita_runtime.serving.central.metrics_aggregator import Gathering, Scheduled
from partita_runtime.serving.central.shared_plan import SharedPlan
from partita_runtime.serving.dispatch.scheduler import Alarm, now_micros
from partita_runtime.serving.transport.streams import Receiver, Stream
from partita_runtime.serving.transport.transport import TCP, Carrier, Listening
from partita_runtime.serving.transport.wire import Array, Hop, WireError

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.25
_MEASURE_TICKS: Final = 2
_UNMEASURED_TICKS: Final = 4
"""In which all frontends of a rank that was restarted have connected; before, it would speak for some of them only."""


class Table:
    """A plan, and the streams of the frontends that have a seat at it."""

    def __init__(self, plan: SchedulingPlan) -> None:
        self.id = uuid.uuid4().hex
        self.shared = SharedPlan(plan, now_micros())
        self._streams: dict[str, Stream[RankMessage]] = {}
        self._alarm = Alarm(self._ring)

    def enter(self, asked: TakeSeat, stream: Stream[RankMessage]) -> None:
        """A frontend takes its seat. Raises ValueError if it is taken."""
        self.shared.enter(asked, now_micros())
        self._streams[asked.seat] = stream
        stream.send(Seated())

    def tell(self, seat: str, told: Told) -> None:
        """What happened at a frontend. Raises ValueError or KeyError for what cannot be."""
        now = now_micros()
        wakeup = self.shared.next_wakeup()
        if wakeup is not None and wakeup < now:
            self._decide(wakeup)
        self.shared.tell(seat, told, now)
        self._alarm.wake()

    def leave(self, seat: str) -> None:
        """A frontend is gone."""
        del self._streams[seat]
        self.shared.leave(seat, now_micros())
        if self._streams:
            self._alarm.wake()
        else:
            self._alarm.silence()

    def _ring(self, due: int) -> int | None:
        self._decide(due)
        return self.shared.next_wakeup()

    def _decide(self, due: int) -> None:
        """As `scheduler.CoreInProcess` does: a moment that came late is part of a batch's way."""
        now = now_micros()
        at = max(due, now - self.shared.delay)
        for seat, decided in self.shared.advance(at, max(0, now - due)).items():
            self._streams[seat].send(decided)


@dataclass(eq=False)
class _Peer:
    """Whoever is connected."""

    table: Table | None = None
    seat: str = ""
    silent_ticks: int = 0

    @property
    def partakes(self) -> bool:
        """Whether it tells what it measures."""
        return self.table is None


class RankServer(Receiver[RankMessage]):
    """The rank of one session, behind streams; use it on the event loop that it was started on."""

    def __init__(self, session_key: str, carrier: Carrier = TCP) -> None:
        self._session_key = session_key
        self._carrier = carrier
        self._token = secrets.token_hex(16)
        self._peers: dict[Stream[RankMessage], _Peer] = {}
        self._tables: list[Table] = []
        self._gathering = Gathering(session_key, now_micros())
        self._listening: Listening | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, host: str) -> Hop:
        """Listen, on a free port of `host` unless the carrier has another way; its address."""
        self._listening = await self._carrier.listen(host, lambda: Stream(RANK_DIALECT, self))
        self._ticking = asyncio.create_task(self._tick_forever())
        return Hop(host=self._listening.host, port=self._listening.port, token=self._token)

    async def stop(self) -> None:
        """Close everything."""
        if self._listening is not None:
            self._listening.close()
        if self._ticking is not None:
            self._ticking.cancel()
        for stream in [*self._peers]:
            stream.abort()

    @property
    def deserted(self) -> bool:
        """Whether no frontend is connected."""
        return not self._peers

    @property
    def plans(self) -> Sequence[SharedPlan]:
        """The plans that frontends have a seat at."""
        return [table.shared for table in self._tables]

    def admit(self, stream: Stream[RankMessage], message: RankMessage) -> None:
        """Frontends must introduce themselves with the rank's token, once."""
        peer = self._peers.get(stream)
        match message:
            case TakeSeat() | TakePart() if peer is None and hmac.compare_digest(message.token, self._token):
                if isinstance(message, TakePart) and message.session != self._session_key:
                    raise WireError(f"this is the rank of {self._session_key}, not of {message.session}")
            case Told() if peer is not None and not peer.partakes:
                return
            case Part() if peer is not None and peer.partakes:
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: Stream[RankMessage], message: RankMessage, tensors: list[Array]) -> None:
        """Called by the stream."""
        try:
            self._take(stream, message)
        except (KeyError, ValueError) as error:
            raise WireError(f"a frontend says what cannot be: {error}") from None

    def lost(self, stream: Stream[RankMessage]) -> None:
        """Called by the stream."""
        peer = self._peers.pop(stream, None)
        if peer is None:
            return
        self._gathering.leave(stream)
        if peer.table is not None:
            peer.table.leave(peer.seat)
            if not peer.table.shared:
                self._tables.remove(peer.table)

    def _take(self, stream: Stream[RankMessage], message: RankMessage) -> None:
        match message:
            case TakeSeat():
                table = self._table_of(message.plan)
                table.enter(message, stream)
                self._peers[stream] = _Peer(table, message.seat)
            case TakePart():
                self._peers[stream] = _Peer()
            case Told():
                peer = self._peers[stream]
                peer.silent_ticks = 0
                if peer.table is not None:
                    peer.table.tell(peer.seat, message)
            case Part():
                self._peers[stream].silent_ticks = 0
                self._gathering.take(stream, message, now_micros())

    def _table_of(self, plan: SchedulingPlan) -> Table:
        known = next((table for table in self._tables if table.shared.plan == plan), None)
        if known is None:
            known = Table(plan)
            self._tables.append(known)
        return known

    def _scheduled(self, seat: str) -> Scheduled | None:
        for table in self._tables:
            if seat in table.shared:
                return Scheduled(table.shared.plan, table.id, table.shared.signals(now_micros()))
        return None

    async def _tick_forever(self) -> None:
        ticks = 0
        while True:
            await asyncio.sleep(TICK_SECONDS)
            ticks += 1
            try:
                self._tick(measure=ticks >= _UNMEASURED_TICKS and ticks % _MEASURE_TICKS == 0)
            except Exception:
                logger.exception("rank of %s", self._session_key)

    def _tick(self, measure: bool) -> None:
        measured = self._gathering.measured(self._scheduled, now_micros()) if measure else None
        for stream, peer in [*self._peers.items()]:
            peer.silent_ticks += 1
            if peer.silent_ticks > SILENT_TICKS:
                logger.warning("a frontend is silent")
                stream.abort()
            elif not peer.partakes:
                stream.send(Decided(due=0))
            elif measured is not None:
                stream.send(measured)
