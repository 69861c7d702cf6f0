"""A frontend's connections to the replicas of one plan."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.transport.streams import Receiver, Stream, connect
from partita_runtime.serving.transport.transport import TCP, Carrier
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Answer,
    Array,
    Draining,
    Failed,
    Hello,
    Hop,
    Message,
    Ping,
    Pong,
    Report,
    Taken,
    Undelivered,
    Welcome,
    WireError,
)

logger = logging.getLogger(__name__)

ASK_MICROS: Final = 1_000_000
"""How often a replica that says nothing is asked whether it still runs."""
MOST_UNHEARD: Final = 5
"""Asked so often without a word, a replica hangs, although its machine keeps the connection up."""


class LinkListener(Protocol):
    """Who is told what replicas say; called on the event loop."""

    def joined(self, replica: Announcement) -> None:
        """The replica takes batches."""

    def draining(self, replica: str) -> None:
        """The replica finishes what it has and takes nothing more."""

    def lost(self, replica: str) -> None:
        """The replica had joined and cannot be reached any more."""

    def admit_answer(self, replica: str, answer: Answer) -> None:
        """Raise WireError to refuse an answer before its tensors are received."""

    def taken(self, replica: str, batch_id: int) -> None:
        """The replica has got a batch from the stage before."""

    def reported(self, replica: str, message: Report | Answer | Undelivered | Failed, tensors: list[Array]) -> None:
        """The replica says how a batch went."""


class Links:
    """Connects to every replica that is announced, and again if a connection breaks while it still is."""

    def __init__(self, frontend: str, listener: LinkListener, carrier: Carrier = TCP) -> None:
        """`frontend` is the id that the replicas answer to."""
        self._carrier = carrier
        self._frontend = frontend
        self._listener = listener
        self._links: dict[str, _Link] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self._asked = 0

    def update(self, replicas: Iterable[Announcement]) -> None:
        """Connect to those of `replicas` that are not connected yet."""
        for replica in replicas:
            if replica.replica not in self._links:
                link = _Link(replica, self._listener, partial(self._links.pop, replica.replica, None))
                self._links[replica.replica] = link
                connecting = asyncio.create_task(self._connect(link))
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connecting.discard)

    def hop(self, replica: str) -> Hop:
        """Where the stage before can reach a replica. Raises KeyError if it is not connected."""
        return self._links[replica].replica.hop

    def reaches(self, replica: str) -> bool:
        """Whether a replica is connected, and was not left."""
        link = self._links.get(replica)
        return link is not None and link.stream is not None and link.stream.is_open

    def send(self, replica: str, message: Message, tensors: Sequence[Array]) -> None:
        """Send to a replica; nothing happens if it is lost, which the listener learns."""
        link = self._links.get(replica)
        if link is not None and link.stream is not None:
            link.stream.send(message, tensors)

    def close_one(self, replica: str) -> None:
        """Leave a replica; the listener is told that it is lost, if it had joined."""
        link = self._links.get(replica)
        if link is not None and link.stream is not None:
            link.stream.close()

    def ask(self, now: int) -> None:
        """To be called a few times a second: leaves replicas that have stopped without a word."""
        if now - self._asked >= ASK_MICROS:
            self._asked = now
            for link in [*self._links.values()]:
                link.ask()

    def close(self) -> None:
        """Leave all replicas."""
        for task in self._connecting:
            task.cancel()
        for replica in [*self._links]:
            self.close_one(replica)

    async def _connect(self, link: "_Link") -> None:
        replica = link.replica
        try:
            link.stream = await connect(replica.hop, STAGE_DIALECT, link, self._carrier)
            link.stream.send(Hello(token=replica.hop.token, frontend=self._frontend))
        except OSError as error:
            self._links.pop(replica.replica, None)
            logger.info("replica %s cannot be reached: %s", replica.replica, error)


class _Link(Receiver[Message]):
    """One connection to a replica."""

    def __init__(self, replica: Announcement, listener: LinkListener, forget: Callable[[], object]) -> None:
        self.replica = replica
        self.stream: Stream[Message] | None = None
        self._listener = listener
        self._forget = forget
        self._joined = False
        self._heard = 0
        self._unheard = 0

    def ask(self) -> None:
        """Once more, if nothing has come since the last time; enough of that, and the connection is cut."""
        stream = self.stream
        if stream is None or not self._joined or not stream.is_sent:
            return
        if stream.received_bytes > self._heard:
            self._heard, self._unheard = stream.received_bytes, 0
        elif self._unheard < MOST_UNHEARD:
            self._unheard += 1
            stream.send(Ping())
        else:
            logger.warning("replica %s hangs: it does not answer any more", self.replica.replica)
            stream.abort()

    def admit(self, stream: Stream[Message], message: Message) -> None:
        match message:
            case Answer():
                self._listener.admit_answer(self.replica.replica, message)
            case Welcome() | Pong() | Draining() | Taken() | Report() | Undelivered() | Failed():
                return
            case _:
                raise WireError(f"a {message.kind} message is not expected here")

    def received(self, stream: Stream[Message], message: Message, tensors: list[Array]) -> None:
        match message:
            case Welcome():
                self._joined = True
                self._listener.joined(self.replica)
            case Draining() if self._joined:
                self._listener.draining(self.replica.replica)
            case Draining():
                stream.close()
            case Taken():
                self._listener.taken(self.replica.replica, message.batch_id)
            case Report() | Answer() | Undelivered() | Failed():
                self._listener.reported(self.replica.replica, message, tensors)

    def lost(self, stream: Stream[Message]) -> None:
        self._forget()
        if self._joined:
            self._listener.lost(self.replica.replica)
