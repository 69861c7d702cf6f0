"""A port of the frontend's own, beside Serve's proxy: taken, changed and left in place."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

logger = logging.getLogger(__name__)

LISTEN_AGAIN_SECONDS: Final = 5.0
GRACE_SECONDS: Final = 20.0
"""How long requests may go on once the port is left."""


class PortServer(Protocol):
    """Answers requests on one port."""

    async def listen(self, host: str, port: int) -> int:
        """Begin; the port that is listened on, a free one for 0. Raises OSError if it cannot be had."""

    async def close(self) -> None:
        """Take no more requests, and wait until those under way are answered, for GRACE_SECONDS at most."""


class PortEndpoint:
    """Answers by one protocol while it has a port; it is off until it is given one."""

    def __init__(
        self, protocol: str, host: str, make_server: Callable[[], PortServer], publish: Callable[[str | None], None]
    ) -> None:
        """`host` is the address that is listened on, and published with the port; None is published without one."""
        self._protocol = protocol
        self._host = host
        self._make_server = make_server
        self._publish = publish
        self._port: int | None = None
        self._server: PortServer | None = None
        self._listening: asyncio.Task[None] | None = None

    async def move_to(self, port: int | None) -> None:
        """Answer on this port from now on, 0 for any free one; None answers nowhere. The same one changes nothing."""
        if port == self._port:
            return
        await self.close()
        self._port = port
        if port is not None:
            self._listening = asyncio.create_task(self._listen_patiently(port))

    async def close(self) -> None:
        """Take no more requests, and wait until those under way are answered."""
        self._port = None
        self._publish(None)
        if self._listening is not None:
            self._listening.cancel()
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _listen_patiently(self, port: int) -> None:
        """A port that is taken, perhaps by the frontend that this one replaces, must not keep Serve from working."""
        while True:
            server = self._make_server()
            try:
                bound = await server.listen(self._host, port)
            except OSError as error:
                logger.warning("no %s on port %d yet: %s", self._protocol, port, error)
                await asyncio.sleep(LISTEN_AGAIN_SECONDS)
                continue
            self._server = server
            self._publish(f"{_written(self._host)}:{bound}")
            return


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host
