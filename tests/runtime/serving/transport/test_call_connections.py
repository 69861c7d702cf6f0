"""Streams over calls between two processes; calls may arrive in any order or be lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np
import pytest

from partita_runtime.serving.transport import call_connections
from partita_runtime.serving.transport.call_connections import CallablePeer, Exchange, Parcel
from partita_runtime.serving.transport.streams import MessageStream, Receiver
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Array,
    Hello,
    Ping,
    Pong,
    RunBatch,
    StageMessage,
    WireError,
    tensor_header,
)

HELLO = Hello(frontend="f")


class Calls(CallablePeer):
    """A process on the same event loop; the test controls when it is called."""

    def __init__(self, there: Exchange) -> None:
        self.there = there
        self.back: Calls | None = None
        self.held: list[tuple[Parcel, asyncio.Future[bool]]] | None = None
        """Calls under way; None if they arrive at once."""
        self.parcels: list[Parcel] = []
        self.error: Exception | None = None

    def open(self, connection: str, listener: int) -> asyncio.Future[bool]:
        assert self.back is not None
        return _answered(self.there.accept(connection, listener, self.back))

    def deliver(self, parcel: Parcel) -> asyncio.Future[bool]:
        if parcel.number is not None:
            self.parcels.append(parcel)
        if self.error is not None:
            return _answered(self.error)
        if self.held is None:
            return _answered(self.there.deliver(parcel))
        answer = asyncio.get_running_loop().create_future()
        self.held.append((parcel, answer))
        return answer

    def arrive_backwards(self) -> None:
        """Deliver the held calls, the last one first, and all later calls at once."""
        assert self.held is not None
        held, self.held = self.held, None
        for parcel, answer in reversed(held):
            answer.set_result(self.there.deliver(parcel))


def _answered(answer: bool | Exception) -> asyncio.Future[bool]:
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


class Collected(Receiver[StageMessage]):
    """What one side received."""

    def __init__(self) -> None:
        self.stream: MessageStream[StageMessage] = MessageStream(STAGE_DIALECT, self)
        self.messages: list[tuple[StageMessage, list[Array]]] = []
        self.ended = asyncio.Event()
        self._more = asyncio.Event()

    def admit(self, stream: MessageStream[StageMessage], message: StageMessage) -> None:
        if isinstance(message, Pong):
            raise WireError("no pong is expected here")

    def received(self, stream: MessageStream[StageMessage], message: StageMessage, tensors: list[Array]) -> None:
        self.messages.append((message, tensors))
        self._more.set()

    def lost(self, stream: MessageStream[StageMessage]) -> None:
        assert not self.ended.is_set()
        self.ended.set()

    async def until(self, count: int) -> None:
        while len(self.messages) < count:
            self._more.clear()
            await self._more.wait()


class Pair:
    """A connection, and the calls in both directions."""

    def __init__(self) -> None:
        self.near, self.far = Collected(), Collected()
        here, there = Exchange(), Exchange()
        self.here, self.there = here, there
        self.out, self.back = Calls(there), Calls(here)
        self.out.back, self.back.back = self.back, self.out
        self.listener = there.listen(lambda: self.far.stream)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Pair]:
    pair = Pair()
    async with asyncio.timeout(60):
        await pair.here.connect(pair.out, pair.listener, lambda: pair.near.stream)
        await asyncio.sleep(0)  # the other side has it, too
        yield pair
        for side in (pair.near, pair.far):
            side.stream.abort()
            await side.ended.wait()


def batch(number: int, values: Array) -> RunBatch:
    return RunBatch(batch_id=number, frontend="f", tensors=(tensor_header(values.shape, values.dtype),))


async def test_writes_in_one_turn_are_one_call_and_large_tensors_are_not_copied() -> None:
    async with connected() as pair:
        values = np.random.default_rng(1).standard_normal((4, 50_000), np.float32)
        pair.near.stream.send(HELLO)
        pair.near.stream.send(batch(1, values), [values])
        pair.near.stream.send(Ping())
        await pair.far.until(3)
        assert [message for message, _ in pair.far.messages] == [HELLO, batch(1, values), Ping()]
        np.testing.assert_array_equal(pair.far.messages[1][1][0], values)
        (parcel,) = pair.out.parcels
        assert any(isinstance(piece, np.ndarray) and np.shares_memory(piece, values) for piece in parcel.pieces)


async def test_both_sides_send() -> None:
    async with connected() as pair:
        pair.near.stream.send(HELLO)
        await pair.far.until(1)
        pair.far.stream.send(Ping())
        await pair.near.until(1)
        assert pair.near.messages == [(Ping(), [])]


async def test_calls_that_overtake_each_other_are_put_in_order() -> None:
    async with connected() as pair:
        pair.out.held = []
        arrays = [np.full((1, 20_000), number, np.float32) for number in range(5)]
        for number, values in enumerate(arrays):
            pair.near.stream.send(batch(number, values), [values])
            await asyncio.sleep(0)
        assert len(pair.out.held) == 5
        assert not pair.near.stream.is_sent
        pair.out.arrive_backwards()
        await pair.far.until(5)
        assert [float(tensors[0][0, 0]) for _, tensors in pair.far.messages] == [0, 1, 2, 3, 4]
        assert pair.near.stream.is_sent


async def test_data_sent_before_the_end_arrives() -> None:
    async with connected() as pair:
        pair.near.stream.send(HELLO)
        pair.near.stream.close()
        assert not pair.near.stream.send(Ping())
        await asyncio.gather(pair.near.ended.wait(), pair.far.ended.wait())
        assert pair.far.messages == [(HELLO, [])]


async def test_an_aborted_connection_ends_at_both_sides() -> None:
    async with connected() as pair:
        pair.far.stream.abort()
        await asyncio.gather(pair.near.ended.wait(), pair.far.ended.wait())


async def test_a_message_that_is_refused_ends_the_connection() -> None:
    async with connected() as pair:
        pair.near.stream.send(Pong())
        pair.near.stream.send(HELLO)
        await asyncio.gather(pair.near.ended.wait(), pair.far.ended.wait())
        assert pair.far.messages == []


@pytest.mark.parametrize("idle", [False, True], ids=["at the next call", "though nothing is sent"])
async def test_a_process_that_is_gone_is_noticed(idle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_connections, "PROBE_SECONDS", 0.01)
    async with connected() as pair:
        pair.out.error = ConnectionResetError("the actor is dead")
        if not idle:
            pair.near.stream.send(HELLO)
        await pair.near.ended.wait()
        assert not pair.near.stream.is_open


async def test_a_restarted_process_does_not_know_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_connections, "PROBE_SECONDS", 0.01)
    async with connected() as pair:
        pair.out.there = Exchange()
        await pair.near.ended.wait()


async def test_a_process_that_does_not_answer_calls_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_connections, "PROBE_SECONDS", 0.01)
    monkeypatch.setattr(call_connections, "UNRESPONSIVE_SECONDS", 0.05)
    async with connected() as pair:
        pair.out.held = []
        pair.near.stream.send(HELLO)
        await pair.near.ended.wait()


async def test_no_listener() -> None:
    pair = Pair()
    pair.there.close_listener(pair.listener)
    with pytest.raises(ConnectionRefusedError):
        await pair.here.connect(pair.out, pair.listener, lambda: pair.near.stream)
    assert not pair.near.stream.is_open
