"""Streams over TCP with mutual TLS: both sides have a certificate of the authority that their Ray cluster trusts.

A peer without one is disconnected before a byte of it is decoded.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final, Generic

from partita_runtime.serving.transport.refusal_log import RefusalLog
from partita_runtime.serving.transport.tls_files import Credentials, TlsFiles
from partita_runtime.serving.transport.transport import Listening, ProtocolT, Transport, feed
from partita_runtime.serving.transport.wire import PeerAddress

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 4.0
"""How long a peer may take to show its certificate. Less than `streams.connect` waits in all."""
MOST_HANDSHAKES: Final = 64
"""Most connections that have not shown a certificate yet. One more, and the oldest of them is closed."""
_SHUTDOWN_SECONDS: Final = 5.0
"""How long a peer may take to confirm that a connection ends."""
_ACCEPT_AGAIN_SECONDS: Final = 0.1
_BACKLOG: Final = 100


class MutualTls(Transport):
    """TLS 1.3 only, and only with peers whose certificate has the name and is of one of the authorities."""

    def __init__(self, files: TlsFiles) -> None:
        self._credentials = Credentials(files)
        self._refusals = RefusalLog(logger)

    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        """See `transport.Transport`. Raises OSError if there is no certificate."""
        self._credentials.current()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        listener.setblocking(False)
        handshakes = _Handshakes(self._credentials, self._refusals, make)
        accepting = asyncio.create_task(handshakes.accept_forever(listener))

        def close() -> None:
            accepting.cancel()

        return Listening(host, listener.getsockname()[1], close)

    async def connect(self, address: PeerAddress, make: Callable[[], ProtocolT]) -> ProtocolT:
        """See `transport.Transport`."""
        try:
            _, reading = await asyncio.get_running_loop().create_connection(
                lambda: _Reading(make()),
                address.host,
                address.port,
                ssl=self._credentials.current().client,
                server_hostname=self._credentials.name,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            self._refusals.note("the process at %s:%d is refused: %s", address.host, address.port, _reason(error))
            raise
        return reading.protocol


class _Reading(asyncio.Protocol, Generic[ProtocolT]):
    """Hands what arrives to a protocol.

    asyncio would fill only one of the protocol's buffers in each turn of the event loop, and would not deliver the
    rest once the peer has closed the connection.
    """

    def __init__(self, protocol: ProtocolT) -> None:
        self.protocol = protocol
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        feed(memoryview(data), self.protocol, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.protocol.connection_lost(exc)


class _Handshakes:
    """Accepts connections; those that have not shown a certificate are bounded in number and time."""

    def __init__(
        self, credentials: Credentials, refusals: RefusalLog, make: Callable[[], asyncio.BufferedProtocol]
    ) -> None:
        self._credentials = credentials
        self._refusals = refusals
        self._make = make
        self._running: dict[asyncio.Task[None], None] = {}
        """The oldest first."""

    async def accept_forever(self, listener: socket.socket) -> None:
        """Accept connections until the task is cancelled. Closes the listener then."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    logger.warning("a connection cannot be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_AGAIN_SECONDS)
                    continue
                self._begin(loop.create_task(self._greet(connection)))
                await asyncio.sleep(0)  # many connections do not stop the event loop
        finally:
            listener.close()
            for handshake in self._running:
                handshake.cancel()

    def _begin(self, handshake: asyncio.Task[None]) -> None:
        self._running[handshake] = None
        handshake.add_done_callback(self._running.pop)
        if len(self._running) > MOST_HANDSHAKES:
            next(iter(self._running)).cancel()
            self._refuse(f"more than {MOST_HANDSHAKES} connections have not shown a certificate")

    async def _greet(self, connection: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: _Reading(self._make()),
                connection,
                ssl=self._credentials.current().server,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except OSError as error:
            self._refuse(_reason(error))

    def _refuse(self, reason: str) -> None:
        self._refusals.note("a connection is refused: %s", reason)


def _reason(error: OSError) -> str:
    """Why a handshake failed, without text of the peer."""
    if not isinstance(error, ssl.SSLError):
        return f"it ends the handshake, or takes more than {HANDSHAKE_SECONDS:g} s"
    found = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    return str(found).replace("_", " ").lower() if found else str(error)
