"""Connections made of calls between processes, which may arrive in any order. Independent of Ray.

Everything that is written to a connection in one turn of the event loop is one call. The answer to a call says whether
the peer still has the connection.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from partita_runtime.serving.transport.transport import ProtocolT, feed

logger = logging.getLogger(__name__)

PROBE_SECONDS: Final = 0.5
"""How often a peer is probed that was not called in between."""
UNRESPONSIVE_SECONDS: Final = 5.0
"""A peer that has not answered a call for this long is lost."""
_JOIN_BELOW: Final = 64 * 1024

Piece = bytes | NDArray[np.uint8]
"""Bytes in a call. Large pieces are arrays, which Ray sends without a copy."""
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class Parcel:
    """The content of one call for a connection."""

    connection: str
    number: int | None
    """Sequence number of calls with content, from 0; None for a probe of the connection."""
    pieces: Sequence[Piece] = ()
    last: bool = False
    """Whether it is the last of its connection."""


class CallablePeer(Protocol):
    """A process that can be called; calls are answered on the event loop that they are made on."""

    def open(self, connection: str, listener: int) -> "asyncio.Future[bool]":
        """Call `Exchange.accept` in the peer's process; fails if the process is gone."""

    def deliver(self, parcel: Parcel) -> "asyncio.Future[bool]":
        """Call `Exchange.deliver` in the peer's process; fails if the process is gone."""


