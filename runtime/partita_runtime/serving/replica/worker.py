"""A stage's worker: takes batches over streams, runs them one at a time, hands the results on. Knows nothing of Ray."""

import asyncio
import hmac
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from partita_runtime.execution.executor import BuiltExecutor
from partita_runtime.logs import concerning
from partita_runtime.serving.replica.vgpu import Vgpu
from partita_runtime.serving.transport.streams import DEAD_PEER_SECONDS, Receiver, Stream, connect
from partita_runtime.serving.transport.transport import TCP, Carrier, Listening
from partita_runtime.serving.transport.wire import (
    MAX_REASON,
    STAGE_DIALECT,
    Answer,
    Array,
    Batch,
    Draining,
    Failed,
    Hello,
    Hop,
    Message,
    Ping,
    Pong,
    Report,
    Taken,
    Undelivered,
    Welcome,
    WireError,
    check_tensors,
    tensor_header,
)

logger = logging.getLogger(__name__)

UNSURE_SECONDS: Final = 2.0 * DEAD_PEER_SECONDS
"""What was sent longer ago than this has arrived, or its stream would have been found to be broken."""


@dataclass(frozen=True)
class _Work:
    batch: Batch
    tensors: list[Array]
    arrived: int


class StageWorker:
    """Runs the batches that it is sent, in order of arrival; use it on the event loop that it was started on."""

    def __init__(self, built: BuiltExecutor, max_batch: int, vgpu: Vgpu | None = None, carrier: Carrier = TCP) -> None:
        """`vgpu` is one that it shares with other workers, and that somebody else stops; else it has its own."""
        self._carrier = carrier
        self._built = built
        self._max_batch = max_batch
        self._token = secrets.token_hex(16)
        self._vgpu = vgpu or Vgpu()
        self._own_vgpu = vgpu is None
        self._peers: dict[Stream[Message], Hello] = {}
        self._frontends: dict[str, Stream[Message]] = {}
        self._onward: dict[Hop, asyncio.Task[_Onward]] = {}
        self._handovers: set[asyncio.Task[None]] = set()
        self._listening: Listening | None = None
        self._draining = False
        self._deserted = asyncio.Event()

    async def start(self, host: str) -> Hop:
        """Listen, on a free port of `host` unless the carrier has another way; the address to announce."""
        self._listening = await self._carrier.listen(host, lambda: Stream(STAGE_DIALECT, self))
        self._vgpu.start()
        return Hop(host=self._listening.host, port=self._listening.port, token=self._token)

    def check_health(self) -> None:
        """Raises RuntimeError if no more batches will be run."""
        self._vgpu.check_health()

    @property
    def is_used(self) -> bool:
        """Whether there is a frontend that may send batches."""
        return bool(self._frontends)

    async def drain(self) -> None:
        """Ask the frontends for no more work, and return once they have left with all their answers."""
        self._draining = True
        for stream in self._frontends.values():
            stream.send(Draining())
        self._note_desertion()
        await self._deserted.wait()

    async def stop(self) -> None:
        """Close everything, whatever is under way."""
        if self._listening is not None:
            self._listening.close()
        if self._own_vgpu:
            self._vgpu.stop()
        for stream in [*self._peers]:
            stream.close()
        for task in [*self._onward.values(), *self._handovers]:
            task.cancel()

    def admit(self, stream: Stream[Message], message: Message) -> None:
        """Peers must say Hello with the replica's token, and may then send batches that fit the stage."""
        match message:
            case Hello() if stream not in self._peers and hmac.compare_digest(message.token, self._token):
                return
            case Batch() if stream in self._peers:
                check_tensors(message.tensors, self._built.inputs, self._max_batch)
            case Ping() if stream in self._peers:
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: Stream[Message], message: Message, tensors: list[Array]) -> None:
        """Called by the stream."""
        match message:
            case Hello(frontend=frontend):
                self._peers[stream] = message
                if frontend is not None:
                    self._frontends[frontend] = stream
                    stream.send(Draining() if self._draining else Welcome())
            case Ping():
                stream.send(Pong())
            case Batch():
                if self._peers[stream].frontend is None:
                    self._tell(message, Taken(batch_id=message.batch_id))
                self._vgpu.put(partial(self._work, _Work(message, tensors, time.monotonic_ns())))

    def lost(self, stream: Stream[Message]) -> None:
        """Called by the stream."""
        hello = self._peers.pop(stream, None)
        if hello is not None and hello.frontend is not None and self._frontends.get(hello.frontend) is stream:
            del self._frontends[hello.frontend]
            self._note_desertion()

    def _note_desertion(self) -> None:
        if self._draining and not self._frontends:
            self._deserted.set()

    async def _work(self, work: _Work) -> None:
        if work.batch.frontend not in self._frontends:
            return  # nobody is left to answer
        try:
            await self._execute(work)
        except Exception as error:
            logger.exception("batch %d failed", work.batch.batch_id, extra=concerning(batch=work.batch.batch_id))
            reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
            self._tell(work.batch, Failed(batch_id=work.batch.batch_id, reason=reason))

    async def _execute(self, work: _Work) -> None:
        started = time.monotonic_ns()
        outputs = await self._vgpu.compute(partial(self._built.executor.run, work.tensors))
        ended = time.monotonic_ns()
        self._hand_on(work.batch, outputs, (started - work.arrived) // 1000, (ended - started) // 1000)

    def _hand_on(self, batch: Batch, outputs: Sequence[Array], waited: int, ran: int) -> None:
        headers = tuple(tensor_header(array.shape, array.dtype) for array in outputs)
        if not batch.path:
            answer = Answer(batch_id=batch.batch_id, waited_micros=waited, ran_micros=ran, tensors=headers)
            self._tell(batch, answer, outputs)
            return
        self._tell(batch, Report(batch_id=batch.batch_id, waited_micros=waited, ran_micros=ran))
        onward = batch.model_copy(update={"path": batch.path[1:], "tensors": headers})
        handover = asyncio.create_task(self._forward(batch.path[0], onward, outputs))
        self._handovers.add(handover)
        handover.add_done_callback(self._handovers.discard)

    async def _forward(self, hop: Hop, batch: Batch, tensors: Sequence[Array]) -> None:
        try:
            onward = await self._way_to(hop)
            sent = onward.send(batch, tensors)
        except OSError:
            sent = False
        if not sent:
            self._undelivered(hop, batch)

    def _undelivered(self, hop: Hop, batch: Batch) -> None:
        reason = f"the replica of the next stage at {hop.host}:{hop.port} cannot be reached"
        self._tell(batch, Undelivered(batch_id=batch.batch_id, reason=reason))

    async def _way_to(self, hop: Hop) -> "_Onward":
        known = self._onward.get(hop)
        if known is None or (known.done() and (known.cancelled() or known.exception() or not known.result().is_open)):
            known = self._onward[hop] = asyncio.create_task(self._open(hop))
        return await asyncio.shield(known)

    async def _open(self, hop: Hop) -> "_Onward":
        onward = _Onward(partial(self._undelivered, hop))
        onward.stream = await connect(hop, STAGE_DIALECT, onward, self._carrier)
        onward.stream.send(Hello(token=hop.token))
        return onward

    def _tell(self, batch: Batch, message: Message, tensors: Sequence[Array] = ()) -> None:
        stream = self._frontends.get(batch.frontend)
        if stream is not None:
            stream.send(message, tensors)


class _Onward(Receiver[Message]):
    """A stream to the next stage carries batches there and nothing back.

    When it breaks, batches that were sent on it of late may have got no further than this machine's buffers.
    """

    stream: Stream[Message]

    def __init__(self, undelivered: Callable[[Batch], None]) -> None:
        """`undelivered` is told of batches that may not have arrived."""
        self._undelivered = undelivered
        self._recent: deque[tuple[float, Batch]] = deque()

    @property
    def is_open(self) -> bool:
        """Whether batches can be sent."""
        return self.stream.is_open

    def send(self, batch: Batch, tensors: Sequence[Array]) -> bool:
        """Hand a batch on; False if the stream is closed."""
        now = time.monotonic()
        while self._recent and now - self._recent[0][0] > UNSURE_SECONDS:
            self._recent.popleft()
        self._recent.append((now, batch))
        return self.stream.send(batch, tensors)

    def admit(self, stream: Stream[Message], message: Message) -> None:
        raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: Stream[Message], message: Message, tensors: list[Array]) -> None: ...

    def lost(self, stream: Stream[Message]) -> None:
        for _, batch in self._recent:
            self._undelivered(batch)
