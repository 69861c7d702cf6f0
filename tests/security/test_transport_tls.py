"""Connections between frontends, replicas and coordinators with mutual TLS: who has no certificate of the authority."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.runtime.serving.in_process.peer import Peer
from tests.runtime.serving.in_process.stand import SAMPLE, post, stand
from tests.runtime.serving.plans import application
from tests.runtime.serving.transport.authority import (
    NAME,
    OTHER_NAME,
    Authority,
    client_context,
    self_signed,
    server_context,
    write,
)
from tests.security.listeners import Target, a_coordinator, a_replica

from partita_operator.certificates.issuing import IssuedCertificate
from partita_runtime.serving.transport import mutual_tls, refusal_log
from partita_runtime.serving.transport.actor_calls import RayTransport
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.mutual_tls import MutualTls
from partita_runtime.serving.transport.streams import connect
from partita_runtime.serving.transport.tls_files import TlsFiles
from partita_runtime.serving.transport.wire import STAGE_DIALECT, PeerAddress, RunBatch, tensor_header

OWN, FOREIGN = Authority.new(), Authority.new()
TARGETS = {"replica": a_replica, "coordinator": a_coordinator}


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return write(tmp_path / "own", [OWN], OWN.issue())


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
async def target(request: pytest.FixtureRequest, files: TlsFiles) -> AsyncIterator[Target]:
    """A process that listens; those that connect have a certificate of its authority."""
    async with request.param(MutualTls(files)) as made:
        made.tls = client_context(files)
        yield made


@pytest.fixture(autouse=True)
def each_refusal_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_log, "LOG_AGAIN_SECONDS", -1.0)


Tls = Callable[[Path], ssl.SSLContext | None]


def with_certificate(certificate: IssuedCertificate) -> Tls:
    return lambda directory: client_context(write(directory / "stranger", [OWN], certificate))


def of_version_1_2(directory: Path) -> ssl.SSLContext:
    context = client_context(write(directory / "stranger", [OWN], OWN.issue()))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        pytest.param(lambda _: None, "wrong version number", id="without TLS"),
        pytest.param(lambda _: client_context(), "peer did not return a certificate", id="without a certificate"),
        pytest.param(with_certificate(self_signed()), "self-signed certificate", id="with a self-signed certificate"),
        pytest.param(
            with_certificate(FOREIGN.issue()), "unable to get local issuer certificate", id="of another authority"
        ),
        pytest.param(
            with_certificate(OWN.issue(OTHER_NAME)),
            f"the certificate does not have the name {NAME}",
            id="of another Ray cluster with the same authority",
        ),
        pytest.param(
            with_certificate(OWN.issue(ended=timedelta(hours=1))), "certificate has expired", id="with an expired one"
        ),
        pytest.param(
            with_certificate(OWN.issue(is_client=False)), "unsuitable certificate purpose", id="for servers only"
        ),
        pytest.param(of_version_1_2, "unsupported protocol", id="with TLS 1.2"),
    ],
)
async def test_a_stranger_who_knows_the_token_is_refused(
    target: Target, tls: Tls, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proper, target.tls = target.tls, tls(tmp_path)
    with contextlib.suppress(ConnectionError, ssl.SSLError):  # a handshake of TLS 1.2 fails on both sides
        async with target.connected(target.token + target.hello()) as stranger:
            assert await stranger.is_closed()
    assert refusals(caplog) == [f"a connection is refused: {reason}"]
    target.tls = proper
    await target.serves()


async def test_strangers_text_is_not_logged(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    target.tls = None
    for sent in (b"GET /\x1b[2Jforged HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x20forged\n" + bytes(32), b"forged" * 100):
        async with target.connected(sent) as stranger:
            assert await stranger.is_closed()
    assert len(refusals(caplog)) == 3
    assert "forged" not in caplog.text


async def test_many_strangers_are_one_line_of_the_log(
    target: Target, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    target.tls = client_context()
    for _ in range(20):
        async with target.connected() as stranger:
            assert await stranger.is_closed()
    assert refusals(caplog) == ["a connection is refused: peer did not return a certificate"]


async def test_a_handshake_has_a_deadline(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutual_tls, "HANDSHAKE_SECONDS", 0.3)
    proper, target.tls = target.tls, None
    async with target.connected() as silent, target.connected(b"\x16\x03\x01") as cut_off, target.connected() as slow:
        assert await silent.is_closed()
        assert await cut_off.is_closed()
        await slow.drip(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200))
    target.tls = proper
    await target.serves()


async def test_strangers_replace_each_other_and_not_peers(target: Target) -> None:
    proper = target.tls
    async with contextlib.AsyncExitStack() as stack:
        peer = await stack.enter_async_context(target.peer("peer"))
        target.tls = None
        strangers = [
            await stack.enter_async_context(target.connected()) for _ in range(mutual_tls.MOST_HANDSHAKES + 20)
        ]
        for stranger in strangers[:20]:
            assert await stranger.is_closed()
        target.tls = proper
        await target.serves()
        assert not peer.reader.at_eof()


Server = Callable[[Path], ssl.SSLContext]


def certified(certificate: IssuedCertificate) -> Server:
    return lambda directory: server_context(write(directory / "impostor", [OWN], certificate))


def server_of_version_1_2(directory: Path) -> ssl.SSLContext:
    context = certified(OWN.issue())(directory)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


impostors = pytest.mark.parametrize(
    ("server", "reason"),
    [
        pytest.param(certified(self_signed()), "self-signed certificate", id="a self-signed certificate"),
        pytest.param(certified(FOREIGN.issue()), "unable to get local issuer certificate", id="another authority"),
        pytest.param(
            certified(OWN.issue(OTHER_NAME)),
            f"hostname mismatch, certificate is not valid for '{NAME}'.",
            id="another Ray cluster with the same authority",
        ),
        pytest.param(certified(OWN.issue(ended=timedelta(hours=1))), "certificate has expired", id="an expired one"),
        pytest.param(server_of_version_1_2, "it ends the handshake, or takes more than 4 s", id="TLS 1.2"),
    ],
)


class Impostor:
    """Takes the connections that are meant for a replica."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.port = 0

    @contextlib.asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._collect, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    def instead_of(self, address: PeerAddress) -> PeerAddress:
        return address.model_copy(update={"port": self.port})

    async def _collect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(1024):
                self.received.extend(content)
        writer.close()


