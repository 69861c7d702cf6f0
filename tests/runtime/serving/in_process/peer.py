"""A frontend of which a replica sees only the stream."""

from tests.runtime.serving.in_process.stand import until

from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.transport.streams import MessageStream, connect
from partita_runtime.serving.transport.transport import TCP, Transport
from partita_runtime.serving.transport.wire import STAGE_DIALECT, Array, Hello, StageMessage, Welcome


class Peer:
    """A peer of a replica."""

    stream: MessageStream

    def __init__(self, transport: Transport = TCP) -> None:
        self.name = ""
        self.messages: list[StageMessage] = []
        self.is_lost = False
        self._transport = transport

    async def join(self, replica: Announcement, name: str) -> None:
        """Connect as the frontend of this name."""
        self.name = name
        self.stream = await connect(replica.address, STAGE_DIALECT, self, self._transport)
        self.stream.send(Hello(frontend=name))
        await until(lambda: self.messages == [Welcome()], "the replica welcomes")

    def send(self, message: StageMessage, *tensors: Array) -> None:
        self.stream.send(message, tensors)

    def admit(self, stream: MessageStream, message: StageMessage) -> None: ...

    def received(self, stream: MessageStream, message: StageMessage, tensors: list[Array]) -> None:
        self.messages.append(message)

    def lost(self, stream: MessageStream) -> None:
        self.is_lost = True
