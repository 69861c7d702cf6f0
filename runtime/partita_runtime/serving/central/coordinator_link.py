"""A frontend's connection to the coordinator, which is made again whenever it breaks."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

from partita_runtime.serving.central.messages import COORDINATOR_DIALECT, CoordinatorMessage
from partita_runtime.serving.transport.streams import MessageStream, Receiver, connect
from partita_runtime.serving.transport.transport import Transport
from partita_runtime.serving.transport.wire import Array, PeerAddress

logger = logging.getLogger(__name__)

COORDINATOR_AWAY: Final = "The scheduler that the session's frontends share is away. They start another one."

SILENT_TICKS: Final = 8
"""A peer that sends nothing for so many ticks, a quarter of a second each, is disconnected."""
_RETRY_SECONDS: Final = 0.1
_CHECK_SECONDS: Final = 5.0
"""How often a connected frontend asks whether the others use another coordinator."""


@dataclass(frozen=True)
class CoordinatorState:
    """What a coordinator says of itself."""

    address: PeerAddress
    active: bool
    """Whether frontends are connected to it."""
    node: str
    """The Ray node that it runs on."""


class CoordinatorFinder(Protocol):
    """Finds a session's coordinators (`coordinator_actors.ActorCoordinatorFinder`)."""

    transport: Transport
    """Connects to a coordinator."""

    async def find(self, lost: PeerAddress | None = None) -> CoordinatorState:
        """The coordinator to use: an active one, if there is one. Makes what is missing.

        Does not wait for the coordinator with the address `lost`, to which the connection broke. Raises LookupError
        while there is none; call again later.
        """


class CoordinatorListener(Protocol):
    """Receives what the coordinator sends; called on the event loop."""

    def introduction(self) -> CoordinatorMessage:
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
        lost: PeerAddress | None = None
        while True:
            try:
                address = (await self._finder.find(lost)).address
                lost = address
                self._lost.clear()
                stream = await connect(address, COORDINATOR_DIALECT, self, self._finder.transport)
            except (LookupError, OSError) as error:
                logger.info("the coordinator is away: %s", error)
            else:
                self._stream, self._silent_ticks = stream, 0
                stream.send(self._listener.introduction())
                await self._lost_or_left(stream, address)
            await asyncio.sleep(_RETRY_SECONDS)

    async def _lost_or_left(self, stream: MessageStream[CoordinatorMessage], address: PeerAddress) -> None:
        """Return when the connection is lost. Leaves a coordinator that the other frontends do not use."""
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._lost.wait()
            except TimeoutError:
                if await self._others_use_another(address):
                    logger.info("the session's frontends use another coordinator; connecting to it")
                    stream.abort()

    async def _others_use_another(self, address: PeerAddress) -> bool:
        try:
            found = await self._finder.find()
        except LookupError:
            return False
        return found.active and found.address != address
