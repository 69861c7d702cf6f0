"""The request log of a session: what its sink receives, and that such a log can be replayed."""

import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import grpc
import numpy as np
import pytest
from PIL import Image
from tests.runtime.serving.in_process.stand import MONITORING, WAYS, Stand, post, stand, until
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application
from tests.runtime.serving.telemetry.event_sink import EventSink, event_sink

from partita_api.session.module import ImageInput
from partita_runtime.load.event_log import read_log
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, SERVICE
from partita_runtime.serving.protocol.inference_client import decode_answer
from partita_runtime.serving.telemetry.logged_events import REQUEST_TYPE, RESPONSE_TYPE

PLAIN: Final = application("plain").model("only", outputs=((3,),))
PICTURES: Final = application("plain").model("only", input=(3, 8, 8), outputs=((3,),), image=ImageInput())
INFER, PREDICT = "/v2/models/plain/infer", "/v1/models/plain:predict"
TENSORS: Final = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [0, 1, 2, 3]}]}
ROWS: Final = {"instances": [[[0, 1], [2, 3]]]}
BINARY, LENGTH = infer_body(np.ones((2, 2, 2), np.float32))
STRUCTURED: Final = {"content-type": "application/cloudevents+json"}
EVENT: Final = {"specversion": "1.0", "id": "7", "source": "/cameras/north", "type": "camera.image"}
CREDENTIALS: Final = {"authorization": "Bearer f3c1a0b9d2e84f6a", "cookie": "f3c1a0b9d2e84f6a"}


def png() -> bytes:
    picture = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(picture, "PNG")
    return picture.getvalue()


@asynccontextmanager
async def logging_stand(app: Application, sink: EventSink, **fields: Any) -> AsyncIterator[Stand]:
    """A session behind Serve's server that logs to the sink."""
    async with stand(app.logging_to(sink.url, **fields)) as running:
        yield running


async def received(sink: EventSink, count: int) -> None:
    await until(lambda: len(sink.events) >= count, f"{count} events have arrived")


def change(running: Stand, app: Application) -> None:
    """As Serve does it when the operator has changed the frontend's `user_config`."""
    running.session.reconfigure(Epoch.model_validate(app.epoch.user_config()))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("path", "content", "headers", "want_type", "want_protocol"),
    [
        pytest.param(INFER, json.dumps(TENSORS).encode(), {}, "application/json", "v2", id="json"),
        pytest.param(INFER, BINARY, LENGTH, "application/octet-stream", "v2", id="binary tensors"),
        pytest.param(PREDICT, json.dumps(ROWS).encode(), LENGTH, "application/json", "v1", id="v1"),
        pytest.param(
            PREDICT, json.dumps({**EVENT, "data": ROWS}).encode(), STRUCTURED, *STRUCTURED.values(), "v1", id="an event"
        ),
    ],
)
async def test_a_request_and_its_answer_are_events(
    way: Any, path: str, content: bytes, headers: dict[str, str], want_type: str, want_protocol: str
) -> None:
    async with event_sink() as sink, stand(PLAIN.logging_to(sink.url), way=way) as running:
        answer = await running.client.post(path, content=content, headers={**headers, **CREDENTIALS})
        assert answer.status_code == 200, answer.text
        await received(sink, 2)
    (request,), (response,) = sink.of_kind("request"), sink.of_kind("response")
    assert (request.body, response.body) == (content, answer.content)
    assert request.headers["content-type"] == want_type
    assert response.headers["content-type"] == answer.headers["content-type"]
    assert (request.path, response.path) == ("/events", "/events")
    common = {"specversion": "1.0", "source": "/default/plain", "namespace": "default", "inferenceservicename": "plain"}
    common |= {"protocol": want_protocol, "id": request.attributes["id"]}
    length = {"jsonheaderlength": LENGTH["Inference-Header-Content-Length"]} if content == BINARY else {}
    moment = {"time": request.attributes["time"]}
    assert request.attributes == {**common, **moment, **length, "type": REQUEST_TYPE}
    assert response.attributes.items() >= {**common, "type": RESPONSE_TYPE, "statuscode": "200"}.items()
    assert datetime.fromisoformat(request.attributes["time"]).tzinfo is not None
    assert "f3c1" not in str(sink.events)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_the_answer_of_an_event_stream_is_logged_as_a_whole(way: Any) -> None:
    async with event_sink() as sink, stand(PLAIN.logging_to(sink.url), way=way) as running:
        whole = await running.client.post(INFER, json=TENSORS)
        stream = await running.client.post(INFER, json=TENSORS, headers={"accept": "text/event-stream"})
        assert (stream.status_code, stream.content != whole.content) == (200, True)
        await received(sink, 4)
    assert [response.body for response in sink.of_kind("response")] == [whole.content] * 2
    assert {response.headers["content-type"] for response in sink.of_kind("response")} == {"application/json"}


