"""A way between processes that can lose what is on it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from partita_runtime.serving.transport.wire import PeerAddress


@dataclass
class Relay:
    """Passes connections on to a replica, except for what it is told to swallow."""

    to: PeerAddress | None = None
    port: int = 0
    server: asyncio.Server | None = None
    connections: int = 0
    """Those that are passed on, or were."""
    swallowed: set[int] = field(default_factory=set)
    """Connections, in order from 0, whose bytes to the replica never arrive."""
    deaf: bool = False
    """Whether what the replica says is lost."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _passing: dict[asyncio.Task[None], int] = field(default_factory=dict)
    """Each direction of each connection, with the connection's number."""

    def lead_to(self, address: PeerAddress) -> PeerAddress:
        """Pass connections on to the replica at `address`; where it is reached through the relay."""
        self.to = address
        return address.model_copy(update={"port": self.port})

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Called for every connection."""
        number = next(self._numbers)
        swallow = number in self.swallowed
        assert self.to is not None
        away_reader, away_writer = await asyncio.open_connection(self.to.host, self.to.port)
        for passing in (
            self._pass(reader, away_writer, lambda: not swallow),
            self._pass(away_reader, writer, lambda: not self.deaf),
        ):
            task = asyncio.create_task(passing)
            self._passing[task] = number
            task.add_done_callback(self._passing.pop)
        self.connections += 1  # only now can it be cut

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, works: Callable[[], bool]
    ) -> None:
        try:
            with contextlib.suppress(OSError):
                while content := await reader.read(1 << 16):
                    if works():
                        writer.write(content)
        finally:
            writer.close()

    def refuse(self) -> None:
        """Take no more connections; those that there are stay."""
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
    """A relay that leads nowhere yet."""
    made = Relay()
    made.server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = made.server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.close()
