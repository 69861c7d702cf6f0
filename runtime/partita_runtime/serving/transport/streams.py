"""One connection that carries messages, as an asyncio protocol."""

import asyncio
import fcntl
import logging
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Final, Generic, Protocol, TypeVar, cast

from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import (
    Array,
    Decoder,
    Dialect,
    MessageT,
    PeerAddress,
    WireError,
    WireModel,
    encode,
)

logger = logging.getLogger(__name__)

DEAD_PEER_SECONDS: Final = 3
"""A peer whose machine has failed counts as lost after about this long."""
_JOIN_BELOW: Final = 64 * 1024

_Received = TypeVar("_Received", bound=WireModel)


class Receiver(Protocol[_Received]):
    """Receives a stream's messages; called on the event loop."""

    def admit(self, stream: "MessageStream[_Received]", message: _Received) -> None:
        """Raise WireError to refuse a message before its tensors are received; the stream is then closed."""

    def received(self, stream: "MessageStream[_Received]", message: _Received, tensors: list[Array]) -> None:
        """A message has arrived."""

    def lost(self, stream: "MessageStream[_Received]") -> None:
        """The stream is closed, by either side."""


class MessageStream(asyncio.BufferedProtocol, Generic[MessageT]):
    """A connection to a peer, which carries the messages of one dialect."""

    def __init__(self, dialect: Dialect[MessageT], receiver: Receiver[MessageT]) -> None:
        self._dialect = dialect
        self._receiver = receiver
        self._decoder = Decoder(dialect, lambda message: receiver.admit(self, message))
        self._transport: asyncio.Transport | None = None
        self.received_bytes = 0
        """Bytes that have arrived so far."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_sent(self) -> bool:
        """Whether the peer's machine has received all messages."""
        transport = self._transport
        return transport is not None and not transport.get_write_buffer_size() and not _unconfirmed_bytes(transport)

    def send(self, message: MessageT, arrays: Sequence[Array] = ()) -> bool:
        """Queue a message for sending; False if the stream is closed. Do not change `arrays` afterwards."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        chunks = encode(message, arrays, self._dialect.max_header_bytes)
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif sum(map(len, chunks)) < _JOIN_BELOW:
            transport.write(b"".join(chunks))
        else:
            transport.writelines(chunks)
        return True

    def introduce(self, token: str) -> None:
        """Send the token of the process that this stream has connected to, before the first message."""
        if self._transport is not None:
            self._transport.write(token.encode())

    def close(self) -> None:
        """Close once all messages are sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self) -> None:
        """Close at once; messages that are not sent yet are lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            _notice_dead_peers(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        return self._decoder.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        self.received_bytes += nbytes
        try:
            complete = self._decoder.received(nbytes)
            if complete is not None:
                self._deliver(*complete)
        except WireError as error:
            logger.warning("closing a stream: %s", error)
            self.close()

    def _deliver(self, message: MessageT, tensors: list[Array]) -> None:
        self._receiver.received(self, message, tensors)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        if exc is not None:
            logger.info("a stream was lost: %s", exc)
        self._receiver.lost(self)


async def connect(
    address: PeerAddress,
    dialect: Dialect[MessageT],
    receiver: Receiver[MessageT],
    transport: Transport = TCP,
    seconds: float = 5.0,
) -> MessageStream[MessageT]:
    """A stream to the process that listens at `address`. Raises OSError if it cannot be reached in time."""
    async with asyncio.timeout(seconds):
        stream = await transport.connect(address, lambda: MessageStream(dialect, receiver))
    stream.introduce(address.token)
    return stream


def _notice_dead_peers(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 1),
        ("TCP_KEEPINTVL", 1),
        ("TCP_KEEPCNT", DEAD_PEER_SECONDS - 1),
        ("TCP_USER_TIMEOUT", DEAD_PEER_SECONDS * 1000),
    ):
        if hasattr(socket, option):  # not on every platform
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _unconfirmed_bytes(transport: asyncio.Transport) -> int:
    """Bytes that this machine has sent and the peer's has not confirmed; 0 where the system does not say.

    With TLS the event loop counts only a part of what waits behind them.
    """
    sock = transport.get_extra_info("socket")
    if sock is None:
        return 0
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))
    except OSError:
        return 0
    return int(count)
