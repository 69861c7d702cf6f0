"""KServe's V1 protocol over real sockets: instances in, predictions out."""

import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from PIL import Image
from tests.runtime.serving.in_process.stand import WAYS, LocalDirectory, Stand, on_its_own_port, stand, until
from tests.runtime.serving.ingress.raw_http import exchanged, post
from tests.runtime.serving.plans import application, detector_with_crops

from partita_api.session.module import DType, ImageInput, TensorSpec
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.protocol import oip, v1
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings

PLAIN: Final = application("plain").model("only", outputs=((3,),))
PREDICT: Final = "/v1/models/plain:predict"
NETWORK: Final = "tests.runtime.serving.models:convolutional"
SAMPLE: Final = [[0, 1], [2, 3]]


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def plain(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(PLAIN, way=request.param) as running:
        yield running


async def test_models_and_predictions(plain: Stand) -> None:
    assert (await plain.client.get("/")).json() == {"status": "alive"}
    assert (await plain.client.get("/v1/models")).json() == {"models": ["plain"]}
    assert (await plain.client.get("/v1/models/plain")).json() == {"name": "plain", "ready": True}
    answer = await plain.client.post(PREDICT, json={"instances": [SAMPLE, SAMPLE], "signature_name": "serving"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"predictions": [[0.0] * 3] * 2}
    assert plain.session.meter.outcomes["in_time"] == 2


async def test_it_computes_what_the_open_inference_protocol_does() -> None:
    app = application("real").model("network", input=(3, 16, 16), outputs=((10,),), entrypoint=NETWORK)
    image = [[[(x * y + c) % 7 / 7 for x in range(16)] for y in range(16)] for c in range(3)]
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": image}
    async with stand(app) as running:
        by_rows = await running.client.post("/v1/models/real:predict", json={"instances": [image]})
        by_tensors = await running.client.post("/v2/models/real/infer", json={"inputs": [tensor]})
    (row,) = by_rows.json()["predictions"]
    assert row == by_tensors.json()["outputs"][0]["data"]
    assert len(set(row)) == 10


async def test_several_answer_tensors_have_names() -> None:
    samples = [[[float(crops), 0, 0, 0], [0] * 4, [0] * 4] for crops in (2, 0, 1)]
    async with stand(detector_with_crops()) as running:
        answer = await running.client.post("/v1/models/traffic:predict", json={"instances": samples})
    assert answer.json()["predictions"] == {"classifier": [[0.0] * 5] * 3, "classifier.index": [0, 0, 2]}


def test_one_tensor_of_several_modules_has_its_name() -> None:
    app = application("ends").model("root").model("left").model("right").edge("root", "left").edge("root", "right")
    _, content = v1.encode_answer(Interface("ends", app.session.spec, {}), {"left": np.zeros((1, 2), np.float32)})
    assert json.loads(content) == {"predictions": {"left": [[0.0, 0.0]]}}


async def test_images_in_base64() -> None:
    png = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(png, "PNG")
    instance = {"b64": base64.b64encode(png.getvalue()).decode()}
    app = application("photo").model("only", input=(3, 8, 8), outputs=((3,),), image=ImageInput())
    async with stand(app) as running:
        answer = await running.client.post("/v1/models/photo:predict", json={"instances": [instance, instance]})
        assert answer.json() == {"predictions": [[0.0] * 3] * 2}
        for wrong in ({"b64": "%"}, {"b64": 5}, {"file": "a"}, {**instance, "more": 1}):
            answer = await running.client.post("/v1/models/photo:predict", json={"instances": [wrong]})
            assert (answer.status_code, "instance 0 is not an image" in answer.json()["error"]) == (400, True), wrong


@pytest.mark.parametrize(
    ("body", "want_status", "want_message"),
    [
        pytest.param({"instances": []}, 400, "1 to 64 instances", id="no instances"),
        pytest.param({"instances": [SAMPLE] * 65}, 400, "1 to 64 instances, not 65", id="too many instances"),
        pytest.param({"inputs": [SAMPLE]}, 400, "instances: Field required", id="columns"),
        pytest.param({"instances": SAMPLE}, 400, "has 8 elements", id="one sample without a list"),
        pytest.param({"instances": [[[0, 1], [2]]]}, 400, "not an array of FP32", id="no rectangle"),
        pytest.param(
            {"instances": [{"b64": "AAAA"}]}, 400, "not an array of FP32", id="an image for a session without"
        ),
        pytest.param({"instances": [[["a", "b"], ["c", "d"]]]}, 400, "not an array of FP32", id="texts"),
        pytest.param([], 400, "not an inference request", id="no object"),
    ],
)
async def test_requests_that_do_not_fit(body: Any, want_status: int, want_message: str) -> None:
    async with stand(PLAIN, way=on_its_own_port) as running:
        answer = await running.client.post(PREDICT, json=body)
        assert (answer.status_code, want_message in answer.json()["error"]) == (want_status, True), answer.text
        assert running.session.meter.arrived == 0


@pytest.mark.parametrize(
    ("path", "want_status"),
    [
        pytest.param("/v1/models/other:predict", 404, id="another model"),
        pytest.param("/v1/models/plain:explain", 404, id="explanations"),
        pytest.param("/v1/models/plain:predict/more", 404, id="more path"),
    ],
)
async def test_other_paths(path: str, want_status: int) -> None:
    async with stand(PLAIN, way=on_its_own_port) as running:
        answer = await running.client.post(path, json={"instances": [SAMPLE]})
        assert (answer.status_code, list(answer.json())) == (want_status, ["error"])
        assert (await running.client.get(PREDICT)).status_code == 405


async def test_a_session_with_several_inputs_has_no_predictions() -> None:
    app = application("pair").model("left").model("right")
    async with stand(app) as running:
        answer = await running.client.post("/v1/models/pair:predict", json={"instances": [SAMPLE]})
        assert (answer.status_code, "has 'left', 'right'" in answer.json()["error"]) == (400, True)
        document = (await running.client.get("/openapi.json")).json()
        assert [path for path in document["paths"] if "v1" in path] == ["/v1/models", "/v1/models/pair"]


async def test_readiness_without_replicas_and_before_a_plan(plain: Stand) -> None:
    (replica,) = plain.workers
    await plain.kill(replica)
    await until(lambda: not plain.session.ready, "the replica is missed")
    answer = await plain.client.get("/v1/models/plain")
    assert (answer.status_code, answer.json()) == (503, {"name": "plain", "ready": False})
    async with on_its_own_port(Session("default/early", FrontendSettings(), LocalDirectory())) as host:
        early = await plain.client.get(f"http://{host}/v1/models/early")
        assert (early.status_code, "no plan" in early.json()["error"]) == (503, True)


async def test_its_limits_are_those_of_json(plain: Stand) -> None:
    """A large or deep body is refused, by its size or by the parser, and others are answered."""
    large = b'{"instances": [' + b"0," * oip.MAX_JSON_BYTES + b"0]}"
    for sent, want_status in (
        (post(large, path=PREDICT), 413),
        (post(b'{"instances": ' + b"[" * 200_000, path=PREDICT), 400),
        (post(b"{}", {"Content-Type": "application/octet-stream"}, path=PREDICT), 415),
        (post(b"{}", {"Content-Encoding": "gzip"}, path=PREDICT), 400),
    ):
        assert (await exchanged(plain, sent))[0] == want_status
    assert (await plain.client.post(PREDICT, json={"instances": [SAMPLE]})).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/plain", PREDICT])
async def test_without_credentials_nothing_is_answered(plain: Stand, path: str) -> None:
    plain.session.clients.allow(AllowedClients())
    method = "POST" if path == PREDICT else "GET"
    answer = await plain.client.request(method, path, json={"instances": [SAMPLE]} if method == "POST" else None)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="partita"')
    assert plain.session.meter.arrived == 0


async def test_answers_match_the_document() -> None:
    async with stand(PLAIN) as running:
        document = (await running.client.get("/openapi.json")).json()
        for path, content in (
            ("/", None),
            ("/v1/models", None),
            ("/v1/models/plain", None),
            (PREDICT, {"instances": [SAMPLE]}),
        ):
            method = "get" if content is None else "post"
            answer = await running.client.request(method.upper(), path, json=content)
            schema = document["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
            valid = Draft202012Validator({**schema, "components": document["components"]})
            assert (valid.is_valid(answer.json()), valid.is_valid({})) == (True, False), path


@pytest.mark.parametrize(
    ("dtype", "instance", "want"),
    [
        pytest.param(DType.INT64, [5, -5], True, id="whole numbers"),
        pytest.param(DType.INT64, [0.5, 1], False, id="a fraction for whole numbers"),
        pytest.param(DType.UINT8, [0, 256], False, id="a number that the type cannot hold"),
        pytest.param(DType.BYTES, ["a", "é"], True, id="texts"),
        pytest.param(DType.BYTES, ["a", 5], False, id="a number for texts"),
    ],
)
def test_element_types(dtype: DType, instance: list[Any], want: bool) -> None:
    modules = (PLAIN.session.spec.modules[0].model_copy(update={"input": TensorSpec(shape=(2,), dtype=dtype)}),)
    interface = Interface("plain", PLAIN.session.spec.model_copy(update={"modules": modules}), {})
    with contextlib.nullcontext() if want else pytest.raises(RequestError, match="not an array of"):
        request = v1.decode_request(json.dumps({"instances": [instance]}).encode(), interface)
        assert request.inputs["input"].shape == (1, 2)


@pytest.mark.parametrize(
    ("instances", "want_shape"),
    [
        pytest.param([[[1, 2], [3, 4]]], (1, 2, 2), id="smaller"),
        pytest.param([[[1] * 5, [2] * 5]] * 2, (2, 2, 5), id="the largest"),
        pytest.param([[[1] * 6, [2] * 6]], None, id="too large"),
        pytest.param([[[], []]], None, id="empty"),
        pytest.param([[]], None, id="no rows"),
        pytest.param([5], None, id="a number"),
        pytest.param([[[1, 2], [3, 4]], [[1], [2]]], None, id="different sizes in one request"),
    ],
)
def test_samples_of_variable_size(instances: list[Any], want_shape: tuple[int, ...] | None) -> None:
    given = TensorSpec(shape=(2, 5), variable_dimension=1)
    modules = (PLAIN.session.spec.modules[0].model_copy(update={"input": given}),)
    interface = Interface("plain", PLAIN.session.spec.model_copy(update={"modules": modules}), {})
    content = json.dumps({"instances": instances}).encode()
    if want_shape is None:
        with pytest.raises(RequestError):
            v1.decode_request(content, interface)
    else:
        assert np.shape(v1.decode_request(content, interface).inputs["input"]) == want_shape
