"""HTTP on the frontend's own port: the same behaviour as behind Serve's server, with limits for clients."""

import asyncio
import contextlib
import resource
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.in_process.stand import Stand, on_its_own_port, stand, until
from tests.runtime.serving.ingress.raw_http import PATH, connected, exchanged, post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application

from partita_runtime.serving.ingress import http_connection, http_server
from partita_runtime.serving.ingress import port as endpoints
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.ingress.http_server import http_endpoint
from partita_runtime.serving.ingress.port import PortEndpoint
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.protocol.inference_client import encode_request
from partita_runtime.serving.protocol.oip import HEADER_LENGTH
from partita_runtime.serving.session.epoch_executor import RequestExecution
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

APP = application("plain").model("only")
GOOD, GOOD_HEADERS = infer_body(np.zeros((1, 2, 2), np.float32))
REQUEST = post(GOOD, GOOD_HEADERS)


@pytest.fixture
async def plain() -> AsyncIterator[Stand]:
    settings = FrontendSettings(function_processes=1, max_connections=100, max_request_bytes=1_000_000)
    async with stand(APP, settings, way=on_its_own_port) as running:
        yield running


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    length = next(int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), 20)


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection after its sent data is read."""
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), 20)
    return reader.at_eof() or reader.exception() is not None


async def test_the_paths_are_the_same_as_behind_serve(plain: Stand) -> None:
    for base in ("", "/default/plain"):
        answer = await plain.client.post(f"{base}{PATH}?unused=1", content=GOOD, headers=GOOD_HEADERS)
        assert answer.status_code == 200, answer.text
        assert (await plain.client.get(f"{base}/v2/health/ready")).json() == {"ready": True}
        assert (await plain.client.get(f"{base}/openapi.json")).json()["servers"] == [{"url": base or "/"}]
    assert plain.session.signals().http_address == plain.url
    head = await plain.client.head("/v2")
    assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)
    assert "date" in head.headers


async def test_tritonclient_infers(plain: Stand) -> None:
    def infer() -> np.ndarray:
        client = triton.InferenceServerClient(plain.url)
        given = triton.InferInput("input", [3, 2, 2], "FP32")
        given.set_data_from_numpy(np.zeros((3, 2, 2), np.float32))
        try:
            return client.infer("plain", [given]).as_numpy("only")
        finally:
            client.close()

    assert (await asyncio.to_thread(infer)).shape[0] == 3


async def test_bodies_may_arrive_in_pieces_of_any_kind(plain: Stand) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for k in range(0, len(GOOD), 7):
            yield GOOD[k : k + 7]

    chunked = await plain.client.post(PATH, content=pieces(), headers=GOOD_HEADERS)
    assert chunked.status_code == 200, chunked.text
    async with connected(plain) as (reader, writer):
        for piece in (REQUEST[:20], REQUEST[20:-40], REQUEST[-40:-1], REQUEST[-1:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert (await read_answer(reader))[0] == 200
        head = post(b"", {**GOOD_HEADERS, "Content-Length": len(GOOD), "Expect": "100-continue"})
        writer.write(head)
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(GOOD)
        assert (await read_answer(reader))[0] == 200


@pytest.mark.parametrize("spaces", range(4))
async def test_tensors_of_a_body_that_arrives_in_pieces_are_aligned(
    plain: Stand, spaces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = plain.session.serving
    assert executor is not None
    begin, begun = executor.begin, list[InferRequest]()

    def observed(request: InferRequest, *others: Any) -> RequestExecution:
        begun.append(request)
        return begin(request, *others)

    monkeypatch.setattr(executor, "begin", observed)
    body = b" " * spaces + GOOD
    request = post(body, {**GOOD_HEADERS, HEADER_LENGTH: str(len(body) - 16)})
    async with connected(plain) as (reader, writer):
        for piece in (request[:-20], request[-20:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert (await read_answer(reader))[0] == 200
    assert [request.inputs["input"].flags.aligned for request in begun] == [True]


async def test_pipelined_requests_are_answered_in_order(plain: Stand) -> None:
    missing, unknown = post(b"", path="/v3"), post(b"{}", {"Content-Type": "text/html"})
    async with connected(plain) as (reader, writer):
        writer.write((REQUEST + missing) * 300 + unknown + REQUEST)
        statuses = [(await read_answer(reader))[0] for _ in range(601)]
        assert statuses == [200, 404] * 300 + [415]
        assert await is_closed(reader)  # the refused body was not read, nor the requests after it


async def test_thousands_of_concurrent_requests_are_answered(plain: Stand) -> None:
    asked = b"GET /v2/health/live HTTP/1.1\r\n\r\n"
    async with connected(plain) as (reader, writer):
        writer.write(2000 * asked + REQUEST + asked)
        statuses = [(await read_answer(reader))[0] for _ in range(2002)]
    assert statuses == 2002 * [200]


async def test_refused_bodies_are_not_read_to_the_end(plain: Stand) -> None:
    async with connected(plain) as (reader, writer):
        writer.write(post(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"}))
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                writer.write(b"2710\r\n" + bytes(10_000) + b"\r\n")
                await writer.drain()
        status, body = await read_answer(reader)
        assert (status, b"1000000 bytes" in body) == (413, True)
        assert await is_closed(reader)


@pytest.mark.parametrize(
    ("sent", "want_status"),
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, id="TLS"),
        pytest.param(b"GET /v2 HTTP/9.9\r\n\r\n", 400, id="another version"),
        pytest.param(b"GET /v2 HTTP/1.1\r\n" + b"X: y\r\n" * 20_000, 431, id="endless headers"),
        pytest.param(b"GET /" + b"x" * 200_000, 431, id="an endless path"),
        pytest.param(
            post(b"0\r\n\r\n", {"Transfer-Encoding": "chunked", "Content-Length": 5}),
            400,
            id="two lengths",
        ),
        pytest.param(post(b"no\r\n", {"Transfer-Encoding": "chunked", "Content-Length": None}), 400, id="bad chunks"),
    ],
)
async def test_bytes_that_are_not_http_end_the_connection(plain: Stand, sent: bytes, want_status: int) -> None:
    async with connected(plain) as (reader, writer):
        writer.write(sent)
        assert (await read_answer(reader))[0] == want_status
        assert await is_closed(reader)
    assert (await exchanged(plain, REQUEST))[0] == 200


async def test_clients_that_stop_sending_are_disconnected(plain: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.1)
    monkeypatch.setattr(http_connection, "IDLE_SECONDS", 0.1)
    async with connected(plain) as (reader, writer):
        for byte in b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: st":
            writer.write(bytes([byte]))
            await asyncio.sleep(0.01)
        assert (await read_answer(reader))[0] == 408
        assert await is_closed(reader)
    async with connected(plain) as (reader, writer):
        writer.write(REQUEST)
        assert (await read_answer(reader))[0] == 200
        assert await is_closed(reader)  # it was kept open for another request that did not arrive


async def test_the_time_to_read_an_answer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http_connection, "SEND_SECONDS", 0.2)
    app = application("plain").model("only", outputs=((1_000_000,),))
    async with stand(app, way=on_its_own_port) as running, connected(running) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing is taken from the socket
        asked = encode_request({"input": np.zeros((8, 2, 2), np.float32)})  # the answer has 32 MB
        writer.write(post(asked.body, dict(asked.headers)))

        def given_up() -> bool:
            writer.write(b"\r\n")
            return writer.is_closing()

        await until(given_up, "the server has closed the connection")
        assert running.session.meter.outcomes["in_time"] == 8


async def test_beyond_the_limit_the_connections_that_wait_longest_are_closed(plain: Stand) -> None:
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for k in range(150):
            reader, writer = await stack.enter_async_context(connected(plain))
            writer.write(b"" if k % 2 else REQUEST[:-8])
            readers.append(reader)
        assert all([await is_closed(reader) for reader in readers[:40]])
        assert (await exchanged(plain, REQUEST))[0] == 200


async def test_the_work_of_a_client_that_leaves_is_cancelled() -> None:
    slow = application("plain").model("only", beta_micros=2_000_000)
    async with stand(slow, way=on_its_own_port) as running:
        async with connected(running) as (_, writer):
            writer.write(REQUEST)
            await until(lambda: running.session.meter.arrived, "the request is there")
        await until(lambda: running.session.meter.outcomes["cancelled"], "it counts as cancelled")
        assert running.session.serving is not None
        assert running.session.serving.idle


async def test_pending_requests_are_answered_when_the_port_is_closed() -> None:
    app = application("plain").model("only", beta_micros=200_000)
    async with stand(app) as running:
        endpoint = http_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.http, "HTTP is listened for")
        async with httpx.AsyncClient(base_url=f"http://{running.session.addresses.http}") as client:
            await client.get("/v2")  # keeps an idle connection
            asking = asyncio.create_task(client.post(PATH, content=GOOD, headers=GOOD_HEADERS))
            await until(lambda: running.session.meter.arrived, "the request is there")
            await asyncio.wait_for(endpoint.close(), 20)
            assert (await asking).status_code == 200
            assert running.session.addresses.http is None
            with pytest.raises(httpx.ConnectError):
                await client.get("/v2")


@pytest.mark.parametrize(
    ("make", "published"),
    [
        pytest.param(http_endpoint, lambda session: session.addresses.http, id="HTTP"),
        pytest.param(grpc_endpoint, lambda session: session.addresses.grpc, id="gRPC"),
    ],
)
async def test_a_port_can_be_opened_changed_and_closed(
    make: Callable[[Session, str], PortEndpoint],
    published: Callable[[Session], str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints, "LISTEN_AGAIN_SECONDS", 0.05)
    async with stand(APP) as running:
        session = running.session
        first, second = make(session, "127.0.0.1"), make(session, "127.0.0.1")
        await first.move_to(0)
        await until(lambda: published(session), "the first listens")
        host, _, port = str(published(session)).rpartition(":")
        await second.move_to(int(port))  # it is in use: the second waits
        await asyncio.sleep(0)
        await first.close()
        assert published(session) is None
        await until(lambda: published(session) == f"{host}:{port}", "the second takes the port over")
        await second.move_to(None)
        assert published(session) is None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(host, int(port))


CONNECT = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
print(len(held), flush=True)
sys.stdin.read()
"""
"""A client that keeps this number of connections open and sends nothing."""


async def test_ten_thousand_idle_connections_do_not_affect_others() -> None:
    count, (soft, hard) = 10_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 14_000:
        pytest.skip(f"a process may have {hard} open files here, too few for {count} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        async with stand(APP, way=on_its_own_port) as running:
            host, port = running.url.split("/")[0].split(":")
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CONNECT, host, port, str(count - 10), stdin=PIPE, stdout=PIPE
            )
            try:
                assert client.stdout is not None
                assert await asyncio.wait_for(client.stdout.readline(), 120) == b"9990\n"
                for _ in range(20):
                    assert (await running.client.post(PATH, content=GOOD, headers=GOOD_HEADERS)).is_success
                assert running.session.meter.outcomes == {"in_time": 20}
            finally:
                client.kill()
                await client.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
