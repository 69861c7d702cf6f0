"""Copies of calls by gRPC for a shadow version: real frontends on both sides, and tritonclient."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, stand
from tests.runtime.serving.ingress.versions.test_grpc_forwarding import by_grpc, called, sample, typed, with_parameters
from tests.runtime.serving.ingress.versions.test_shadowing import MAIN, SHADOW, answering, copied, infer, results
from tests.runtime.serving.telemetry.event_sink import event_sink
from tests.security.clients.hostile_server import Answering, complete, server, silence
from tritonclient.utils import InferenceServerException

from partita_runtime.serving.deploy.version_routes import FORWARDED
from partita_runtime.serving.ingress.versions import grpc_forwarding, shadowing

Both = tuple[Stand, triton.InferenceServerClient]


@pytest.fixture
async def main() -> AsyncIterator[Both]:
    async with by_grpc(MAIN) as both:
        yield both


async def answer_of(client: triton.InferenceServerClient, **options: Any) -> np.ndarray:
    result = await client.infer("traffic", [sample()], **options)
    assert result.get_response().model_version == "1"
    return np.asarray(result.as_numpy("only"))


async def test_two_sessions_with_one_model_answer_equally(main: Both) -> None:
    running, client = main
    async with stand(SHADOW) as other:
        copied(running, f"http://{other.url}")
        assert (await answer_of(client)).shape == (1, 2)
        await running.until(lambda: results(running) == {"3/equal": 1}, "the answers have been compared")
        assert (running.session.meter.arrived, other.session.meter.arrived) == (1, 1)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(typed("FP32", fp32_contents=[0.0] * 4), id="typed contents"),
        pytest.param(with_parameters(priority=1), id="parameters"),
    ],
)
async def test_a_copy_has_the_tensors_and_parameters_of_the_call(main: Both, message: Any) -> None:
    message.model_version = "1"
    running, _ = main
    async with event_sink() as sink, stand(SHADOW.logging_to(sink.url)) as other:
        copied(running, f"http://{other.url}")
        status, details, _ = await called(running, message, timeout=60)
        assert status == "OK", details
        await running.until(lambda: results(running) == {"3/equal": 1}, "the answers have been compared")
        await running.until(lambda: len(sink.events) == 2, "the shadow has logged its request")
    (request,) = sink.of_kind("request")
    assert request.body.endswith(SAMPLE.tobytes())
    assert (b'"priority":1' in request.body) == ("priority" in message.parameters)
    assert b'"timeout"' not in request.body, "the client does not wait for the copy"


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(answering(), "equal", id="the same"),
        pytest.param(answering(data=[5, 0]), "different", id="another value"),
        pytest.param(answering(name="other"), "different", id="another output"),
        pytest.param(answering(data=[1]), "failed", id="too few values"),
        pytest.param(complete(b"gone", "Content-Type: text/plain", status="404 Not Found"), "failed", id="no frontend"),
    ],
)
async def test_answers_are_counted_and_never_returned(main: Both, answer: Answering, want: str) -> None:
    running, client = main
    async with server(answer) as (url, _):
        copied(running, url)
        assert (await answer_of(client)).tolist() == [[0, 0]]
        await running.until(lambda: results(running) == {f"3/{want}": 1}, "the answers have been compared")


async def test_a_silent_version_delays_nothing_and_takes_few_copies_of_all_protocols(main: Both) -> None:
    running, client = main
    async with server(silence) as (url, requests):
        copied(running, url)
        for _ in range(shadowing.MOST_COPIES - 1):
            await answer_of(client)
        assert (await infer(running)).status_code == 200
        await asyncio.gather(*(answer_of(client) for _ in range(3)))
        assert results(running) == {"3/dropped": 3}
        await running.until(lambda: len(requests) == shadowing.MOST_COPIES, "the others are on their way")


async def test_the_client_has_its_answer_before_the_copy_is_made(main: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    running, client = main
    made = asyncio.Event()

    async def later(*_: Any) -> Any:
        await made.wait()
        raise shadowing.VersionAwayError("is asked only then")

    monkeypatch.setattr(shadowing.VersionForwarder, "exchange", later)
    copied(running, "http://127.0.0.1:1")
    await answer_of(client)
    assert results(running) == {}
    made.set()
    await running.until(lambda: results(running) == {"3/failed": 1}, "the copy has failed")


async def test_large_calls_have_no_copies_and_are_not_encoded_again(
    main: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, client = main
    monkeypatch.setattr(shadowing, "MOST_BYTES", 10)
    monkeypatch.delattr(grpc_forwarding, "http_request")
    async with server(answering()) as (url, requests):
        copied(running, url)
        await answer_of(client)
        assert (results(running), requests) == ({"3/dropped": 1}, [])


@pytest.mark.parametrize(
    ("model", "headers", "fields"),
    [
        pytest.param("traffic", {FORWARDED: "default/other"}, {}, id="forwarded by another session"),
        pytest.param("traffic", {}, {"share": 0.0}, id="no share"),
        pytest.param("traffic", {}, {"problem": "is not ready"}, id="a version that is not ready"),
        pytest.param("other", {}, {}, id="a call that fails"),
    ],
)
async def test_calls_without_copies(main: Both, model: str, headers: dict[str, str], fields: dict[str, Any]) -> None:
    running, client = main
    async with server(answering()) as (url, requests):
        copied(running, url, **fields)
        try:
            await client.infer(model, [sample()], headers=headers)
        except InferenceServerException:
            assert model == "other"
        copied(running, url)
        await answer_of(client)
        await running.until(lambda: results(running), "another call has a copy")
        assert len(requests) == 1


async def test_clients_may_ask_a_shadow_version_by_its_name(main: Both) -> None:
    running, client = main
    async with stand(SHADOW) as other:
        copied(running, f"http://{other.url}")
        result = await client.infer("traffic", [sample()], model_version="3")
        assert (result.get_response().model_version, results(running)) == ("3", {})