async def by_grpc(running: Stand, shape: tuple[int, ...]) -> grpc.StatusCode:
    endpoint = grpc_endpoint(running.session, "127.0.0.1")
    await endpoint.move_to(0)
    await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
    asked = MESSAGES["ModelInferRequest"](model_name="plain")
    asked.inputs.add(name="input", datatype="FP32", shape=shape)
    asked.raw_input_contents.append(np.ones(shape, np.float32).tobytes())
    async with grpc.aio.insecure_channel(str(running.session.addresses.grpc)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(asked.SerializeToString(), metadata=[*CREDENTIALS.items()])
        code: grpc.StatusCode = await call.code()
    await endpoint.close()
    return code


async def test_a_request_by_grpc_is_logged_as_by_http() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        assert await by_grpc(running, (1, 2, 2)) is grpc.StatusCode.OK
        await received(sink, 2)
        (request,), (response,) = sink.of_kind("request"), sink.of_kind("response")
        (replayed,) = read_log([request.line]).requests
        answer = await running.client.post(INFER, content=replayed.payload.body, headers=replayed.payload.headers)
    assert request.attributes["id"] == response.attributes["id"]
    lengths = {"Inference-Header-Content-Length": response.attributes["jsonheaderlength"]}
    logged, got = decode_answer(lengths, response.body), decode_answer(answer.headers, answer.content)
    assert {name: tensor.tolist() for name, tensor in logged.items()} == {"only": got["only"].tolist()}
    assert "f3c1" not in str(sink.events)


@pytest.mark.parametrize(
    "send",
    [
        pytest.param(lambda running: running.client.post(INFER, content=b"{}"), id="no request"),
        pytest.param(lambda running: running.client.post(INFER, content=b"{"), id="no json"),
        pytest.param(lambda running: running.client.post(INFER, json={**TENSORS, "inputs": []}), id="no inputs"),
        pytest.param(lambda running: running.client.post("/v2/models/other/infer", json=TENSORS), id="other model"),
        pytest.param(lambda running: running.client.get("/v2/models/plain"), id="metadata"),
        pytest.param(lambda running: by_grpc(running, (1, 3)), id="grpc"),
    ],
)
async def test_what_is_no_valid_request_is_not_logged(send: Callable[[Stand], Any]) -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        await send(running)
        assert (await post(running))[0] == 200
        await received(sink, 2)
        assert {event.attributes["id"] for event in sink.events} == {sink.events[0].attributes["id"]}
        assert running.session.meter.logged.total() == len(sink.events) == 2


@pytest.mark.parametrize("by", ["http", "grpc"])
async def test_a_request_that_fails_is_logged_with_its_status(by: str) -> None:
    late = application("plain").model("only", alpha_micros=1_000_000).slo(10)
    async with event_sink() as sink, logging_stand(late, sink) as running:
        if by == "http":
            assert (await post(running))[0] == 504
        else:
            assert await by_grpc(running, (1, 2, 2)) is grpc.StatusCode.DEADLINE_EXCEEDED
        await received(sink, 2)
    (request,), (response,) = sink.of_kind("request"), sink.of_kind("response")
    assert "statuscode" not in request.attributes
    assert (response.attributes["statuscode"], list(json.loads(response.body))) == ("504", ["error"])


async def test_an_image_that_cannot_be_decoded_is_logged_with_its_status() -> None:
    async with event_sink() as sink, logging_stand(PICTURES, sink) as running:
        answer = await running.client.post(INFER, content=png()[:30], headers={"content-type": "image/png"})
        assert answer.status_code == 400, answer.text
        await received(sink, 2)
    assert sink.of_kind("response")[0].attributes["statuscode"] == "400"


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"mode": "Request"}, ["request"] * 3, id="requests only"),
        pytest.param({"mode": "Response"}, ["response"] * 3, id="responses only"),
        pytest.param({"sample": "0%"}, [], id="none"),
    ],
)
async def test_mode_and_sample(fields: dict[str, str], want: list[str]) -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink, **fields) as running:
        for _ in range(3):
            assert (await post(running))[0] == 200
        await running.session.request_log.finish()
        assert [event.kind for event in sink.events] == want


async def test_a_sample_has_whole_requests() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink, sample="50%") as running:
        for _ in range(64):
            assert (await post(running))[0] == 200
        await running.session.request_log.finish()
    ids = [[event.attributes["id"] for event in sink.of_kind(kind)] for kind in ("request", "response")]
    assert sorted(ids[0]) == sorted(ids[1])
    assert 0 < len(set(ids[0])) == len(ids[0]) < 64


