"""A frontend's connection to the coordinator, which is made again whenever it breaks."""

import asyncio
import logging
from typing import Final, Protocol

from partita_runtime.serving.central.messages import COORDINATOR_DIALECT, CoordinatorMessage
from partita_runtime.serving.transport.streams import MessageStream, Receiver, connect
from partita_runtime.serving.transport.transport import Transport
from partita_runtime.serving.transport.wire import Array, PeerAddress

logger = logging.getLogger(__name__)

COORDINATOR_AWAY: Final = "The scheduler that the session's frontends share is away. Ray starts it again."

SILENT_TICKS: Final = 8
"""A peer that sends nothing for so many ticks, a quarter of a second each, is disconnected."""
_RETRY_SECONDS: Final = 0.1


class CoordinatorFinder(Protocol):
    """Finds a session's coordinator (`coordinator_actor.ActorCoordinatorFinder`)."""

    transport: Transport
    """Connects to the coordinator."""

    async def address(self) -> PeerAddress:
        """Where the coordinator listens. Raises LookupError while there is none."""


class CoordinatorListener(Protocol):
    """Receives what the coordinator sends; called on the event loop."""

    def introduction(self, token: str) -> CoordinatorMessage:
        """The first message of a connection."""

    def heard(self, message: CoordinatorMessage) -> None:
        """The coordinator has sent a message. Raises WireError for one that it must not send."""

    def away(self) -> None:
        """The connection is lost; `heard` is called once there is a new one."""


class CoordinatorLink(Receiver[CoordinatorMessage]):
    """Finds the coordinator and stays connected to it, on the event loop that the link is made on."""

    def __init__(self, finder: CoordinatorFinder, listener: CoordinatorListener) -> None:
        self._finder = finder
        self._listener = listener
        self._stream: MessageStream[CoordinatorMessage] | None = None
        self._silent_ticks = 0
        self._closed = False
        self._lost = asyncio.Event()
        self._connecting = asyncio.create_task(self._connect_forever())

    def send(self, message: CoordinatorMessage) -> bool:
        """Send to the coordinator; False if it is away."""
        return self._stream is not None and self._stream.send(message)

    def tick(self) -> None:
        """To be called four times a second: disconnects from a coordinator that sends nothing."""
        self._silent_ticks += 1
        if self._stream is not None and self._silent_ticks > SILENT_TICKS:
            logger.warning("the coordinator sends nothing; connecting again")
            self._stream.abort()

    def close(self) -> None:
        """Disconnect for good."""
        self._closed = True
        self._connecting.cancel()
        if self._stream is not None:
            self._stream.close()

    def admit(self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage) -> None:
        """Called by the stream. Admits everything: a coordinator's messages have no tensors."""

    def received(
        self, stream: MessageStream[CoordinatorMessage], message: CoordinatorMessage, tensors: list[Array]
    ) -> None:
        """Called by the stream."""
        self._silent_ticks = 0
        self._listener.heard(message)

    def lost(self, stream: MessageStream[CoordinatorMessage]) -> None:
        """Called by the stream."""
        self._stream = None
        self._lost.set()
        if not self._closed:
            self._listener.away()

    async def _connect_forever(self) -> None:
        while True:
            try:
                address = await self._finder.address()
                self._lost.clear()
                stream = await connect(address, COORDINATOR_DIALECT, self, self._finder.transport)
            except (LookupError, OSError) as error:
                logger.info("the coordinator is away: %s", error)
            else:
                self._stream, self._silent_ticks = stream, 0
                stream.send(self._listener.introduction(address.token))
                await self._lost.wait()
            await asyncio.sleep(_RETRY_SECONDS)
