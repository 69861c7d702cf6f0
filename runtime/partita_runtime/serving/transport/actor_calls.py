"""Streams by Ray actor calls: for networks that let pods reach each other on no ports but Ray's.

Whoever listens is an actor with a name. Whoever connects to it is an actor, too, and sends its handle along, by which
it is answered.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import ray
from ray.actor import ActorHandle

from partita_runtime.serving.transport.call_connections import Exchange, Parcel, Peer, Piece
from partita_runtime.serving.transport.kind import Transport
from partita_runtime.serving.transport.transport import TCP, Carrier, Listening, ProtocolT
from partita_runtime.serving.transport.wire import Hop

SERVE_NAMESPACE: Final = "serve"
"""Ray's namespace of the actors that are Serve's replicas."""
_SCHEME: Final = "actor:"
_ARGUMENT: Final = 64 * 1024
"""Ray puts arguments of more than 100 KiB into its object store, which takes longer than a message up to about here:"""
_MOST_WITHIN: Final = 1024 * 1024

_EXCHANGE: Final = Exchange()
"""Of this process, which calls from others find by the name of this module."""


class RayCarrier(Carrier):
    """Listens as it is told to, and connects as the one that listens does. To be used within an actor."""

    def __init__(self, transport: Transport, namespace: str = SERVE_NAMESPACE) -> None:
        """`namespace` is Ray's namespace of this actor."""
        self._transport = transport
        self._namespace = namespace

    async def listen(self, host: str, make: Callable[[], asyncio.BufferedProtocol]) -> Listening:
        """See `Carrier`."""
        if self._transport is Transport.STREAMS:
            return await TCP.listen(host, make)
        name = ray.get_runtime_context().get_actor_name()
        number = _EXCHANGE.listen(make)
        return Listening(f"{_SCHEME}{self._namespace}/{name}", number, lambda: _EXCHANGE.close_listener(number))

    async def connect(self, hop: Hop, make: Callable[[], ProtocolT]) -> ProtocolT:
        """See `Carrier`."""
        if not hop.host.startswith(_SCHEME):
            return await TCP.connect(hop, make)
        namespace, _, name = hop.host.removeprefix(_SCHEME).partition("/")
        try:
            handle = await asyncio.to_thread(ray.get_actor, name, namespace=namespace)
            return await _EXCHANGE.connect(_ActorPeer(handle), hop.port, make)
        except (ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ConnectionError(f"actor {name} of {namespace} cannot be called: {error}") from error


class _ActorPeer(Peer):
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
    """The same bytes as arguments of a call: unless they are many, each small enough to travel within it."""
    if sum(map(len, pieces)) > _MOST_WITHIN:
        return pieces
    return [piece[start : start + _ARGUMENT] for piece in pieces for start in range(0, len(piece), _ARGUMENT)]


def _answer(ref: "ray.ObjectRef[bool]") -> "asyncio.Future[bool]":
    return asyncio.wrap_future(ref.future())


def _accept(_: object, connection: str, listener: int, caller: ActorHandle[Any]) -> bool:
    return _EXCHANGE.accept(connection, listener, _ActorPeer(caller))


def _deliver(_: object, connection: str, number: int | None, last: bool, *pieces: Piece) -> bool:
    return _EXCHANGE.deliver(Parcel(connection, number, pieces, last))