async def test_a_larger_body_is_left_out() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink, maxBodyBytes=len(BINARY)) as running:
        larger, headers = infer_body(np.ones((3, 2, 2), np.float32))
        for content, length in ((BINARY, LENGTH), (larger, headers)):
            assert (await running.client.post(INFER, content=content, headers=length)).status_code == 200
        await received(sink, 4)
    kept, omitted = sorted(sink.of_kind("request"), key=lambda event: event.attributes["time"])
    assert (kept.body, "omittedbytes" in kept.attributes) == (BINARY, False)
    assert (omitted.body, omitted.attributes["omittedbytes"]) == (b"", str(len(larger)))
    found = read_log([kept.line, omitted.line])
    assert ([request.payload.body for request in found.requests], found.without_body) == ([BINARY], 1)


async def test_another_sink_needs_no_other_plan() -> None:
    async with event_sink() as before, event_sink() as after, logging_stand(PLAIN, before) as running:
        executor = running.session.serving
        assert (await post(running))[0] == 200
        await received(before, 2)
        change(running, PLAIN.logging_to(after.url))
        assert (await post(running))[0] == 200
        await received(after, 2)
        change(running, PLAIN)
        assert (await post(running))[0] == 200
        assert running.session.serving is executor
        await running.session.request_log.finish()
    assert (len(before.events), len(after.events)) == (2, 2)


async def test_events_that_wait_do_not_reach_a_sink_that_is_not_named_any_more() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        sink.answers.clear()
        for _ in range(10):
            assert (await post(running))[0] == 200
        await received(sink, 8)
        change(running, PLAIN)
        await until(lambda: running.session.meter.logged.total() == 20, "no event waits any more")
        sink.answers.set()
        change(running, PLAIN.logging_to(sink.url, mode="Request"))
        assert (await post(running))[0] == 200
        await received(sink, 9)
    assert len(sink.events) == 9
    assert running.session.meter.logged == {"dropped": 20, "sent": 1}


async def test_what_waits_is_sent_before_a_frontend_ends() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        for _ in range(20):
            assert (await post(running))[0] == 200
        await running.session.request_log.finish()
        assert len(sink.events) == 40
        assert running.session.meter.logged == {"sent": 40}


async def test_connections_are_used_again() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        for _ in range(20):
            assert (await post(running))[0] == 200
        await received(sink, 40)
    assert len(sink.connections) <= 8


async def test_events_are_counted() -> None:
    async with event_sink() as sink, logging_stand(PLAIN, sink) as running:
        sink.status = HTTPStatus.INTERNAL_SERVER_ERROR
        assert (await post(running))[0] == 200
        await until(lambda: running.session.meter.logged["failed"] == 2, "both events have failed")
        sink.status = HTTPStatus.OK
        assert (await post(running))[0] == 200
        await until(lambda: running.session.meter.logged["sent"] == 2, "both events are sent")
        metrics = (await running.client.get("/partita/metrics", headers=MONITORING)).text
    for result in ("failed", "sent"):
        assert f'partita_request_log_events_total{{result="{result}",session="default/plain"}} 2.0' in metrics


@pytest.mark.parametrize(
    ("app", "path", "content", "headers"),
    [
        pytest.param(PLAIN, INFER, json.dumps(TENSORS).encode(), {}, id="json"),
        pytest.param(PLAIN, INFER, BINARY, LENGTH, id="binary tensors"),
        pytest.param(PLAIN, PREDICT, json.dumps(ROWS).encode(), {}, id="v1"),
        pytest.param(PLAIN, PREDICT, json.dumps({**EVENT, "data": ROWS}).encode(), STRUCTURED, id="an event of v1"),
        pytest.param(PLAIN, INFER, json.dumps({**EVENT, "data": TENSORS}).encode(), STRUCTURED, id="an event of v2"),
        pytest.param(PICTURES, INFER, png(), {"content-type": "image/png"}, id="an image"),
        pytest.param(PICTURES, INFER, png(), {}, id="an image without a type"),
    ],
)
async def test_a_log_can_be_replayed(app: Application, path: str, content: bytes, headers: dict[str, str]) -> None:
    async with event_sink() as sink, logging_stand(app, sink) as running:
        assert (await running.client.post(path, content=content, headers=headers)).status_code == 200
        await received(sink, 2)
        (logged,) = read_log([event.line for event in sink.events]).requests
        again = await running.client.post(
            PREDICT if logged.is_v1 else INFER, content=logged.payload.body, headers=logged.payload.headers
        )
    assert again.status_code == 200, again.text
    assert logged.payload.body == content
    assert len(again.content) == len(sink.of_kind("response")[0].body)
