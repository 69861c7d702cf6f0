"""The OpenAPI document of a session is valid and matches the session's answers."""

from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from tests.runtime.serving.in_process.stand import stand
from tests.runtime.serving.plans import Application, application, detector_with_crops

from partita_api.session.module import ImageInput
from partita_runtime.serving.ingress.http_service import CONTENT_TYPES
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.openapi.document import openapi

PHOTO = application("photo").model("only", input=(3, 8, 8), image=ImageInput())
ENDS = application("ends").function("f", "double").model("m").edge("m", "f")


def document(app: Application) -> dict[str, Any]:
    return openapi(Interface(app.name, app.session.spec, app.epoch.outputs), f"/default/{app.name}")


def fits(app: Application, schema: str, value: Any) -> bool:
    """Whether the value is valid by the document's schema of this name."""
    made = document(app)
    return Draft202012Validator({"$ref": f"#/components/schemas/{schema}", **made}).is_valid(value)


@pytest.mark.parametrize("app", [detector_with_crops(), PHOTO, ENDS], ids=lambda app: app.name)
def test_documents_are_valid(app: Application) -> None:
    validate(document(app))


def test_every_way_to_send_a_request_is_described() -> None:
    described = document(PHOTO)["paths"]["/v2/models/photo/infer"]["post"]["requestBody"]["content"]
    assert {*described} == {*CONTENT_TYPES} - {"", "application/x-www-form-urlencoded"}
    plain = document(ENDS)["paths"]["/v2/models/ends/infer"]["post"]["requestBody"]["content"]
    assert {*plain} == {"application/json", "application/octet-stream", "application/cloudevents+json"}


def request(**tensor: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "input", "datatype": "FP32", "shape": [2, 3, 4], "data": [0] * 24, **tensor}]}


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(request(), True, id="good"),
        pytest.param(request(name="image"), False, id="another name"),
        pytest.param(request(datatype="INT64"), False, id="another element type"),
        pytest.param(request(shape=[1, 4, 3]), False, id="another shape"),
        pytest.param(request(shape=[65, 3, 4]), False, id="too many samples"),
        pytest.param({"inputs": []}, False, id="no inputs"),
        pytest.param({**request(), "parameters": {"timeout": 0}}, True, id="no timeout"),
        pytest.param({**request(), "parameters": {"timeout": -1}}, False, id="a past timeout"),
        pytest.param({**request(), "parameters": {"priority": 1}}, True, id="a priority"),
    ],
)
async def test_its_schema_of_requests_matches_the_session(body: dict[str, Any], want: bool) -> None:
    app = application("plain").model("only", input=(3, 4))
    assert fits(app, "InferRequest", body) is want
    async with stand(app) as running:
        answer = await running.client.post("/v2/models/plain/infer", json=body)
        assert answer.is_success is want, answer.text


async def test_answers_match_the_document_at_a_stable_path() -> None:
    app = detector_with_crops()
    async with stand(app) as running:
        served = (await running.client.get("/openapi.json")).json()
        assert served["paths"] == document(app)["paths"]
        tensor = np.ones((1, 3, 4), np.float32)
        body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 3, 4], "data": tensor.ravel().tolist()}]}
        for path, schema in (
            ("/v2", "ServerMetadata"),
            ("/v2/health/ready", "Ready"),
            ("/v2/models/traffic", "ModelMetadata"),
            ("/v2/models/other", "Error"),
        ):
            answer = await running.client.get(path)
            assert fits(app, schema, answer.json()), path
            assert not fits(app, schema, {}), path
        answer = await running.client.post("/v2/models/traffic/infer", json=body)
        assert fits(app, "InferResponse", answer.json()), answer.text
