"""A coordinator that tests can kill and start, on the event loop of its frontends, with real sockets, without Ray."""

import contextlib
from collections.abc import AsyncIterator

from tests.runtime.serving.plans import Application

from partita_runtime.serving.central.coordinator import CoordinatorServer
from partita_runtime.serving.central.coordinator_link import CoordinatorState
from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import PeerAddress


class LocalCoordinator:
    """The address of a session's coordinator, if there is one."""

    def __init__(self, session_key: str, transport: Transport = TCP) -> None:
        self.transport = transport
        self._session_key = session_key
        self.server: CoordinatorServer | None = None
        self._address: PeerAddress | None = None
        self._active = False

    @property
    def address(self) -> PeerAddress:
        if self._address is None:
            raise LookupError("there is no coordinator")
        return self._address

    @property
    def running(self) -> CoordinatorServer:
        assert self.server is not None, "it was killed"
        return self.server

    async def find(self, lost: PeerAddress | None = None) -> CoordinatorState:
        return CoordinatorState(self.address, self._active, node="node")

    async def start(self) -> CoordinatorServer:
        self.server = CoordinatorServer(self._session_key, self.transport)
        self._address = await self.server.start("127.0.0.1")
        return self.server

    def lead_to(self, address: PeerAddress, active: bool = False) -> None:
        """Announce the coordinator; `active` says that other frontends use it."""
        self._address, self._active = address, active

    async def kill(self) -> None:
        self._address = None
        if self.server is not None:
            await self.server.stop()
            self.server = None


@contextlib.asynccontextmanager
async def local_coordinator(app: Application, transport: Transport = TCP) -> AsyncIterator[LocalCoordinator]:
    """The running coordinator of a session."""
    made = LocalCoordinator(app.session.key, transport)
    await made.start()
    try:
        yield made
    finally:
        await made.kill()
