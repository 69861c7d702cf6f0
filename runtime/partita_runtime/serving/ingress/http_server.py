"""The session's HTTP interface on the frontend's own port, without Serve's proxy."""

import asyncio
import resource
from functools import partial
from typing import Final

from partita_runtime.serving.deploy.names import route_prefix
from partita_runtime.serving.ingress.http_connection import HttpConnection
from partita_runtime.serving.ingress.http_head import HeadReader
from partita_runtime.serving.ingress.http_service import HttpService
from partita_runtime.serving.ingress.port import GRACE_SECONDS, PortEndpoint
from partita_runtime.serving.session.session import Session

CHECK_SECONDS: Final = 0.5
"""How often the time limits of connections are checked."""
_BACKLOG: Final = 1024
_SCRATCH_BYTES: Final = 16 * 1024


def http_endpoint(session: Session, host: str) -> PortEndpoint:
    """HTTP for `session` on `host`; the session publishes its address."""
    return PortEndpoint("HTTP", host, lambda: HttpServer(session), partial(setattr, session.addresses, "http"))


class HttpServer:
    """The connections to one port. If there are too many, it closes the one that has waited for its client longest."""

    def __init__(self, session: Session) -> None:
        self.service = HttpService(session)
        self.heads = HeadReader(self.service, route_prefix(session.key))
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.closing = False
        self._most = min(session.settings.max_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3 // 4)
        self._connections: set[HttpConnection] = set()
        self._waiting: dict[HttpConnection, None] = {}
        """Connections that wait for their client, the longest first."""
        self._server: asyncio.Server | None = None
        self._checking: asyncio.Task[None] | None = None
        self._deserted = asyncio.Event()

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port. Raises OSError if the port is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), host, port, backlog=_BACKLOG)
        self._checking = asyncio.create_task(self._check_forever())
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Take no more requests, and wait until pending ones are answered, for GRACE_SECONDS at most."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        for connection in [*self._waiting]:
            connection.leave()
        try:
            async with asyncio.timeout(GRACE_SECONDS):
                while self._connections:
                    self._deserted.clear()
                    await self._deserted.wait()
        except TimeoutError:
            for connection in [*self._connections]:
                connection.abort()
        if self._checking is not None:
            self._checking.cancel()

    def waits(self, connection: HttpConnection) -> None:
        """A connection waits for its client to send a request, or the rest of one."""
        self._connections.add(connection)
        self._waiting[connection] = None
        if len(self._connections) > self._most:
            next(iter(self._waiting)).abort()

    def works(self, connection: HttpConnection) -> None:
        """A connection has a request to answer, or is about to close."""
        self._waiting.pop(connection, None)

    def gone(self, connection: HttpConnection) -> None:
        """A connection is closed."""
        self._connections.discard(connection)
        self._waiting.pop(connection, None)
        if not self._connections:
            self._deserted.set()

    async def _check_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            now = loop.time()
            for connection in [*self._connections]:
                connection.expire(now)
