"""A frontend's connection to the rank, which is made again whenever it breaks."""

import asyncio
import logging
from typing import Final, Protocol

from partita_runtime.serving.central.messages import RANK_DIALECT, RankMessage
from partita_runtime.serving.transport.streams import Receiver, Stream, connect
from partita_runtime.serving.transport.transport import Carrier
from partita_runtime.serving.transport.wire import Array, Hop

logger = logging.getLogger(__name__)

AWAY: Final = "the scheduler that the session's frontends share is away"

SILENT_TICKS: Final = 8
"""Ticks, a quarter of a second each, in which a peer that is there says something."""
_AGAIN_SECONDS: Final = 0.1


class RankFinder(Protocol):
    """Where a session's rank is found (`rank_actor.RankActor`)."""

    carrier: Carrier
    """What leads there."""

    async def address(self) -> Hop:
        """Where it listens. Raises LookupError while there is none."""


class RankListener(Protocol):
    """Who speaks with the rank; called on the event loop."""

    def introduction(self, token: str) -> RankMessage:
        """The first message of a connection."""

    def heard(self, message: RankMessage) -> None:
        """The rank says something. Raises WireError for what it must not say."""

    def away(self) -> None:
        """The rank is away, until it is heard again."""


class RankLink(Receiver[RankMessage]):
    """Looks for the rank and stays connected to it, on the event loop that it is made on."""

    def __init__(self, finder: RankFinder, listener: RankListener) -> None:
        self._finder = finder
        self._listener = listener
        self._stream: Stream[RankMessage] | None = None
        self._silent_ticks = 0
        self._closed = False
        self._lost = asyncio.Event()
        self._connecting = asyncio.create_task(self._connect_forever())

    def send(self, message: RankMessage) -> bool:
        """Send to the rank; False if it is away."""
        return self._stream is not None and self._stream.send(message)

    def tick(self) -> None:
        """To be called four times a second: leaves a rank that says nothing."""
        self._silent_ticks += 1
        if self._stream is not None and self._silent_ticks > SILENT_TICKS:
            logger.warning("the rank is silent")
            self._stream.abort()

    def close(self) -> None:
        """Leave the rank for good."""
        self._closed = True
        self._connecting.cancel()
        if self._stream is not None:
            self._stream.close()

    def admit(self, stream: Stream[RankMessage], message: RankMessage) -> None:
        """Called by the stream; messages of a rank have no tensors."""

    def received(self, stream: Stream[RankMessage], message: RankMessage, tensors: list[Array]) -> None:
        """Called by the stream."""
        self._silent_ticks = 0
        self._listener.heard(message)

    def lost(self, stream: Stream[RankMessage]) -> None:
        """Called by the stream."""
        self._stream = None
        self._lost.set()
        if not self._closed:
            self._listener.away()

    async def _connect_forever(self) -> None:
        while True:
            try:
                hop = await self._finder.address()
                self._lost.clear()
                stream = await connect(hop, RANK_DIALECT, self, self._finder.carrier)
            except (LookupError, OSError) as error:
                logger.info("the rank is away: %s", error)
            else:
                self._stream, self._silent_ticks = stream, 0
                stream.send(self._listener.introduction(hop.token))
                await self._lost.wait()
            await asyncio.sleep(_AGAIN_SECONDS)
