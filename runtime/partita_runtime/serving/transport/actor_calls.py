"""Streams by Ray actor calls, for networks that let pods reach each other on Ray's ports only.

The process that listens is a named actor. The process that connects is an actor, too: it sends its own handle with the
first call, and is called back through it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from partita_runtime.serving.transport.call_connections import CallablePeer, Exchange, Parcel, Piece
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.mutual_tls import MutualTls
from partita_runtime.serving.transport.tls_files import TlsFiles
from partita_runtime.serving.transport.transport import TCP, Listening, ProtocolT, Transport
from partita_runtime.serving.transport.wire import PeerAddress

SERVE_NAMESPACE: Final = "serve"
"""Ray's namespace of the actors that are Serve's replicas."""
_SCHEME: Final = "actor:"
_ARGUMENT: Final = 64 * 1024
"""Arguments are cut to this size. Ray puts arguments above 100 KiB into its object store."""
_MOST_WITHIN: Final = 1024 * 1024
"""Above this size of a message the object store is faster than many arguments."""

_EXCHANGE: Final = Exchange()
"""The connections of this process; calls of other processes find it through this module."""


class RayTransport(Transport):
    """Listens by the given kind of transport, and connects by the kind that the address says. Use it in an actor."""

    def __init__(self, kind: TransportKind, tls: TlsFiles | None = None, namespace: str = SERVE_NAMESPACE) -> None:
        """With `tls`, it connects by TLS only. `namespace` is Ray's namespace of this actor."""
        self._kind = kind
        self._tcp = TCP if tls is None else MutualTls(tls)
        self._namespace = namespace

    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        """See `transport.Transport`."""
        if self._kind is TransportKind.STREAMS:
            return await self._tcp.listen(host, make)
        name = ray.get_runtime_context().get_actor_name()
        number = _EXCHANGE.listen(make)
        return Listening(f"{_SCHEME}{self._namespace}/{name}", number, lambda: _EXCHANGE.close_listener(number))

    async def connect(self, address: PeerAddress, make: Callable[[], ProtocolT]) -> ProtocolT:
        """See `transport.Transport`."""
        if not address.host.startswith(_SCHEME):
            return await self._tcp.connect(address, make)
        if self._tcp is not TCP:
            raise ConnectionError("it is reached by Ray's calls, which are not encrypted: its setting of TLS differs")
        namespace, _, name = address.host.removeprefix(_SCHEME).partition("/")
        try:
            handle = await asyncio.to_thread(ray.get_actor, name, namespace=namespace)
            return await _EXCHANGE.connect(_ActorPeer(handle), address.port, make)
        except (ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ConnectionError(f"actor {name} of {namespace} cannot be called: {error}") from error


class _ActorPeer(CallablePeer):
    def __init__(self, handle: ActorHandle[Any]) -> None:
        self._handle = handle

    def open(self, connection: str, listener: int) -> "asyncio.Future[bool]":
        own = ray.get_runtime_context().current_actor
        return _answer(self._handle.__ray_call__.remote(_accept, connection, listener, own))

    def deliver(self, parcel: Parcel) -> "asyncio.Future[bool]":
        pieces = _arguments(parcel.pieces)
        return _answer(
            self._handle.__ray_call__.remote(_deliver, parcel.connection, parcel.number, parcel.last, *pieces)
        )


def _arguments(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """The same bytes as arguments of a call. Each is small enough to travel in the call, up to _MOST_WITHIN in all."""
    if sum(map(len, pieces)) > _MOST_WITHIN:
        return pieces
    return [piece[start : start + _ARGUMENT] for piece in pieces for start in range(0, len(piece), _ARGUMENT)]


def _answer(ref: "ray.ObjectRef[bool]") -> "asyncio.Future[bool]":
    return asyncio.wrap_future(ref.future())


def _accept(_: object, connection: str, listener: int, caller: ActorHandle[Any]) -> bool:
    return _EXCHANGE.accept(connection, listener, _ActorPeer(caller))


def _deliver(_: object, connection: str, number: int | None, last: bool, *pieces: Piece) -> bool:
    return _EXCHANGE.deliver(Parcel(connection, number, pieces, last))