class Exchange:
    """All connections of one process, by id. Peers' calls may arrive on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[], asyncio.BufferedProtocol]]] = {}
        self._connections: dict[str, CallConnection] = {}

    def listen(self, make: Callable[[], asyncio.BufferedProtocol]) -> int:
        """Accept connections on the running event loop; the number to connect to, from 1."""
        with self._lock:
            number = next(n for n in range(1, len(self._listeners) + 2) if n not in self._listeners)
            self._listeners[number] = asyncio.get_running_loop(), make
        return number

    def close_listener(self, number: int) -> None:
        """Accept no more connections there."""
        with self._lock:
            self._listeners.pop(number, None)

    async def connect(self, peer: CallablePeer, listener: int, make: Callable[[], ProtocolT]) -> ProtocolT:
        """A protocol on a new connection. Raises ConnectionError if there is no such listener."""
        connection = CallConnection(uuid.uuid4().hex, peer, asyncio.get_running_loop(), self._forget)
        with self._lock:
            self._connections[connection.id] = connection
        try:
            if not await asyncio.shield(peer.open(connection.id, listener)):
                raise ConnectionRefusedError("the peer does not listen any more")
        except BaseException:
            self._forget(connection.id)
            raise
        protocol = make()
        connection.begin(protocol)
        return protocol

    def accept(self, connection_id: str, listener: int, peer: CallablePeer) -> bool:
        """A peer connects; False if there is no such listener."""
        with self._lock:
            found = self._listeners.get(listener)
            if found is None:
                return False
            loop, make = found
            made = self._connections[connection_id] = CallConnection(connection_id, peer, loop, self._forget)
        return _soon(loop, lambda: made.begin(make()))

    def deliver(self, parcel: Parcel) -> bool:
        """A peer sends a parcel; False if its connection does not exist."""
        with self._lock:
            connection = self._connections.get(parcel.connection)
        return connection is not None and _soon(connection.loop, lambda: connection.take(parcel))

    def _forget(self, connection_id: str) -> None:
        with self._lock:
            self._connections.pop(connection_id, None)


class CallConnection(asyncio.Transport):
    """One end of a connection; use it on its event loop."""

    def __init__(
        self, connection_id: str, peer: CallablePeer, loop: asyncio.AbstractEventLoop, forget: Callable[[str], None]
    ) -> None:
        super().__init__()
        self.id = connection_id
        self.loop = loop
        self._peer = peer
        self._forget = forget
        self._protocol: asyncio.BufferedProtocol | None = None
        self._written: list[Buffer] = []
        self._sent = 0
        """Parcels sent."""
        self._called = False
        """Whether the peer was called since the last probe."""
        self._unanswered: dict[object, tuple[float, int]] = {}
        """When each unanswered call was made, in order, and its bytes."""
        self._early: dict[int, Parcel] = {}
        """Parcels that arrived before one that was sent earlier."""
        self._taken = 0
        """Parcels handed to the protocol, in order."""
        self._closing = self._ended = False
        self._probing: asyncio.TimerHandle | None = None

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        """The connection is made; the protocol receives the parcels that have arrived already."""
        self._protocol = protocol
        self._probing = self.loop.call_later(PROBE_SECONDS, self._probe)
        protocol.connection_made(self)
        self._take_in_order()

    def take(self, parcel: Parcel) -> None:
        """A parcel has arrived."""
        if parcel.number is not None and parcel.number >= self._taken:
            self._early[parcel.number] = parcel
            if self._protocol is not None:
                self._take_in_order()

    def write(self, data: Buffer) -> None:
        """See asyncio.Transport. Do not change `data` afterwards."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """See asyncio.Transport. Do not change the data afterwards."""
        if not self._closing:
            if not self._written:
                self.loop.call_soon(self._flush)
            self._written += list_of_data

    def get_write_buffer_size(self) -> int:
        """Bytes that the peer's process has not confirmed yet."""
        return sum(map(len, self._written)) + sum(size for _, size in self._unanswered.values())

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._closing

    def close(self) -> None:
        """See asyncio.Transport."""
        if not self._closing:
            self._closing = True
            self._send_written(last=True)

    def abort(self) -> None:
        """See asyncio.Transport."""
        self._written.clear()
        self.close()
        self._end_soon(None)

    def _flush(self) -> None:
        if self._written and not self._closing:
            self._send_written()

    def _send_written(self, last: bool = False) -> None:
        pieces, size = _pieces(self._written), sum(map(len, self._written))
        self._written.clear()
        number, self._sent = self._sent, self._sent + 1
        self._call(Parcel(self.id, number, pieces, last), size)

    def _call(self, parcel: Parcel, size: int) -> None:
        self._called = True
        try:
            answer = self._peer.deliver(parcel)
        except Exception as error:
            self._end_soon(error)
            return
        self._unanswered[answer] = time.monotonic(), size
        answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[bool]") -> None:
        self._unanswered.pop(answer, None)
        error = ConnectionAbortedError("the call was cancelled") if answer.cancelled() else answer.exception()
        if error is not None:
            self._end_soon(error if isinstance(error, Exception) else None)
        elif not answer.result() or (self._closing and not self._unanswered):
            self._end_soon(None)

    def _probe(self) -> None:
        oldest = next(iter(self._unanswered.values()), None)
        if oldest is not None and time.monotonic() - oldest[0] > UNRESPONSIVE_SECONDS:
            self._end_soon(TimeoutError(f"the peer has not answered a call for {UNRESPONSIVE_SECONDS:.0f} s"))
            return
        if not self._called and not self._closing:
            self._call(Parcel(self.id, None), 0)
        self._called = False
        self._probing = self.loop.call_later(PROBE_SECONDS, self._probe)

    def _take_in_order(self) -> None:
        while not self._closing and (parcel := self._early.pop(self._taken, None)) is not None:
            self._taken += 1
            try:
                for piece in parcel.pieces:
                    assert self._protocol is not None
                    feed(piece.data if isinstance(piece, np.ndarray) else memoryview(piece), self._protocol, self)
            except Exception as error:
                logger.exception("a connection is closed: its protocol could not handle the data")
                self.close()
                self._end_soon(error)
            if parcel.last:
                self._end_soon(None)

    def _end_soon(self, error: Exception | None) -> None:
        if not self._ended:
            self._closing = self._ended = True
            self._written.clear()
            self._forget(self.id)
            if self._probing is not None:
                self._probing.cancel()
            self.loop.call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)


def _pieces(written: Sequence[Buffer]) -> list[Piece]:
    """The same bytes in few pieces; large pieces are not copied."""
    pieces: list[Piece] = []
    small: list[Buffer] = []
    for data in written:
        if len(data) < _JOIN_BELOW:
            small.append(data)
        else:
            pieces += [b"".join(small)] * bool(small) + [np.frombuffer(data, np.uint8)]
            small = []
    return pieces + [b"".join(small)] * bool(small)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
    """Schedule a call on a loop of another thread; False if the loop is closed."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return False
    return True
