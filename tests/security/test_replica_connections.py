"""Strangers that connect to replicas and coordinators: they are disconnected, and cost little until then."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.central.local_coordinator import local_coordinator
from tests.runtime.serving.in_process.stand import stand
from tests.runtime.serving.plans import application

from partita_api.session.frontend import Frontend
from partita_runtime.serving.central.messages import COORDINATOR_DIALECT, Register, RegisterReporter
from partita_runtime.serving.transport import reception
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Decoder,
    Dialect,
    Hello,
    PeerAddress,
    WireModel,
    encode,
)

APP = application("one").model("only")
SHARED = APP.with_spec(frontend=Frontend(replicas=2))


class Target:
    """A process that listens."""

    def __init__(self, address: PeerAddress, dialect: Dialect[Any], hello: Callable[[str], WireModel]) -> None:
        self.address = address
        self.token = address.token.encode()
        self._dialect, self._hello = dialect, hello

    def hello(self, peer: str = "peer") -> bytes:
        """The first message of a peer."""
        return b"".join(encode(self._hello(peer)))

    @contextlib.asynccontextmanager
    async def connected(self, sent: bytes = b"") -> AsyncIterator["Connection"]:
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port)
        connection = Connection(reader, writer)
        try:
            writer.write(sent)
            yield connection
        finally:
            writer.transport.abort()

    async def serves(self) -> None:
        """Another peer with the token gets an answer."""
        async with self.peer("another"):
            pass

    @contextlib.asynccontextmanager
    async def peer(self, name: str) -> AsyncIterator["Connection"]:
        """A connection with the token, whose first message is answered."""
        async with self.connected(self.token + self.hello(name)) as peer:
            assert await self._answer(peer) in ("welcome", "registered")
            yield peer

    async def _answer(self, peer: "Connection") -> str:
        """The kind of the next message."""
        decoder = Decoder(self._dialect, lambda _: None)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                size = len(decoder.buffer())
                decoder.buffer()[:] = await peer.reader.readexactly(size)
                if complete := decoder.received(size):
                    return str(getattr(complete[0], "kind", ""))


class Connection:
    """The stranger's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def is_closed(self) -> bool:
        """Wait until the other side closes, without an answer."""
        with contextlib.suppress(ConnectionError):
            return await asyncio.wait_for(self.reader.read(1), PATIENCE_SECONDS) == b""
        return True

    async def drip(self, sent: bytes) -> None:
        """Send a byte now and then, until the other side closes."""
        closed = asyncio.create_task(self.is_closed())
        for byte in sent:
            if closed.done():
                break
            self.writer.write(bytes([byte]))
            await asyncio.sleep(0.05)
        assert await closed


@contextlib.asynccontextmanager
async def a_replica() -> AsyncIterator[Target]:
    async with stand(APP) as running:
        (replica,) = running.directory.announced(APP.session.key)
        yield Target(replica.address, STAGE_DIALECT, lambda peer: Hello(frontend=peer))


@contextlib.asynccontextmanager
async def a_coordinator() -> AsyncIterator[Target]:
    async with local_coordinator(SHARED) as coordinator:
        plan = SHARED.epoch.plan
        yield Target(
            coordinator.address,
            COORDINATOR_DIALECT,
            lambda peer: Register(frontend=peer, plan=plan, next_batch=0),
        )


TARGETS = {"replica": a_replica, "coordinator": a_coordinator}


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
async def target(request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    async with request.param() as made:
        yield made


PREFIX_OF_16_MIB = b"PTA6" + (16 * 1024 * 1024).to_bytes(4, "little") + bytes(8)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(lambda target: b"x" * len(target.token), id="another token"),
        pytest.param(lambda target: "é".encode() * len(target.token), id="a token that is not ASCII"),
        pytest.param(lambda target: b"\xff" * len(target.token), id="a token that is not text"),
        pytest.param(lambda target: target.token[:-1] + b"x", id="a token that is nearly right"),
        pytest.param(lambda target: target.hello() + bytes(32), id="a message without a token"),
        pytest.param(lambda _: PREFIX_OF_16_MIB + bytes(100_000), id="a large header without a token"),
        pytest.param(lambda _: b"GET / HTTP/1.1\r\nHost: replica\r\n\r\n", id="another protocol"),
    ],
)
async def test_without_the_token_nothing_is_read(
    target: Target, sent: Callable[[Target], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with target.connected(sent(target)) as stranger:
        assert await stranger.is_closed()
    await target.serves()
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_peer_that_does_not_introduce_itself_is_disconnected(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reception, "INTRODUCTION_SECONDS", 0.3)
    async with (
        target.connected() as silent,
        target.connected() as slow,
        target.connected(target.token) as nameless,
        target.connected(target.token) as slower,
    ):
        assert await silent.is_closed()
        assert await nameless.is_closed()
        await slow.drip(target.token)
        await slower.drip(target.hello())
    await target.serves()


async def test_peers_that_have_introduced_themselves_stay(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "INTRODUCTION_SECONDS", 0.3)
    async with target.peer("peer") as peer:
        async with target.connected() as silent:  # it is disconnected later than the peer would be
            assert await silent.is_closed()
        assert not peer.reader.at_eof()


async def test_strangers_replace_each_other_and_not_peers(target: Target) -> None:
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(target.peer("peer"))
        strangers = [await stack.enter_async_context(target.connected()) for _ in range(reception.MOST_STRANGERS + 20)]
        for stranger in strangers[:20]:
            assert await stranger.is_closed()
        await target.serves()
        assert [other.reader.at_eof() for other in (peer, *strangers[-reception.MOST_STRANGERS + 1 :])] == [
            False
        ] * reception.MOST_STRANGERS


async def test_the_number_of_peers_is_bounded(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    async with target.peer("one") as one:
        monkeypatch.setattr(reception, "MOST_PEERS", 1)
        async with target.connected(target.token + target.hello("two")) as beyond:
            assert await beyond.is_closed()
        assert not one.reader.at_eof()
        monkeypatch.undo()
        await target.serves()


async def test_many_strangers_are_one_line_of_the_log(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(20):
        async with target.connected(b"x" * len(target.token)) as stranger:
            assert await stranger.is_closed()
    refused = [record.message for record in caplog.records if "is refused" in record.message]
    assert refused == ["a connection is refused: it does not begin with this process's token"]


async def test_a_reporter_of_another_session_is_refused() -> None:
    async with a_coordinator() as target:
        report = b"".join(encode(RegisterReporter(session="default/another")))
        async with target.connected(target.token + report) as peer:
            assert await peer.is_closed()
