"""A connection between processes that can lose data."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from partita_runtime.serving.transport.wire import PeerAddress


@dataclass
class Relay:
    """Forwards connections to a replica, except for data that it drops on request."""

    to: PeerAddress | None = None
    port: int = 0
    server: asyncio.Server | None = None
    connections: int = 0
    """Forwarded connections, present and past."""
    swallowed: set[int] = field(default_factory=set)
    """Connections, in order from 0, whose bytes to the replica never arrive."""
    bytes_per_second: float | None = None
    """Bandwidth in each direction of each connection; None for all there is."""
    deaf: bool = False
    """Whether data from the replica is dropped."""
    hold: Callable[[bytes], Awaitable[object]] | None = None
    """Awaited with data to the replica before it is passed on."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _passing: dict[asyncio.Task[None], int] = field(default_factory=dict)
    """Each direction of each connection, with the connection's number."""

    def lead_to(self, address: PeerAddress) -> PeerAddress:
        """Forward connections to the replica at `address`. Returns the relay's address."""
        self.to = address
        return address.model_copy(update={"port": self.port})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for every connection."""
        number = next(self._numbers)
        swallow = number in self.swallowed
        assert self.to is not None
        away_reader, away_writer = await asyncio.open_connection(self.to.host, self.to.port)
        for passing in (
            self._pass(reader, away_writer, lambda: not swallow, self.hold),
            self._pass(away_reader, writer, lambda: not self.deaf),
        ):
            task = asyncio.create_task(passing)
            self._passing[task] = number
            task.add_done_callback(self._passing.pop)
        self.connections += 1  # from now on it can be cut

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        works: Callable[[], bool],
        hold: Callable[[bytes], Awaitable[object]] | None = None,
    ) -> None:
        try:
            with contextlib.suppress(OSError):
                while content := await reader.read(1 << 16):
                    if self.bytes_per_second is not None:
                        await asyncio.sleep(len(content) / self.bytes_per_second)
                    if hold is not None:
                        await hold(content)
                    if works():
                        writer.write(content)
        finally:
            writer.close()

    def refuse(self) -> None:
        """Accept no more connections; existing ones stay."""
        if self.server is not None:
            self.server.close()

    def cut(self, connection: int) -> None:
        """Cut one connection."""
        for task, number in self._passing.items():
            if number == connection:
                task.cancel()

    def close(self) -> None:
        """Cut all connections."""
        self.refuse()
        for task in self._passing:
            task.cancel()


@contextlib.asynccontextmanager
async def relay() -> AsyncIterator[Relay]:
    """A relay without a destination."""
    made = Relay()
    made.server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = made.server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.close()
