"""Clients that send malformed, incomplete or too large requests: they get an error, and others are not affected."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import WAYS, Stand, Way, stand, until
from tests.runtime.serving.ingress.raw_http import connected, exchanged, post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application

from partita_runtime.serving.session.settings import FrontendSettings

APP = application("plain").model("only")
PATH = "/v2/models/plain/infer"
GOOD, GOOD_HEADERS = infer_body(np.zeros((1, 2, 2), np.float32))
GOOD_JSON = b'{"inputs":[{"name":"input","datatype":"FP32","shape":[1,2,2],"data":[0,1,2,3]}]}'
NAN, NAN_HEADERS = infer_body(np.full((1, 2, 2), np.nan, np.float32))


def tensor(**fields: Any) -> bytes:
    given = {"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [0, 1, 2, 3], **fields}
    return json.dumps({"inputs": [given]}).encode()


async def serves(running: Stand) -> None:
    """The session answers others, and has no pending requests."""
    answer = await running.client.post(PATH, content=GOOD, headers=GOOD_HEADERS)
    assert answer.status_code == 200, answer.text
    await until(lambda: running.session.serving and running.session.serving.idle, "all requests have ended")


TABLE = {
    "no JSON": (post(b"inputs=1"), 400, "not an inference request"),
    "half of a JSON body": (post(tensor()[:30]), 400, "not an inference request"),
    "JSON that is nested without end": (post(b'{"inputs":' + b"[" * 200_000), 400, "not an inference request"),
    "JSON that is no object": (post(b"[]"), 400, "not an inference request"),
    "text that is no UTF-8": (post(b'{"id": "\xff\xfe"}'), 400, "not an inference request"),
    "NaN in JSON": (post(tensor(data=[0, 1, 2, float("nan")])), 400, "not a number (NaN)"),
    "NaN in a binary tensor": (post(NAN, NAN_HEADERS), 400, "not a number (NaN)"),
    "text in a tensor": (post(tensor(data=["a", "b", "c", "d"])), 400, "not an array of FP32"),
    "a tensor that is no rectangle": (post(tensor(data=[[0, 1, 2], [3]])), 400, "not an array of FP32"),
    "a shape of terabytes": (post(tensor(shape=[1, 2**40, 2])), 400, "must be FP32 [n, 2, 2]"),
    "a negative shape": (post(tensor(shape=[-1, 2, 2])), 400, "greater than or equal to 0"),
    "a header length beyond the body": (
        post(GOOD, {"Inference-Header-Content-Length": 10**9}),
        400,
        "not a length within the body",
    ),
    "a header length that is none": (post(GOOD, {"Inference-Header-Content-Length": "ten"}), 400, "not a length"),
    "another model": (post(tensor(), path="/v2/models/other/infer"), 404, "the model is 'plain'"),
    "another version": (post(tensor(), path="/v2/models/plain/versions/2/infer"), 404, "no version '2'"),
    "a model with a strange name": (post(tensor(), path="/v2/models/%00%ff/infer"), 404, "the model is 'plain'"),
    "another path": (post(tensor(), path="/v2/../etc/passwd"), 404, "Not Found"),
    "a web page": (post(b"<html>", {"Content-Type": "text/html"}), 415, "'text/html' is not supported"),
    "a form": (post(b"--x", {"Content-Type": "multipart/form-data; boundary=x"}), 415, "is not supported"),
    "a compressed body": (post(b"x", {"Content-Encoding": "gzip"}), 400, "compressed"),
    "two gigabytes, declared": (post(b"", {"Content-Length": 2**31}), 413, "67108864 bytes"),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    made: Way = request.param
    return made


@pytest.fixture
async def plain(way: Way) -> AsyncIterator[Stand]:
    async with stand(APP, FrontendSettings(function_processes=1, body_seconds=2), way=way) as running:
        yield running


async def test_malformed_requests_get_an_error(plain: Stand, caplog: pytest.LogCaptureFixture) -> None:
    for name, (sent, want_status, want_message) in TABLE.items():
        status, body = await exchanged(plain, sent)
        assert (status, want_message in json.loads(body)["error"]) == (want_status, True), (name, status, body)
    await serves(plain)
    assert plain.session.meter.arrived == 1  # refused requests do not count as load
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize(
    "length", ["-5", "1e3", "12, 13"], ids=["negative length", "length that is no number", "two lengths"]
)
async def test_bytes_that_are_not_http_are_refused(plain: Stand, length: str) -> None:
    async with connected(plain) as (reader, writer):
        writer.write(post(b"", {"Content-Length": length}))
        assert b" 400 " in await asyncio.wait_for(reader.readline(), 20)
    await serves(plain)


async def test_a_client_that_leaves_during_its_request_is_forgotten(
    plain: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    for sent in (b"POST /v2/mod", post(GOOD, GOOD_HEADERS)[:-8], b""):
        async with connected(plain) as (_, writer):
            writer.write(sent)
            await writer.drain()
    await serves(plain)
    assert plain.session.meter.arrived == 1
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_client_that_hangs_during_its_request_is_disconnected(plain: Stand) -> None:
    async with connected(plain) as (reader, writer):
        writer.write(post(GOOD, GOOD_HEADERS)[:-8])
        await serves(plain)
        assert b" 408 " in await asyncio.wait_for(reader.readline(), 20)
        assert b"connection: close" in (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).lower()


async def test_hundreds_of_idle_connections_do_not_affect_others(plain: Stand) -> None:
    async with contextlib.AsyncExitStack() as idle:
        for k in range(300):
            _, writer = await idle.enter_async_context(connected(plain))
            writer.write(b"" if k % 2 else b"POST /v2/models/plain/infer HTTP/1.1\r\nHost: stand\r\n")
        await serves(plain)


async def test_incomplete_bodies_share_a_memory_limit(way: Way) -> None:
    most = 300_000
    settings = FrontendSettings(function_processes=1, max_request_bytes=most, max_reading_bytes=most)
    body = b" " * (most - len(GOOD_JSON)) + GOOD_JSON
    async with stand(APP, settings, way=way) as running:
        bodies = running.session.bodies
        async with connected(running) as (reader, writer):
            writer.write(post(body)[:-100])
            await until(lambda: bodies.taken > most - 1000, "nearly all of it is there")
            chunked = {"Content-Length": None, "Transfer-Encoding": "chunked"}
            for head in (post(b"", {"Content-Length": 0x4000}), post(b"", chunked) + b"4000\r\n"):
                async with connected(running) as (other_reader, other):
                    other.write(head + b" " * 0x3000)
                    answer = (await asyncio.wait_for(other_reader.readuntil(b"\r\n\r\n"), 20)).lower()
                    assert [b" 503 " in answer, b"retry-after: 1" in answer, b"connection: close" in answer] == [
                        True
                    ] * 3
            await serves(running)
            writer.write(post(body)[-100:])
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 20)
        assert bodies.taken == 0
        async with connected(running) as (_, writer):
            writer.write(post(body)[:-100])
            await until(lambda: bodies.taken, "another one begins")
        await until(lambda: not bodies.taken, "it has left")


def test_a_memory_limit_below_one_request_is_refused() -> None:
    with pytest.raises(ValueError, match="at least max_request_bytes"):
        FrontendSettings(max_request_bytes=1000, max_reading_bytes=999)


async def test_a_client_that_never_reads_does_not_affect_others(way: Way) -> None:
    app = application("plain").model("only", outputs=((100_000,),))
    async with stand(app, way=way) as running:
        async with connected(running) as (reader, writer):
            reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing is taken from the socket
            writer.write(post(GOOD, GOOD_HEADERS) * 40)  # their answers are larger than the buffers of the sockets
            await until(lambda: running.session.meter.outcomes["in_time"] >= 2, "it is being answered")
            await serves(running)
        await serves(running)
