"""Processes that listen for streams, and the strangers and peers that connect to them."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.central.local_coordinator import local_coordinator
from tests.runtime.serving.in_process.stand import stand
from tests.runtime.serving.plans import application

from partita_api.session.frontend import Frontend
from partita_runtime.serving.central.messages import COORDINATOR_DIALECT, Register
from partita_runtime.serving.transport.transport import TCP, Transport
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
        self.tls: ssl.SSLContext | None = None
        """TLS of those that connect; None if the target has none."""
        self._dialect, self._hello = dialect, hello

    def hello(self, peer: str = "peer") -> bytes:
        """The first message of a peer."""
        return b"".join(encode(self._hello(peer)))

    @contextlib.asynccontextmanager
    async def connected(self, sent: bytes = b"") -> AsyncIterator["Connection"]:
        """A connection that begins with these bytes."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port, ssl=self.tls)
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
        with contextlib.suppress(ConnectionError, ssl.SSLError):
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
async def a_replica(transport: Transport = TCP) -> AsyncIterator[Target]:
    """A replica that a frontend uses."""
    async with stand(APP, transport=transport) as running:
        (replica,) = running.directory.announced(APP.session.key)
        yield Target(replica.address, STAGE_DIALECT, lambda peer: Hello(frontend=peer))


@contextlib.asynccontextmanager
async def a_coordinator(transport: Transport = TCP) -> AsyncIterator[Target]:
    """A coordinator without frontends."""
    async with local_coordinator(SHARED, transport) as coordinator:
        plan = SHARED.epoch.plan
        yield Target(
            coordinator.address,
            COORDINATOR_DIALECT,
            lambda peer: Register(frontend=peer, plan=plan, next_batch=0),
        )
