"""A frontend's connections to the replicas of one plan."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.transport.streams import MessageStream, Receiver, connect
from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Array,
    BatchAnswer,
    Draining,
    Failed,
    Hello,
    Lost,
    PeerAddress,
    Ping,
    Pong,
    Report,
    StageMessage,
    Taken,
    Welcome,
    WireError,
)

logger = logging.getLogger(__name__)

PING_MICROS: Final = 1_000_000
"""How often a replica that sends nothing is pinged."""
MOST_UNANSWERED: Final = 5
"""After so many pings without an answer the replica counts as hung, although its machine keeps the connection up."""


class LinkListener(Protocol):
    """Receives what replicas send; called on the event loop."""

    def joined(self, replica: Announcement) -> None:
        """The replica takes batches."""

    def draining(self, replica: str) -> None:
        """The replica finishes its batches and takes no more."""

    def lost(self, replica: str) -> None:
        """The replica had joined and cannot be reached any more."""

    def admit_answer(self, replica: str, answer: BatchAnswer) -> None:
        """Raise WireError to refuse an answer before its tensors are received."""

    def taken(self, replica: str, batch_id: int, held: int) -> None:
        """The replica has received a batch from the stage before, which has held it for a time (microseconds)."""

    def reported(self, replica: str, message: Report | BatchAnswer | Lost | Failed, tensors: list[Array]) -> None:
        """The replica reports the outcome of a batch."""


class Links:
    """Connects to every announced replica, and again if a connection breaks while it is still announced."""

    def __init__(self, frontend: str, listener: LinkListener, transport: Transport = TCP) -> None:
        """`frontend` is the id that replicas answer to."""
        self._transport = transport
        self._frontend = frontend
        self._listener = listener
        self._links: dict[str, _Link] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._pinged = 0

    def update(self, replicas: Iterable[Announcement]) -> None:
        """Connect to the replicas that are not connected yet."""
        for replica in replicas:
            if replica.replica not in self._links:
                link = _Link(replica, self._listener, partial(self._links.pop, replica.replica, None))
                self._links[replica.replica] = link
                connecting = asyncio.create_task(self._connect(link))
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connecting.discard)

    def address(self, replica: str) -> PeerAddress:
        """Where the stage before can reach a replica. Raises KeyError if it is not connected."""
        return self._links[replica].replica.address

    def reaches(self, replica: str) -> bool:
        """Whether a replica is connected."""
        link = self._links.get(replica)
        return link is not None and link.stream is not None and link.stream.is_open

    def send(self, replica: str, message: StageMessage, tensors: Sequence[Array] = ()) -> None:
        """Send to a replica. Does nothing if the replica is lost; the listener learns that separately."""
        link = self._links.get(replica)
        if link is not None and link.stream is not None:
            link.stream.send(message, tensors)

    def close_one(self, replica: str) -> None:
        """Disconnect from a replica; the listener's `lost` is called if the replica had joined."""
        link = self._links.get(replica)
        if link is not None and link.stream is not None:
            link.stream.close()

    def ping(self, now: int) -> None:
        """To be called a few times a second: pings silent replicas and disconnects from those that hang."""
        if now - self._pinged >= PING_MICROS:
            self._pinged = now
            for link in [*self._links.values()]:
                link.ping()

    def close(self) -> None:
        """Disconnect from all replicas."""
        for task in self._connecting:
            task.cancel()
        for replica in [*self._links]:
            self.close_one(replica)

    async def _connect(self, link: "_Link") -> None:
        replica = link.replica
        try:
            link.stream = await connect(replica.address, STAGE_DIALECT, link, self._transport)
            link.stream.send(Hello(frontend=self._frontend))
        except OSError as error:
            self._links.pop(replica.replica, None)
            logger.info("replica %s cannot be reached: %s", replica.replica, error)


class _Link(Receiver[StageMessage]):
    """One connection to a replica."""

    def __init__(self, replica: Announcement, listener: LinkListener, forget: Callable[[], object]) -> None:
        self.replica = replica
        self.stream: MessageStream[StageMessage] | None = None
        self._listener = listener
        self._forget = forget
        self._joined = False
        self._received_bytes = 0
        self._unanswered = 0

    def ping(self) -> None:
        """Ping the replica if nothing has arrived since the last call; disconnect after too many unanswered pings."""
        stream = self.stream
        if stream is None or not self._joined or not stream.is_sent:
            return
        if stream.received_bytes > self._received_bytes:
            self._received_bytes, self._unanswered = stream.received_bytes, 0
        elif self._unanswered < MOST_UNANSWERED:
            self._unanswered += 1
            stream.send(Ping())
        else:
            logger.warning("replica %s hangs: it does not answer pings; disconnecting", self.replica.replica)
            stream.abort()

    def admit(self, stream: MessageStream[StageMessage], message: StageMessage) -> None:
        match message:
            case BatchAnswer():
                self._listener.admit_answer(self.replica.replica, message)
            case Welcome() | Pong() | Draining() | Taken() | Report() | Lost() | Failed():
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: MessageStream[StageMessage], message: StageMessage, tensors: list[Array]) -> None:
        match message:
            case Welcome():
                self._joined = True
                self._listener.joined(self.replica)
            case Draining() if self._joined:
                self._listener.draining(self.replica.replica)
            case Draining():
                stream.close()
            case Taken():
                self._listener.taken(self.replica.replica, message.batch_id, message.held_micros)
            case Report() | BatchAnswer() | Lost() | Failed():
                self._listener.reported(self.replica.replica, message, tensors)

    def lost(self, stream: MessageStream[StageMessage]) -> None:
        self._forget()
        if self._joined:
            self._listener.lost(self.replica.replica)
