"""A rank that can be killed and started, on the event loop of its frontends, with real sockets and no Ray."""

import contextlib
from collections.abc import AsyncIterator

from tests.runtime.serving.plans import Application

from partita_runtime.serving.central.coordinator import RankServer
from partita_runtime.serving.transport.transport import TCP
from partita_runtime.serving.transport.wire import Hop


class LocalRank:
    """Where a session's rank is, if there is one."""

    carrier = TCP

    def __init__(self, session_key: str) -> None:
        self._session_key = session_key
        self.server: RankServer | None = None
        self._hop: Hop | None = None

    async def address(self) -> Hop:
        if self._hop is None:
            raise LookupError("there is no rank")
        return self._hop

    async def start(self) -> RankServer:
        self.server = RankServer(self._session_key)
        self._hop = await self.server.start("127.0.0.1")
        return self.server

    def lead_to(self, hop: Hop) -> None:
        """Say that the rank is there."""
        self._hop = hop

    async def kill(self) -> None:
        self._hop = None
        if self.server is not None:
            await self.server.stop()
            self.server = None


@contextlib.asynccontextmanager
async def local_rank(app: Application) -> AsyncIterator[LocalRank]:
    """The running rank of a session."""
    made = LocalRank(app.session.key)
    await made.start()
    try:
        yield made
    finally:
        await made.kill()
