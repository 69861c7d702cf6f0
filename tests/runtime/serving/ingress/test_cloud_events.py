"""Requests that are CloudEvents, in binary and structured mode, are answered by events in the same mode."""

import base64
import io
import json
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, Final

import numpy as np
import pytest
from PIL import Image
from tests.runtime.serving.in_process.stand import WAYS, Stand, on_its_own_port, stand
from tests.runtime.serving.ingress.raw_http import exchanged, post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application

from partita_api.session.module import ImageInput
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.protocol import oip
from partita_runtime.serving.protocol.inference_client import decode_answer

PLAIN: Final = application("plain").model("only", outputs=((3,),))
STRUCTURED: Final = "application/cloudevents+json"
ATTRIBUTES: Final = {"specversion": "1.0", "id": "7", "source": "/cameras/north", "type": "camera.image"}
BINARY: Final = {f"ce-{name}": value for name, value in ATTRIBUTES.items()}
TENSORS: Final = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 2, 2], "data": [0, 1, 2, 3]}]}
ROWS: Final = {"instances": [[[0, 1], [2, 3]]]}
INFER, PREDICT = "/v2/models/plain/infer", "/v1/models/plain:predict"
REQUESTS: Final = [pytest.param(INFER, TENSORS, id="v2"), pytest.param(PREDICT, ROWS, id="v1")]


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(PLAIN, way=request.param) as running:
        yield running


def check_attributes(found: Mapping[str, str]) -> None:
    """They are those of an answer, as KServe's."""
    assert (found["specversion"], found["type"]) == ("1.0", "io.kserve.inference.response")
    assert found["source"] == "io.kserve.inference.plain"
    assert found["id"] not in ("", ATTRIBUTES["id"])
    assert datetime.fromisoformat(found["time"]).tzinfo is not None


def is_answer(data: Any) -> bool:
    rows = data["predictions"][0] if "predictions" in data else data["outputs"][0]["data"]
    return bool(rows == [0.0] * 3)


@pytest.mark.parametrize(("path", "content"), REQUESTS)
async def test_binary_mode(plain: Stand, path: str, content: dict[str, Any]) -> None:
    answer = await plain.client.post(path, json=content, headers=BINARY)
    assert answer.status_code == 200, answer.text
    check_attributes({name.removeprefix("ce-"): value for name, value in answer.headers.items()})
    assert answer.headers["content-type"] == "application/json"
    assert is_answer(answer.json())


