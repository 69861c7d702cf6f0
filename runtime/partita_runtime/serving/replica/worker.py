"""A stage's worker: receives batches over streams, runs one at a time, forwards the results. Independent of Ray."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.logs import concerning
from partita_runtime.serving.replica.reserved_order import BatchKey, ReservedTimes
from partita_runtime.serving.replica.vgpu import Vgpu
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.clock_offset import ClockOffset
from partita_runtime.serving.transport.reception import Reception
from partita_runtime.serving.transport.streams import DEAD_PEER_SECONDS, MessageStream, Receiver, connect
from partita_runtime.serving.transport.transport import TCP, Listening, Transport
from partita_runtime.serving.transport.wire import (
    MAX_REASON,
    STAGE_DIALECT,
    Array,
    BatchAnswer,
    Draining,
    Failed,
    Hello,
    Lost,
    PeerAddress,
    Ping,
    Pong,
    Report,
    Reserve,
    RunBatch,
    StageMessage,
    Taken,
    Welcome,
    WireError,
    Withdraw,
    check_tensors,
    tensor_header,
)

logger = logging.getLogger(__name__)

UNSURE_SECONDS: Final = 2.0 * DEAD_PEER_SECONDS
"""A batch that was sent longer ago than this has arrived; otherwise its stream would be closed by now."""


@dataclass(frozen=True)
class _Peer:
    """A process that has connected."""

    frontend: str | None
    """Its id; None for a replica, which forwards batches."""
    clock: ClockOffset = field(default_factory=ClockOffset)


@dataclass(frozen=True)
class _ReceivedBatch:
    batch: RunBatch
    tensors: list[Array]
    arrived: int


class StageWorker:
    """Runs batches in the order of their reservations; use it on the event loop that it was started on."""

    def __init__(
        self, built: BuiltExecutor, max_batch: int, vgpu: Vgpu | None = None, transport: Transport = TCP
    ) -> None:
        """`vgpu` is shared with other workers and stopped by its owner; without it the worker has its own."""
        self._transport = transport
        self._built = built
        self._max_batch = max_batch
        self._reception = Reception()
        self._vgpu = vgpu or Vgpu()
        self._own_vgpu = vgpu is None
        self._peers: dict[MessageStream[StageMessage], _Peer] = {}
        self._frontends: dict[str, MessageStream[StageMessage]] = {}
        self._onward: dict[PeerAddress, asyncio.Task[_Onward]] = {}
        self._handovers: set[asyncio.Task[None]] = set()
        self._listening: Listening | None = None
        self._draining = False
        self._deserted = asyncio.Event()

    async def start(self, host: str) -> PeerAddress:
        """Listen, by TCP on a free port of `host`; the address to announce."""
        self._listening = await self._transport.listen(host, lambda: self._reception.stream(STAGE_DIALECT, self))
        self._vgpu.start()
        return PeerAddress(host=self._listening.host, port=self._listening.port, token=self._reception.token)

    def check_health(self) -> None:
        """Raises RuntimeError if no more batches will be run."""
        self._vgpu.check_health()

    @property
    def is_used(self) -> bool:
        """Whether a frontend is connected."""
        return bool(self._frontends)

    async def drain(self) -> None:
        """Tell the frontends to send no more batches; returns once all have their answers and have disconnected."""
        self._draining = True
        for stream in self._frontends.values():
            stream.send(Draining())
        self._note_desertion()
        await self._deserted.wait()

    async def stop(self) -> None:
        """Close everything at once."""
        if self._listening is not None:
            self._listening.close()
        if self._own_vgpu:
            self._vgpu.stop()
        for stream in [*self._peers]:
            stream.close()
        for task in [*self._onward.values(), *self._handovers]:
            task.cancel()

    def admit(self, stream: MessageStream[StageMessage], message: StageMessage) -> None:
        """Peers must send Hello first, and then only batches that fit the stage."""
        match message:
            case Hello() if stream not in self._peers:
                return
            case RunBatch() if stream in self._peers:
                check_tensors(message.tensors, self._built.inputs, self._max_batch, any_size=self._built.any_size)
            case Ping() if stream in self._peers:
                return
            case Reserve() | Withdraw() if stream in self._peers and self._peers[stream].frontend is not None:
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: MessageStream[StageMessage], message: StageMessage, tensors: list[Array]) -> None:
        """Called by the stream."""
        match message:
            case Hello(frontend=frontend):
                self._peers[stream] = _Peer(frontend)
                if frontend is not None:
                    self._frontends[frontend] = stream
                    stream.send(Draining() if self._draining else Welcome())
            case Ping():
                stream.send(Pong())
            case Reserve():
                self._expect(self._peers[stream], message)
            case Withdraw(batch_id=batch_id):
                self._vgpu.withdraw(BatchKey(self._peers[stream].frontend or "", batch_id, self))
            case RunBatch():
                if self._peers[stream].frontend is None:
                    self._tell(message, Taken(batch_id=message.batch_id, held_micros=message.held_micros))
                received = _ReceivedBatch(message, tensors, time.monotonic_ns())
                self._vgpu.put(BatchKey(message.frontend, message.batch_id, self), partial(self._work, received))

    def lost(self, stream: MessageStream[StageMessage]) -> None:
        """Called by the stream."""
        peer = self._peers.pop(stream, None)
        if peer is not None and peer.frontend is not None and self._frontends.get(peer.frontend) is stream:
            del self._frontends[peer.frontend]
            self._vgpu.forget(peer.frontend, self)
            self._note_desertion()

    def _expect(self, peer: _Peer, reserve: Reserve) -> None:
        """Translate the times to this clock: they are late by the shortest delay of a message, never early."""
        peer.clock.observe(reserve.sent, now_micros())
        ahead = peer.clock.micros
        reservation = ReservedTimes(reserve.start + ahead, reserve.latest + ahead, reserve.sends_from + ahead)
        self._vgpu.expect(BatchKey(peer.frontend or "", reserve.batch_id, self), reservation)

    def _note_desertion(self) -> None:
        if self._draining and not self._frontends:
            self._deserted.set()

    async def _work(self, work: _ReceivedBatch, reservation: ReservedTimes | None) -> None:
        if work.batch.frontend not in self._frontends:
            return  # its frontend has left
        try:
            await self._execute(work, 0 if reservation is None else reservation.sends_from)
        except Exception as error:
            logger.exception("batch %d failed", work.batch.batch_id, extra=concerning(batch=work.batch.batch_id))
            reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
            self._tell(work.batch, Failed(batch_id=work.batch.batch_id, reason=reason))

    async def _execute(self, work: _ReceivedBatch, sends_from: int) -> None:
        started = time.monotonic_ns()
        outputs = await self._vgpu.compute(partial(self._built.executor.run, work.tensors))
        ended = time.monotonic_ns()
        waited, ran = (started - work.arrived) // 1000, (ended - started) // 1000
        self._forward_or_answer(work.batch, outputs, waited, ran, sends_from)

    def _forward_or_answer(
        self, batch: RunBatch, outputs: Sequence[Array], waited: int, ran: int, sends_from: int
    ) -> None:
        headers = tuple(tensor_header(array.shape, array.dtype) for array in outputs)
        if not batch.path:
            answer = BatchAnswer(batch_id=batch.batch_id, waited_micros=waited, ran_micros=ran, tensors=headers)
            self._tell(batch, answer, outputs)
            return
        self._tell(batch, Report(batch_id=batch.batch_id, waited_micros=waited, ran_micros=ran))
        onward = batch.model_copy(update={"path": batch.path[1:], "tensors": headers})
        handover = asyncio.create_task(self._forward(batch.path[0], onward, outputs, sends_from))
        self._handovers.add(handover)
        handover.add_done_callback(self._handovers.discard)

    async def _forward(self, address: PeerAddress, batch: RunBatch, tensors: Sequence[Array], sends_from: int) -> None:
        """Send a batch on, but not before a time: until then other batches have reserved the network."""
        try:
            onward = await self._stream_to(address)
            begin = now_micros()
            if sends_from > begin:
                await asyncio.sleep((sends_from - begin) / 1e6)
            sent = onward.send(batch.model_copy(update={"held_micros": now_micros() - begin}), tensors)
        except OSError:
            sent = False
        if not sent:
            self._report_lost(address, batch)

    def _report_lost(self, address: PeerAddress, batch: RunBatch) -> None:
        reason = f"the replica of the next stage at {address.host}:{address.port} cannot be reached"
        self._tell(batch, Lost(batch_id=batch.batch_id, reason=reason))

    async def _stream_to(self, address: PeerAddress) -> "_Onward":
        known = self._onward.get(address)
        if known is None or (known.done() and (known.cancelled() or known.exception() or not known.result().is_open)):
            known = self._onward[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(known)

    async def _open(self, address: PeerAddress) -> "_Onward":
        onward = _Onward(partial(self._report_lost, address))
        await onward.open(address, self._transport)
        return onward

    def _tell(self, batch: RunBatch, message: StageMessage, tensors: Sequence[Array] = ()) -> None:
        stream = self._frontends.get(batch.frontend)
        if stream is not None:
            stream.send(message, tensors)


class _Forwarded(NamedTuple):
    at: float
    batch: RunBatch


class _Onward(Receiver[StageMessage]):
    """A stream to the next stage; it carries batches there and nothing back.

    When it breaks, batches that were sent recently may still be in this machine's buffers.
    """

    def __init__(self, report_lost: Callable[[RunBatch], None]) -> None:
        """`report_lost` is called with batches that may not have arrived."""
        self._report_lost = report_lost
        self._stream: MessageStream[StageMessage] | None = None
        self._recent: deque[_Forwarded] = deque()

    async def open(self, address: PeerAddress, transport: Transport) -> None:
        """Connect to the next stage. Raises OSError if it cannot be reached."""
        self._stream = await connect(address, STAGE_DIALECT, self, transport)
        self._stream.send(Hello())

    @property
    def is_open(self) -> bool:
        """Whether batches can be sent."""
        return self._stream is not None and self._stream.is_open

    def send(self, batch: RunBatch, tensors: Sequence[Array]) -> bool:
        """Send a batch; False if the stream is closed."""
        now = time.monotonic()
        while self._recent and now - self._recent[0].at > UNSURE_SECONDS:
            self._recent.popleft()
        self._recent.append(_Forwarded(now, batch))
        return self._stream is not None and self._stream.send(batch, tensors)

    def admit(self, stream: MessageStream[StageMessage], message: StageMessage) -> None:
        raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: MessageStream[StageMessage], message: StageMessage, tensors: list[Array]) -> None: ...

    def lost(self, stream: MessageStream[StageMessage]) -> None:
        for forwarded in self._recent:
            self._report_lost(forwarded.batch)
