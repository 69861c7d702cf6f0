"""A session from the client's side: the Open Inference Protocol over real sockets, with tritonclient."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tests.runtime.serving.in_process.stand import MONITORING, Stand, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application, detector_with_crops
from tritonclient.utils import InferenceServerException

from partita_runtime.serving.session.settings import FrontendSettings

T = TypeVar("T")


def image(*crops: int) -> np.ndarray:
    """One sample for each desired number of crops."""
    samples = np.zeros((len(crops), 3, 4), np.float32)
    samples[:, 0, 0] = crops
    return samples


@pytest.fixture
async def traffic() -> AsyncIterator[Stand]:
    async with stand(detector_with_crops()) as running:
        yield running


async def with_triton(running: Stand, use: Callable[[triton.InferenceServerClient], T]) -> T:
    """tritonclient blocks, so it runs in a thread."""

    def run() -> T:
        client = triton.InferenceServerClient(running.url)
        try:
            return use(client)
        finally:
            client.close()

    return await asyncio.to_thread(run)


async def test_tritonclient_reads_the_metadata(traffic: Stand) -> None:
    def ask(client: triton.InferenceServerClient) -> None:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("traffic")
        assert client.is_model_ready("traffic", "1")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data", "model_configuration", "statistics"]
        assert client.get_model_metadata("traffic")["inputs"] == [
            {"name": "input", "datatype": "FP32", "shape": [-1, 3, 4]}
        ]

    await with_triton(traffic, ask)


@pytest.mark.parametrize("binary_in", [True, False], ids=["binary in", "json in"])
@pytest.mark.parametrize("binary_out", [True, False, None], ids=["binary out", "json out", "default out"])
async def test_tritonclient_infers(traffic: Stand, binary_in: bool, binary_out: bool | None) -> None:
    def infer(client: triton.InferenceServerClient) -> triton.InferResult:
        given = triton.InferInput("input", [3, 3, 4], "FP32")
        given.set_data_from_numpy(image(2, 0, 1), binary_data=binary_in)
        names = ("classifier", "classifier.index")
        outputs = (
            None if binary_out is None else [triton.InferRequestedOutput(n, binary_data=binary_out) for n in names]
        )
        return client.infer("traffic", [given], outputs=outputs, request_id="seven")

    result = await with_triton(traffic, infer)
    assert result.get_response()["id"] == "seven"
    np.testing.assert_array_equal(result.as_numpy("classifier.index"), [0, 0, 2])
    assert result.as_numpy("classifier").shape == (3, 5)


async def test_an_empty_fan_out_gives_no_rows(traffic: Stand) -> None:
    content, headers = infer_body(image(0))
    answer = await traffic.client.post("/v2/models/traffic/infer", content=content, headers=headers)
    shapes = {output["name"]: output["shape"] for output in answer.json()["outputs"]}
    assert shapes == {"classifier": [0, 5], "classifier.index": [0]}


async def test_sub_requests_beyond_the_maximum_fan_out_are_cut_off_and_counted(traffic: Stand) -> None:
    content, headers = infer_body(image(5))
    answer = await traffic.client.post("/v2/models/traffic/infer", content=content, headers=headers)
    assert {output["name"]: output["shape"] for output in answer.json()["outputs"]}["classifier"] == [3, 5]
    metrics = (await traffic.client.get("/partita/metrics", headers=MONITORING)).text
    assert 'partita_fan_out_cut_off_total{module="crop",session="default/traffic"} 2.0' in metrics


async def infer(running: Stand, tensor: np.ndarray, **parameters: Any) -> httpx.Response:
    inputs = [{"name": "input", "datatype": "FP32", "shape": tensor.shape, "data": tensor.ravel().tolist()}]
    body = {"inputs": inputs, "parameters": parameters}
    return await running.client.post(f"/v2/models/{running.app.name}/infer", json=body)


@pytest.mark.parametrize(
    ("method", "path", "want_status", "want_message"),
    [
        pytest.param("POST", "/v2/models/other/infer", 404, "the model is 'traffic'", id="another model"),
        pytest.param("POST", "/v2/models/traffic/versions/9/infer", 404, "no version '9'", id="another version"),
        pytest.param("GET", "/v2/models/other", 404, "the model is 'traffic'", id="metadata of another model"),
        pytest.param("GET", "/v2/models/traffic/infer", 405, "Method Not Allowed", id="another method"),
        pytest.param("GET", "/v3", 404, "Not Found", id="another path"),
        pytest.param("POST", "/v2/models/traffic/infer", 400, "not an inference request", id="no body"),
    ],
)
async def test_errors_are_json(traffic: Stand, method: str, path: str, want_status: int, want_message: str) -> None:
    answer = await traffic.client.request(method, path)
    assert answer.status_code == want_status
    assert want_message in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "want"),
    [pytest.param("/v2/models/traffic/infer", "POST", id="inference"), pytest.param("/v2", "GET, HEAD", id="metadata")],
)
async def test_the_answer_to_another_method_names_those_that_there_are(traffic: Stand, path: str, want: str) -> None:
    answer = await traffic.client.request("TRACE", path)
    assert (answer.status_code, answer.headers.get("Allow")) == (405, want)


async def test_tritonclient_shows_the_message(traffic: Stand) -> None:
    def infer(client: triton.InferenceServerClient) -> None:
        given = triton.InferInput("input", [1, 4, 3], "FP32")
        given.set_data_from_numpy(np.zeros((1, 4, 3), np.float32))
        client.infer("traffic", [given])

    with pytest.raises(InferenceServerException, match=r"must be FP32 \[n, 3, 4\] with n from 1 to 64") as refused:
        await with_triton(traffic, infer)
    assert refused.value.status() == "400"


async def test_compressed_bodies_are_refused(traffic: Stand) -> None:
    answer = await traffic.client.post("/v2/models/traffic/infer", content=b"x", headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, "compressed" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_large_bodies_are_not_read(chunked: bool) -> None:
    settings = FrontendSettings(function_processes=1, max_request_bytes=1000)
    pieces = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pieces
        while pieces < 1_000_000:
            pieces += 1
            yield bytes(10_000)

    async with stand(application("small").model("only"), settings) as running:
        content = endless() if chunked else bytes(1001)
        try:
            answer = await running.client.post("/v2/models/small/infer", content=content)
        except httpx.TransportError:
            pass  # the server closed the connection while the client was still sending
        else:
            assert (answer.status_code, "1000 bytes" in answer.json()["error"]) == (413, True)
        assert pieces < 10_000
        assert (await infer(running, np.zeros((1, 2, 2), np.float32))).status_code == 200


async def test_a_timeout_can_only_shorten_the_slo() -> None:
    async with stand(application("strict").model("only", beta_micros=50_000).slo(2000)) as running:
        too_short = await infer(running, np.zeros((1, 2, 2), np.float32), timeout=20_000)
        assert (too_short.status_code, "deadline" in too_short.json()["error"]) == (504, True)
        longer = await infer(running, np.zeros((1, 2, 2), np.float32), timeout=10_000_000)
        assert longer.status_code == 200
        signals = (await running.client.get("/partita/signals", headers=MONITORING)).json()
        assert signals["outcomes"] == {"too_late": 1, "in_time": 1}


async def test_requests_beyond_the_capacity_are_refused_early() -> None:
    app = application("busy").model("only", alpha_micros=160_000, beta_micros=160_000)
    app = app.slo(1000).planned("p", batch_size=2)
    async with stand(app) as running:
        answers = await asyncio.gather(*(infer(running, np.zeros((1, 2, 2), np.float32)) for _ in range(40)))
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 503, 504}
    assert 2 <= statuses.count(200) <= 8
    assert all(answer.json()["error"] for answer in answers if answer.status_code != 200)
    assert all(answer.headers["Retry-After"] == "1" for answer in answers if answer.status_code == 503)


async def test_requests_with_too_many_crops_leave_nothing_behind() -> None:
    app = detector_with_crops().slo(600).deferred().planned("p", batch_size=2)
    slow = replace(app, models=tuple(replace(model, alpha_micros=30_000) for model in app.models))
    async with stand(slow) as running:
        answers = await asyncio.gather(*(infer(running, image(3)) for _ in range(30)))
        assert {answer.status_code for answer in answers} <= {200, 503, 504}
        assert sum(running.session.meter.outcomes.values()) == 30
        assert running.session.serving is not None
        assert running.session.serving.idle


@pytest.mark.parametrize(
    ("app", "want_status", "want_message"),
    [
        pytest.param(
            application("f").model("detector").function("f", "broken").edge("detector", "f"),
            500,
            "module 'f' failed: tests.runtime.serving.session.functions:broken: RuntimeError: no such camera",
            id="raises",
        ),
        pytest.param(
            application("f").model("detector").function("f", "crash").edge("detector", "f"),
            500,
            "ended before it answered",
            id="ends its process",
        ),
        pytest.param(
            application("f").model("detector").function("f", "nothing").edge("detector", "f"),
            500,
            "must return a mapping of arrays, not NoneType",
            id="returns nothing",
        ),
        pytest.param(
            application("f")
            .model("detector")
            .function("f", "misshapen")
            .model("classifier")
            .edge("detector", "f")
            .edge("f", "classifier"),
            500,
            "answered float32[1, 3, 3] for 'classifier', which takes float32[n, 2, 2]",
            id="returns another shape",
        ),
        pytest.param(
            application("f")
            .model("detector")
            .function("f", "crop", to="elsewhere")
            .model("classifier")
            .edge("detector", "f")
            .edge("f", "classifier"),
            500,
            "answered for ['elsewhere'], but downstream are ['classifier']",
            id="answers for another module",
        ),
        pytest.param(
            application("f").model("detector").model("classifier", input=(3,)).edge("detector", "classifier"),
            500,
            "'detector' answered float32[2] for 'classifier', which takes float32[n, 3]",
            id="models with different shapes",
        ),
    ],
)
async def test_errors_of_a_module_are_reported(app: Application, want_status: int, want_message: str) -> None:
    async with stand(app) as running:
        for _ in range(2):  # the second request shows that the first one left nothing behind
            answer = await infer(running, np.zeros((1, 2, 2), np.float32))
            assert (answer.status_code, want_message in answer.json()["error"]) == (want_status, True), answer.text
        assert running.session.serving is not None
        assert running.session.serving.idle


async def test_functions_at_the_ends_and_joins() -> None:
    app = (
        application("diamond")
        .model("left")
        .model("right")
        .function("both", "join")
        .function("doubled", "double")
        .edge("left", "both")
        .edge("right", "both")
        .edge("left", "doubled")
    )
    async with stand(app) as running:
        tensors = {"left": np.ones((2, 2, 2), np.float32), "right": np.ones((2, 2, 2), np.float32)}
        inputs = [
            {"name": name, "datatype": "FP32", "shape": t.shape, "data": t.ravel().tolist()}
            for name, t in tensors.items()
        ]
        answer = await running.client.post("/v2/models/diamond/infer", json={"inputs": inputs})
    assert answer.status_code == 200, answer.text
    outputs = {output["name"]: (output["shape"], output["data"]) for output in answer.json()["outputs"]}
    assert outputs == {
        "both.left": ([2, 1], [1, 1]),
        "both.right": ([2, 1], [1, 1]),
        "doubled.doubled": ([2, 2, 2], [2.0] * 8),
        "doubled.seen": ([2, 1], [1, 1]),
    }
