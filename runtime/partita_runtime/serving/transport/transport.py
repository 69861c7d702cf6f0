"""How streams get from one process to another: the port, and connections of their own, which are the default."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from partita_runtime.serving.transport.wire import Hop

ProtocolT = TypeVar("ProtocolT", bound=asyncio.BufferedProtocol)


@dataclass(frozen=True)
class Listening:
    """Where peers can connect, as a `Hop` has it, until it is closed."""

    host: str
    port: int
    close: Callable[[], None]


class Carrier(Protocol):
    """Makes connections that asyncio's protocols are used on as they are on TCP."""

    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        """Have a new protocol take each connection that a peer makes; `host` is this machine's address."""

    async def connect(self, hop: Hop, make: Callable[[], ProtocolT]) -> ProtocolT:
        """A protocol on a connection to whoever listens there. Raises OSError if it cannot be reached."""


class _Tcp(Carrier):
    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        server = await asyncio.get_running_loop().create_server(make, host, 0)
        return Listening(host, server.sockets[0].getsockname()[1], server.close)

    async def connect(self, hop: Hop, make: Callable[[], ProtocolT]) -> ProtocolT:
        _, made = await asyncio.get_running_loop().create_connection(make, hop.host, hop.port)
        return made


TCP: Final[Carrier] = _Tcp()
