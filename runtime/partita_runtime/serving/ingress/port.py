"""The frontend's own port of one protocol, besides Serve's proxy; it can change while the frontend runs."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger(__name__)

LISTEN_AGAIN_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 20.0
"""How long pending requests may take once the port is closed."""


class PortServer(Protocol):
    """Answers requests on one port."""

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port, a free one for 0. Raises OSError if the port is not available."""

    async def close(self) -> None:
        """Take no more requests, and wait until pending ones are answered, for GRACE_SECONDS at most."""


class PortEndpoint:
    """Answers by one protocol while it has a port; by default it has none."""

    def __init__(
        self, protocol: str, host: str, make_server: Callable[[], PortServer], publish: Callable[[str | None], None]
    ) -> None:
        """`host` is the address to listen on. `publish` receives host:port, or None without a port."""
        self._protocol = protocol
        self._host = host
        self._make_server = make_server
        self._publish = publish
        self._port: int | None = None
        self._server: PortServer | None = None
        self._listening: asyncio.Task[None] | None = None

    async def move_to(self, port: int | None) -> None:
        """Answer on this port, 0 for any free one, None for no port. The current port changes nothing."""
        if port == self._port:
            return
        await self.close()
        self._port = port
        if port is not None:
            self._listening = asyncio.create_task(self._listen_patiently(port))

    async def close(self) -> None:
        """Take no more requests, and wait until pending ones are answered."""
        self._port = None
        self._publish(None)
        if self._listening is not None:
            self._listening.cancel()
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _listen_patiently(self, port: int) -> None:
        """Retry while the port is taken, perhaps by the frontend that this one replaces. Serve does not wait for it."""
        while True:
            server = self._make_server()
            try:
                bound = await server.listen(self._host, port)
            except OSError as error:
                logger.warning("%s cannot listen on port %d yet: %s", self._protocol, port, error)
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)
                continue
            self._server = server
            self._publish(f"{_written(self._host)}:{bound}")
            return


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