@pytest.mark.parametrize(("path", "content"), REQUESTS)
@pytest.mark.parametrize("encoded", [False, True], ids=["data", "data_base64"])
async def test_structured_mode(plain: Stand, path: str, content: dict[str, Any], encoded: bool) -> None:
    data = {"data_base64": base64.b64encode(json.dumps(content).encode()).decode()} if encoded else {"data": content}
    event = json.dumps({**ATTRIBUTES, "datacontenttype": "application/json", **data})
    answer = await plain.client.post(path, content=event, headers={"content-type": f"{STRUCTURED}; charset=utf-8"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, STRUCTURED), answer.text
    check_attributes(answer.json())
    assert answer.json()["datacontenttype"] == "application/json"
    assert is_answer(answer.json()["data"])


async def test_binary_tensors_in_binary_mode(plain: Stand) -> None:
    content, headers = infer_body(np.zeros((1, 2, 2), np.float32))
    answer = await plain.client.post(INFER, content=content, headers={**headers, **BINARY})
    check_attributes({name.removeprefix("ce-"): value for name, value in answer.headers.items()})
    assert decode_answer(answer.headers, answer.content)["only"].tolist() == [[0.0] * 3]


async def test_the_answer_in_structured_mode_is_json_also_if_binary_data_are_requested(plain: Stand) -> None:
    content = {**TENSORS, "parameters": {"binary_data_output": True}, "outputs": [{"name": "only"}]}
    answer = await plain.client.post(INFER, json={**ATTRIBUTES, "data": content}, headers={"content-type": STRUCTURED})
    assert is_answer(answer.json()["data"])


async def test_an_image_in_base64() -> None:
    png = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(png, "PNG")
    app = application("plain").model("only", input=(3, 8, 8), outputs=((3,),), image=ImageInput())
    event = {**ATTRIBUTES, "data_base64": base64.b64encode(png.getvalue()).decode()}
    async with stand(app) as running:
        answer = await running.client.post(INFER, json=event, headers={"content-type": STRUCTURED})
        assert is_answer(answer.json()["data"])
        content, headers = png.getvalue(), {**BINARY, "content-type": "image/png"}
        answer = await running.client.post(INFER, content=content, headers=headers)
        assert answer.headers["ce-type"] == "io.kserve.inference.response"


@pytest.mark.parametrize(
    ("changed", "want_message"),
    [
        pytest.param({"specversion": "0.3"}, "'0.3' are not supported", id="an old version"),
        pytest.param({"id": ""}, "id", id="an empty id"),
        pytest.param({"source": None}, "source", id="no source"),
        pytest.param({"type": "x" * 1025}, "type", id="a long type"),
    ],
)
async def test_events_without_the_attributes_that_they_need(
    plain: Stand, changed: dict[str, str | None], want_message: str
) -> None:
    attributes = {name: value for name, value in {**ATTRIBUTES, **changed}.items() if value is not None}
    headers = {f"ce-{name}": value for name, value in attributes.items()}
    structured = {"content": json.dumps({**attributes, "data": TENSORS}), "headers": {"content-type": STRUCTURED}}
    for sent in ({"json": TENSORS, "headers": headers}, structured):
        answer = await plain.client.post(INFER, **sent)  # type: ignore[arg-type]
        assert (answer.status_code, want_message in answer.json()["error"]) == (400, True), answer.text
    assert plain.session.meter.arrived == 0


@pytest.mark.parametrize(
    ("body", "want_status", "want_message"),
    [
        pytest.param(json.dumps(ATTRIBUTES), 400, "has no data", id="no data"),
        pytest.param(json.dumps({**ATTRIBUTES, "data": 5}), 400, "data", id="data that are no request"),
        pytest.param(json.dumps({**ATTRIBUTES, "data_base64": "%"}), 400, "not base64", id="no base64"),
        pytest.param(json.dumps({**ATTRIBUTES, "data_base64": "bm9uZQ=="}), 400, "not an inference", id="other data"),
        pytest.param('{"data": ' + "[" * 200_000, 400, "not an inference request", id="nested without end"),
        pytest.param(" " * (oip.MAX_JSON_BYTES + 1), 413, "bytes of JSON", id="too much JSON"),
        pytest.param("[]", 400, "not an inference request", id="a batch"),
    ],
)
async def test_malformed_events(plain: Stand, body: str, want_status: int, want_message: str) -> None:
    for path in (INFER, PREDICT):
        status, answer = await exchanged(plain, post(body.encode(), {"Content-Type": STRUCTURED}, path))
        assert (status, want_message in json.loads(answer)["error"]) == (want_status, True), answer
    assert (await plain.client.post(INFER, json=TENSORS, headers=BINARY)).status_code == 200


async def test_what_a_client_sends_is_not_in_the_attributes_of_the_answer(plain: Stand) -> None:
    hostile = {**BINARY, "ce-id": "x, set-cookie: a=b", "ce-source": "javascript:alert(1)", "ce-evil": "value"}
    answer = await plain.client.post(INFER, json=TENSORS, headers=hostile)
    attributes = {name: value for name, value in answer.headers.items() if name.startswith("ce-")}
    assert attributes.keys() == {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"}
    assert not [value for value in attributes.values() if "cookie" in value or "alert" in value]


async def test_batches_of_events_are_refused() -> None:
    async with stand(PLAIN, way=on_its_own_port) as running:
        headers = {"content-type": "application/cloudevents-batch+json"}
        assert (await running.client.post(INFER, content="[]", headers=headers)).status_code == 415


async def test_an_event_needs_credentials(plain: Stand) -> None:
    plain.session.clients.allow(AllowedClients())
    for sent in ({"json": TENSORS, "headers": BINARY}, {"json": {}, "headers": {"content-type": STRUCTURED}}):
        assert (await plain.client.post(INFER, **sent)).status_code == 401  # type: ignore[arg-type]
