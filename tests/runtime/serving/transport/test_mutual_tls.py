"""Streams with mutual TLS, on the event loops of Python and of Ray, and while certificates change."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import uvloop
from tests.runtime.serving.in_process.stand import SAMPLE, stand, until
from tests.runtime.serving.load import steady_load
from tests.runtime.serving.plans import application
from tests.runtime.serving.transport.authority import NAME, Authority, write

from partita_operator.certificates.issuing import IssuedCertificate
from partita_runtime.serving.transport.mutual_tls import MutualTls
from partita_runtime.serving.transport.streams import MessageStream, connect
from partita_runtime.serving.transport.tls_files import CERTIFICATE_FILE, KEY_FILE, Credentials, TlsFiles
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Array,
    PeerAddress,
    Ping,
    RunBatch,
    StageMessage,
    tensor_header,
)

OLD, NEW = Authority.new(), Authority.new()
TENSORS = [np.full((2, size), size, np.float32) for size in (0, 1, 10, 700)]
BATCH = RunBatch(
    batch_id=1, frontend="frontend", tensors=tuple(tensor_header(array.shape, array.dtype) for array in TENSORS)
)

on_each_event_loop = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


class End:
    """One end of a stream, which remembers what arrives."""

    def __init__(self) -> None:
        self.arrived: list[tuple[StageMessage, list[Array]]] = []
        self.is_lost = False
        self.stream: MessageStream | None = None

    def admit(self, stream: MessageStream, message: StageMessage) -> None: ...

    def received(self, stream: MessageStream, message: StageMessage, tensors: list[Array]) -> None:
        self.arrived.append((message, tensors))
        self.stream = stream

    def lost(self, stream: MessageStream) -> None:
        self.is_lost = True


class Pair:
    """A listening process, and one that connects to it."""

    def __init__(self, transport: MutualTls) -> None:
        self.client, self.server = End(), End()
        self._transport = transport

    async def connected(self) -> MessageStream:
        """The client's end. The stream begins without a token."""
        listening = await self._transport.listen("127.0.0.1", lambda: MessageStream(STAGE_DIALECT, self.server))
        address = PeerAddress(host=listening.host, port=listening.port, token="")
        return await connect(address, STAGE_DIALECT, self.client, self._transport)


Loop = Callable[[], asyncio.AbstractEventLoop]


def run(loop: Loop, pair: Pair, use: Callable[[MessageStream], Awaitable[None]]) -> None:
    async def main() -> None:
        await use(await pair.connected())

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


@pytest.fixture
def transport(tmp_path: Path) -> MutualTls:
    return MutualTls(write(tmp_path, [OLD], OLD.issue()))


def close(stream: MessageStream) -> None:
    stream.close()
    assert not stream.send(Ping())


def die(stream: MessageStream) -> None:
    """End like a killed process: the system sends what it has, and TLS does not end the connection."""
    assert stream._transport is not None
    with socket.socket(fileno=os.dup(stream._transport.get_extra_info("socket").fileno())) as connection:
        connection.shutdown(socket.SHUT_RDWR)


@on_each_event_loop
@pytest.mark.parametrize("end", [close, die])
def test_messages_arrive_that_were_sent_before_the_end(
    loop: Loop, end: Callable[[MessageStream], None], transport: MutualTls
) -> None:
    pair = Pair(transport)

    async def use(stream: MessageStream) -> None:
        stream.send(Ping())
        await until(lambda: pair.server.arrived, "the stream carries messages")
        assert pair.server.stream is not None
        reading = pair.server.stream._transport
        assert reading is not None
        reading.pause_reading()
        for _ in range(10):
            stream.send(BATCH, TENSORS)
        await until(lambda: stream._transport and not stream._transport.get_write_buffer_size(), "all is encrypted")
        end(stream)
        reading.resume_reading()
        await until(lambda: pair.server.is_lost and pair.client.is_lost, "both ends notice the end")

    run(loop, pair, use)
    assert [message for message, _ in pair.server.arrived] == [Ping(), *[BATCH] * 10]
    for _, tensors in pair.server.arrived[1:]:
        for got, sent in zip(tensors, TENSORS, strict=True):
            np.testing.assert_array_equal(got, sent)