@impostors
async def test_a_man_between_frontend_and_replica_gets_no_token_and_no_request(
    files: TlsFiles, server: Server, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    man, app = Impostor(), application("one").model("only").slo(500)
    async with man.listening(server(tmp_path)), stand(app, transport=MutualTls(files)) as running:
        (real,) = running.workers
        await running.kill(real)
        (arguments,) = app.stage_arguments()
        await running.add_replica(arguments, way=man.instead_of)
        await running.until(lambda: refusals(caplog), "the frontend has connected to him")
        assert (await post(running))[0] == 503
        assert set(refusals(caplog)) == {f"the process at 127.0.0.1:{man.port} is refused: {reason}"}
    assert man.received == b""


@impostors
async def test_a_man_between_two_stages_gets_no_token_and_no_batch(
    files: TlsFiles, server: Server, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    man, app, transport = Impostor(), replace(application("two").model("only"), stages=2), MutualTls(files)
    async with man.listening(server(tmp_path)), stand(app, transport=transport) as running:
        first, second = sorted(running.directory.announced(app.session.key), key=lambda replica: replica.stage)
        frontend = Peer(transport)
        await frontend.join(first, "frontend")
        header = tensor_header(SAMPLE.shape, SAMPLE.dtype)
        path = (man.instead_of(second.address),)
        frontend.send(RunBatch(batch_id=9, frontend="frontend", path=path, tensors=(header,)), SAMPLE)
        await running.until(lambda: len(frontend.messages) == 3, "the replica reports")
        assert [message.kind for message in frontend.messages] == ["welcome", "report", "lost"]
        assert refusals(caplog) == [f"the process at 127.0.0.1:{man.port} is refused: {reason}"]
        frontend.stream.close()
    assert man.received == b""


async def test_a_process_with_tls_connects_to_none_without(files: TlsFiles) -> None:
    man = Impostor()
    async with man.listening(None):
        address = man.instead_of(PeerAddress(host="127.0.0.1", port=1, token="secret-token"))
        with pytest.raises(TimeoutError):
            await connect(address, STAGE_DIALECT, Peer(), MutualTls(files), seconds=1)
        calls = address.model_copy(update={"host": "actor:serve/replica"})
        with pytest.raises(ConnectionError, match="not encrypted"):
            await connect(calls, STAGE_DIALECT, Peer(), RayTransport(TransportKind.STREAMS, files))
    assert b"secret-token" not in man.received


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about refused connections; there are no errors."""
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    return [record.message for record in caplog.records if "is refused" in record.message]
