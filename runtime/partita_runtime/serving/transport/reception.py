"""Connections that peers make to a listening process: each begins with the process's token. Their number is bounded."""

import asyncio
import hmac
import logging
import secrets
from typing import Any, Final

from partita_runtime.serving.transport.refusal_log import RefusalLog
from partita_runtime.serving.transport.streams import MessageStream, Receiver
from partita_runtime.serving.transport.wire import Array, Dialect, MessageT

logger = logging.getLogger(__name__)

INTRODUCTION_SECONDS: Final = 10.0
"""How long a peer may take to send the token and its first message."""
MOST_STRANGERS: Final = 64
"""Most connections that have not sent the token yet. One more, and the oldest of them is closed."""
MOST_PEERS: Final = 1024
"""Most connections that have sent the token. One more is refused."""


class Reception:
    """The connections to one listening process; use it on the event loop that it listens on."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        """What a peer must send first."""
        self._strangers: dict[IncomingStream[Any], None] = {}
        """Connections without the token, the oldest first."""
        self._peers: set[IncomingStream[Any]] = set()
        self._refusals = RefusalLog(logger)

    def stream(self, dialect: Dialect[MessageT], receiver: Receiver[MessageT]) -> "IncomingStream[MessageT]":
        """The protocol of the next connection."""
        return IncomingStream(dialect, receiver, self)

    # Called by the streams.

    def arrive(self, stream: "IncomingStream[Any]") -> None:
        """A stranger has connected."""
        self._strangers[stream] = None
        if len(self._strangers) > MOST_STRANGERS:
            self.refuse(next(iter(self._strangers)), f"more than {MOST_STRANGERS} connections have not sent the token")

    def accepts(self, stream: "IncomingStream[Any]", given: bytes) -> bool:
        """Whether the stranger's first bytes are the token, and it becomes a peer; otherwise it is refused."""
        if not hmac.compare_digest(given, self.token.encode()):
            self.refuse(stream, "it does not begin with this process's token")
            return False
        if len(self._peers) >= MOST_PEERS:
            self.refuse(stream, f"there are {MOST_PEERS} peers already")
            return False
        del self._strangers[stream]
        self._peers.add(stream)
        return True

    def refuse(self, stream: "IncomingStream[Any]", reason: str) -> None:
        """Close a connection. The log has one line of many such connections."""
        self._refusals.note("a connection is refused: %s", reason)
        self.leave(stream)
        stream.abort()

    def leave(self, stream: "IncomingStream[Any]") -> None:
        """A connection is closed. Harmless the second time."""
        self._strangers.pop(stream, None)
        self._peers.discard(stream)


class IncomingStream(MessageStream[MessageT]):
    """A connection that a peer has made. Nothing that it sends is decoded before the token has arrived."""

    def __init__(self, dialect: Dialect[MessageT], receiver: Receiver[MessageT], reception: Reception) -> None:
        super().__init__(dialect, receiver)
        self._reception = reception
        self._introduction = memoryview(bytearray(len(reception.token)))
        self._filled = 0
        self._is_peer = False
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        loop, reason = asyncio.get_running_loop(), f"it sends no message within {INTRODUCTION_SECONDS:g} s"
        self._late = loop.call_later(INTRODUCTION_SECONDS, self._reception.refuse, self, reason)
        self._reception.arrive(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio."""
        return super().get_buffer(sizehint) if self._is_peer else self._introduction[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        if self._is_peer:
            super().buffer_updated(nbytes)
            return
        self._filled += nbytes
        if self._filled == len(self._introduction):
            self._is_peer = self._reception.accepts(self, bytes(self._introduction))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._introduced()
        self._reception.leave(self)
        super().connection_lost(exc)

    def _deliver(self, message: MessageT, tensors: list[Array]) -> None:
        self._introduced()
        super()._deliver(message, tensors)

    def _introduced(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
