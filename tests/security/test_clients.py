"""Hostile clients of a session: what they send costs the frontend little, and they get a clear error."""

import asyncio
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import Stand, Way, behind_uvicorn, on_its_own_port, post, stand
from tests.runtime.serving.ingress.raw_http import connected, exchanged
from tests.runtime.serving.ingress.raw_http import post as request
from tests.runtime.serving.plans import application

from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, SERVICE
from partita_runtime.serving.protocol.oip import MAX_JSON_BYTES

APP = application("plain").model("only")
WAYS = {"behind Serve's server": behind_uvicorn, "on its own port": on_its_own_port}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    made: Way = request.param
    return made


@pytest.fixture
async def plain(way: Way) -> AsyncIterator[Stand]:
    async with stand(APP, way=way) as running:
        yield running


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails if an error was logged."""
    yield
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def infer(data: str = "[0,1,2,3]", shape: str = "[1,2,2]", parameters: str = "", **fields: str) -> bytes:
    """A request as text: its numbers may have any number of digits."""
    tensor = {"name": "input", "datatype": "FP32", **fields}
    more = f',"parameters":{{{parameters}}}' if parameters else ""
    return f'{{"inputs":[{json.dumps(tensor)[:-1]},"shape":{shape},"data":{data}}}]{more}}}'.encode()


DIGITS = "9" * 4000
TOO_MANY_DIGITS = "9" * 5000
"""More than Python converts."""


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize(
    ("sent", "want_status", "want_message"),
    [
        pytest.param(request(infer(f"[0,1,2,{DIGITS}]")), 400, "not an array of FP32", id="an element of 4000 digits"),
        pytest.param(request(infer(f"[0,1,2.5,{DIGITS}]")), 400, "not an array of FP32", id="... beside a fraction"),
        pytest.param(request(infer(f"[0,1,2,{TOO_MANY_DIGITS}]")), 400, "not an inference", id="... of 5000 digits"),
        pytest.param(request(infer("[0,1,2,1e999]")), 400, "not an array of FP32", id="1e999"),
        pytest.param(request(infer("[0,1,2,1e39]")), 400, "not an array of FP32", id="too large for FP32"),
        pytest.param(request(infer(f"[0,1,2,1e{DIGITS}]")), 400, "not an", id="an exponent of 4000 digits"),
        pytest.param(request(infer("[0,1,2,-Infinity]")), 400, "not an array of FP32", id="infinity"),
        pytest.param(request(infer("[0,1,2,NaN]")), 400, "not a number (NaN)", id="NaN"),
        pytest.param(request(infer("[0,1,2,true]")), 400, "not an array of FP32", id="a boolean"),
        pytest.param(request(infer(shape=f"[1,2,{DIGITS}]")), 400, "less than", id="a dimension of 4000 digits"),
        pytest.param(request(infer(parameters=f'"timeout":{DIGITS}')), 400, "'timeout' must be", id="a timeout"),
        pytest.param(request(infer(parameters=f'"timeout":"{DIGITS}"')), 400, "'timeout' must be", id="... as text"),
        pytest.param(request(infer(parameters='"timeout":1e999')), 400, "'timeout' must be", id="... without end"),
        pytest.param(request(infer(parameters=f'"priority":{2**63}')), 400, "'priority' must be", id="a priority"),
        pytest.param(
            request(infer(), {"Inference-Header-Content-Length": TOO_MANY_DIGITS}), 400, "not a length", id="a header"
        ),
        pytest.param(request(infer(name="x" * 1_000_000)), 400, "the inputs must be 'input'", id="a long name"),
        pytest.param(request(infer(datatype="x" * 1_000_000)), 400, "must be FP32", id="a long element type"),
        pytest.param(request(infer(), path=f"/v2/models/{'x' * 50_000}/infer"), 404, "no model", id="a long path"),
        pytest.param(request(infer("[" + "0," * (MAX_JSON_BYTES // 2) + "0]")), 413, "as binary", id="much JSON"),
    ],
)
async def test_text_that_costs_more_than_it_has_bytes(
    plain: Stand, sent: bytes, want_status: int, want_message: str
) -> None:
    status, body = await exchanged(plain, sent)
    message = json.loads(body)["error"]
    assert (status, want_message in message) == (want_status, True), message
    assert len(message) < 1100
    assert (await post(plain))[0] == 200


@pytest.mark.usefixtures("no_errors")
async def test_a_length_of_thousands_of_digits() -> None:
    """Its value is small, so parsers of HTTP accept it."""
    async with stand(APP, way=on_its_own_port) as running, connected(running) as (reader, writer):
        writer.write(request(infer(), {"Content-Length": "0" * 5000 + "2"}) + request(infer()))
        answers = await asyncio.wait_for(reader.read(-1), 20)
        assert (answers.count(b"HTTP/1.1 "), b" 400 " in answers) == (1, True), answers
        assert (await post(running))[0] == 200


async def test_a_long_text_among_a_tensors_elements_takes_no_memory_for_each() -> None:
    """An array of texts would have the longest text's size for each of its elements."""
    async with stand(APP) as running:
        texts = json.dumps(["x" * 100_000] + ["x"] * 1000)
        tracemalloc.start()
        try:
            answer = await running.client.post("/v2/models/plain/infer", content=infer(texts))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (answer.status_code, "not an array of FP32" in answer.text) == (400, True)
        assert peak < 50_000_000


def message(**fields: Any) -> Any:
    made = MESSAGES["ModelInferRequest"](model_name="plain", **fields)
    made.inputs.add(name="input", datatype="FP32", shape=[1, 2, 2])
    return made


ZEROS = np.zeros(4, np.float32).tobytes()


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize(
    ("sent", "want_code"),
    [
        pytest.param(message(raw_input_contents=[ZEROS]).SerializeToString(), "OK", id="a small message"),
        pytest.param(
            message(raw_input_contents=[bytes(2 * MAX_JSON_BYTES)]).SerializeToString(),
            "INVALID_ARGUMENT",
            id="a large tensor",
        ),
        pytest.param(b"\x2a\x00" * MAX_JSON_BYTES, "RESOURCE_EXHAUSTED", id="millions of inputs"),
        pytest.param(
            message(id="x" * 2 * MAX_JSON_BYTES, raw_input_contents=[ZEROS]).SerializeToString(),
            "RESOURCE_EXHAUSTED",
            id="a long id",
        ),
        pytest.param(b"\x3a\xff\xff\xff\xff\x0f" * MAX_JSON_BYTES, "INVALID_ARGUMENT", id="a tensor without end"),
        pytest.param(b"\xff" * 2 * MAX_JSON_BYTES, "RESOURCE_EXHAUSTED", id="no message"),
    ],
)
async def test_grpc_messages_that_take_more_memory_than_bytes(sent: bytes, want_code: str) -> None:
    async with stand(APP) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await running.until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with grpc.aio.insecure_channel(str(running.session.addresses.grpc)) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(sent)
            assert (await call.code()).name == want_code
        await endpoint.close()
