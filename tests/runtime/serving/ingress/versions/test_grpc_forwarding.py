"""Calls by gRPC for other versions of a session: real frontends on both sides, and tritonclient."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, stand
from tests.runtime.serving.ingress.versions.test_forwarding import (
    CHOSEN,
    MAIN,
    SECOND,
    UNREACHABLE,
    route,
    second,
    version,
)
from tests.runtime.serving.plans import application
from tests.security.clients.hostile_server import complete, server, silence
from tritonclient.utils import InferenceServerException

from partita_runtime.serving.deploy.version_routes import FORWARDED
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, SERVICE

JSON = "Content-Type: application/json"


@asynccontextmanager
async def by_grpc(app: Any = MAIN) -> AsyncIterator[tuple[Stand, triton.InferenceServerClient]]:
    """A session, and a client of its gRPC port."""
    async with stand(app) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await running.until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with triton.InferenceServerClient(str(running.session.addresses.grpc)) as client:
            yield running, client
        await endpoint.close()


@pytest.fixture
async def main() -> AsyncIterator[tuple[Stand, triton.InferenceServerClient]]:
    async with by_grpc() as both:
        yield both


def sample(name: str = "input", array: np.ndarray = SAMPLE) -> triton.InferInput:
    given = triton.InferInput(name, [1, *array.shape[-2:]], "FP32")
    given.set_data_from_numpy(array.reshape(1, *array.shape[-2:]))
    return given


async def answered_by(client: triton.InferenceServerClient, model_version: str = "", **options: Any) -> str:
    result = await client.infer("traffic", [sample()], model_version=model_version, **options)
    answer = result.get_response()
    assert answer.model_name == "traffic"
    assert result.as_numpy("only").shape == (1, 2)
    return str(answer.model_version)


@pytest.mark.parametrize(
    ("model_version", "headers", "want"),
    [
        pytest.param("2", {}, "2", id="its name"),
        pytest.param("", CHOSEN, "2", id="a header"),
        pytest.param("1", CHOSEN, "1", id="the session itself"),
        pytest.param("", {}, "1", id="none"),
        pytest.param("", {**CHOSEN, FORWARDED: "default/other"}, "1", id="sent on already"),
    ],
)
async def test_what_chooses_a_version(
    main: tuple[Stand, triton.InferenceServerClient], model_version: str, headers: dict[str, str], want: str
) -> None:
    running, client = main
    async with second() as other:
        route(running, version(f"http://{other.url}"))
        assert await answered_by(client, model_version, headers=headers) == want
        assert other.session.meter.arrived == (want == "2")


async def test_a_share_goes_to_a_version_and_falls_back(main: tuple[Stand, triton.InferenceServerClient]) -> None:
    running, client = main
    async with second() as other:
        route(running, version(f"http://{other.url}", header=None, share=1.0))
        assert {await answered_by(client) for _ in range(5)} == {"2"}
    assert await answered_by(client) == "1", "the version is away"
    assert running.session.meter.versions == {"2/answered": 5, "2/fallback": 1}


async def test_what_clients_know_of_a_version(main: tuple[Stand, triton.InferenceServerClient]) -> None:
    running, client = main
    async with second() as other:
        route(running, version(f"http://{other.url}"))
        metadata = await client.get_model_metadata("traffic", "2")
        config = await client.get_model_config("traffic", "2")
        measured = await client.get_inference_statistics("traffic", "2")
        assert await client.is_model_ready("traffic", "2")
        route(running, version(UNREACHABLE))
        assert not await client.is_model_ready("traffic", "2")
    assert (metadata.name, [*metadata.versions]) == ("traffic", ["2"])
    assert [output.name for output in metadata.outputs] == ["only"]
    assert config.config.name == "traffic"
    assert [(model.name, model.version) for model in measured.model_stats] == [("traffic", "2")]


async def test_inputs_are_those_of_the_version_not_of_this_session() -> None:
    wider = application("traffic-v2").model("only", input=(2, 3))
    async with by_grpc() as (running, client), stand(wider) as other:
        route(running, version(f"http://{other.url}"))
        given = sample(array=np.zeros((2, 3), np.float32))
        answer = await client.infer("traffic", [given], model_version="2")
        assert answer.as_numpy("only").shape == (1, 2)
        with pytest.raises(InferenceServerException, match=r"FP32 \[n, 2, 3\]") as refused:
            await client.infer("traffic", [sample()], model_version="2")
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def raw(**fields: Any) -> Any:
    message = MESSAGES["ModelInferRequest"](model_name="traffic", model_version="2", **fields)
    message.inputs.add(name="input", datatype="FP32", shape=[1, 2, 2])
    return message


def typed(datatype: str, **contents: Any) -> Any:
    message = raw()
    message.inputs[0].datatype = datatype
    for name, values in contents.items():
        getattr(message.inputs[0].contents, name).extend(values)
    return message


def with_parameters(**parameters: Any) -> Any:
    message = raw(raw_input_contents=[SAMPLE.tobytes()], id="seven")
    for name, value in parameters.items():
        message.parameters[name].int64_param = value
    return message


async def called(running: Stand, message: Any, timeout: float | None = None) -> tuple[str, str, bytes]:
    """Status, details and answer of a call of ModelInfer."""
    async with grpc.aio.insecure_channel(str(running.session.addresses.grpc)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")(message.SerializeToString(), timeout=timeout)
        status = (await call.code()).name
        return status, await call.details() or "", bytes(await call) if status == "OK" else b""


@pytest.mark.parametrize(
    ("message", "want", "details"),
    [
        pytest.param(typed("FP32", fp32_contents=[0.0] * 4), "OK", "", id="typed contents"),
        pytest.param(typed("FP32", fp32_contents=[0.0] * 3), "INVALID_ARGUMENT", "16 bytes", id="too few elements"),
        pytest.param(typed("FP16"), "INVALID_ARGUMENT", "raw_input_contents", id="FP16 has no typed contents"),
        pytest.param(typed("INT8", int_contents=[300] * 4), "INVALID_ARGUMENT", "cannot hold", id="overflow"),
        pytest.param(typed("BYTES", bytes_contents=[b"\xff"]), "INVALID_ARGUMENT", "input", id="bytes"),
        pytest.param(raw(raw_input_contents=[b"", b""]), "INVALID_ARGUMENT", "not 2", id="more raw contents"),
        pytest.param(with_parameters(priority=1), "OK", "", id="parameters"),
        pytest.param(with_parameters(timeout=-1), "INVALID_ARGUMENT", "timeout", id="a wrong parameter"),
    ],
)
async def test_contents_of_a_call(
    main: tuple[Stand, triton.InferenceServerClient], message: Any, want: str, details: str
) -> None:
    running, _ = main
    async with second() as other:
        route(running, version(f"http://{other.url}"))
        status, said, answer = await called(running, message)
    assert status == want, said
    assert details in said
    if want == "OK":
        assert MESSAGES["ModelInferResponse"].FromString(answer).id == message.id


async def test_the_version_gets_the_deadline_of_the_call(main: tuple[Stand, triton.InferenceServerClient]) -> None:
    running, _ = main
    async with server(silence) as (url, requests):
        route(running, version(url))
        status, _, _ = await called(running, raw(raw_input_contents=[SAMPLE.tobytes()]), timeout=0.5)
        assert status == "DEADLINE_EXCEEDED"
        assert requests
        await running.until(lambda: not running.session.bodies.taken, "the request has ended")


@pytest.mark.parametrize(
    ("answer", "want", "details"),
    [
        pytest.param(complete(b'{"error": "no"}', JSON, status="404 Not Found"), "NOT_FOUND", "no", id="an error"),
        pytest.param(complete(b"{}", JSON), "UNAVAILABLE", "cannot be used", id="no answer to a request"),
        pytest.param(complete(b"[" * 20_000, JSON), "UNAVAILABLE", "cannot be used", id="nested"),
        pytest.param(
            complete(
                json.dumps(
                    {
                        "model_name": "a",
                        "model_version": "1",
                        "outputs": [
                            {"name": "o", "datatype": "FP32", "shape": [9], "parameters": {"binary_data_size": 99}}
                        ],
                    }
                ).encode(),
                JSON,
            ),
            "UNAVAILABLE",
            "cannot be used",
            id="a tensor that is not there",
        ),
        pytest.param(
            complete(b'{"error": "who"}', JSON, 'WWW-Authenticate: Bearer realm="x"', status="401 Unauthorized"),
            "UNAUTHENTICATED",
            "who",
            id="other clients",
        ),
    ],
)
async def test_answers_that_are_errors(
    main: tuple[Stand, triton.InferenceServerClient], answer: Any, want: str, details: str
) -> None:
    running, _ = main
    async with server(answer) as (url, _):
        route(running, version(url))
        status, said, _ = await called(running, raw(raw_input_contents=[SAMPLE.tobytes()]))
    assert (status, details in said) == (want, True), said


async def test_metadata_make_no_cloud_event(main: tuple[Stand, triton.InferenceServerClient]) -> None:
    running, client = main
    async with second() as other:
        route(running, version(f"http://{other.url}"))
        events = {"ce-specversion": "1.0", "ce-type": "a", "ce-source": "b", "ce-id": "c"}
        assert await answered_by(client, "2", headers=events) == "2"


async def test_a_version_is_not_asked_for_a_session_without_versions() -> None:
    async with by_grpc(SECOND) as (_, client):
        with pytest.raises(InferenceServerException, match="version"):
            await asyncio.wait_for(client.infer("traffic-v2", [sample()], model_version="2"), 60)
