"""How streams connect processes: the interface, and TCP, the default."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from partita_runtime.serving.transport.wire import PeerAddress

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BufferedProtocol)


@dataclass(frozen=True)
class Listening:
    """Where peers can connect, as in a `PeerAddress`, until `close` is called."""

    host: str
    port: int
    close: Callable[[], None]


def feed(data: memoryview, protocol: asyncio.BufferedProtocol, transport: asyncio.BaseTransport) -> None:
    """Hand all of `data` to a protocol, unless it closes its transport meanwhile."""
    while data and not transport.is_closing():
        buffer = memoryview(protocol.get_buffer(len(data)))
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        protocol.buffer_updated(count)
        data = data[count:]


class Transport(Protocol):
    """Makes connections for asyncio's protocols."""

    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        """Accept connections, each with a new protocol; `host` is this machine's address."""

    async def connect(self, address: PeerAddress, make: Callable[[], ProtocolT]) -> ProtocolT:
        """A protocol on a connection to the process at `address`. Raises OSError if it cannot be reached."""


class _Tcp(Transport):
    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        server = await asyncio.get_running_loop().create_server(make, host, 0)
        return Listening(host, server.sockets[0].getsockname()[1], server.close)

    async def connect(self, address: PeerAddress, make: Callable[[], ProtocolT]) -> ProtocolT:
        _, made = await asyncio.get_running_loop().create_connection(make, address.host, address.port)
        return made


TCP: Final[Transport] = _Tcp()