@on_each_event_loop
def test_a_stream_says_whether_all_has_arrived(loop: Loop, transport: MutualTls) -> None:
    """It pings a peer, which may hang, only when nothing is on the way."""
    pair = Pair(transport)

    async def use(stream: MessageStream) -> None:
        large = np.zeros((4_000_000,), np.float32)
        header = (tensor_header(large.shape, large.dtype),)
        stream.send(Ping())
        await until(lambda: pair.server.arrived, "the stream carries messages")
        await until(lambda: stream.is_sent, "the ping has arrived")
        assert pair.server.stream is not None
        raw = pair.server.stream._transport
        assert raw is not None
        raw.pause_reading()
        stream.send(BATCH.model_copy(update={"tensors": header}), [large])
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert not stream.is_sent
        raw.resume_reading()
        await until(lambda: stream.is_sent and len(pair.server.arrived) == 2, "all has arrived")
        stream.close()

    run(loop, pair, use)


def test_an_aborted_stream_is_lost_on_both_sides(transport: MutualTls) -> None:
    pair = Pair(transport)

    async def use(stream: MessageStream) -> None:
        stream.send(Ping())
        await until(lambda: pair.server.arrived, "the stream carries messages")
        stream.abort()
        stream.close()
        assert not stream.is_open
        await until(lambda: pair.server.is_lost and pair.client.is_lost, "both ends notice the end")

    run(asyncio.new_event_loop, pair, use)


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("frontend", "replica"), id="frontends first"),
        pytest.param(("replica", "frontend"), id="replicas first"),
    ],
)
async def test_a_change_of_the_authority_loses_no_request(order: tuple[str, str], tmp_path: Path) -> None:
    """Frontends and replicas see each change at different times, and connect to each other at all of these times."""
    before, after = OLD.issue(), NEW.issue()
    files = {process: write(tmp_path / process, [OLD], before) for process in order}
    app = replace(application("two").model("only"), stages=2)
    stop = asyncio.Event()
    async with stand(
        app, transport=MutualTls(files["frontend"]), replica_transport=MutualTls(files["replica"])
    ) as running:
        url = f"http://{running.url}/v2/models/{app.name}/infer"
        loading = asyncio.create_task(steady_load(url, SAMPLE, 40, lambda _: stop.is_set(), 250))
        for trusted, own in (((OLD, NEW), before), ((OLD, NEW), after), ((NEW,), after)):
            for process in order:
                write(tmp_path / process, trusted, own)
                earlier = list(running.workers)
                for arguments in app.stage_arguments():
                    await running.add_replica(arguments)
                await until(
                    lambda: [stage.ready for stage in running.session.signals().stages] == [2, 2],
                    "the frontend has connected to the new replicas",
                )
                for replica in earlier:
                    await running.retire(replica)
        stop.set()
        load = await loading
        assert load.statuses == {200: load.sent}, load.errors
        assert load.sent > 0


def test_files_are_read_again_after_a_change_and_damaged_ones_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = Credentials(write(tmp_path, [OLD], OLD.issue()))
    first = credentials.current()
    assert credentials.current() is first

    (tmp_path / KEY_FILE).write_text("damaged")
    assert credentials.current() is first
    assert "the earlier certificate stays in use" in caplog.text
    (tmp_path / CERTIFICATE_FILE).unlink()
    assert credentials.current() is first

    write(tmp_path, [NEW], NEW.issue())
    assert credentials.current() is not first


def another_key(directory: Path) -> None:
    certificate: IssuedCertificate = OLD.issue()
    (directory / KEY_FILE).write_bytes(certificate.key_pem)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda directory: (directory / KEY_FILE).unlink(), id="no key"),
        pytest.param(another_key, id="the key of another certificate"),
        pytest.param(lambda directory: (directory / "ca.crt").write_text(""), id="no authority"),
    ],
)
async def test_no_process_listens_without_a_certificate(damage: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path, [OLD], OLD.issue())
    damage(tmp_path)
    transport = MutualTls(TlsFiles(directory=str(tmp_path), name=NAME))
    with pytest.raises(OSError, match=r"needs ca\.crt, tls\.crt and tls\.key in "):
        await transport.listen("127.0.0.1", asyncio.BufferedProtocol)
