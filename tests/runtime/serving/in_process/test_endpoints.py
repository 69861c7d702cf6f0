"""Modules that another server answers. The servers of these tests are sessions, or answer as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from tests.runtime.serving.in_process.stand import Stand, on_its_own_port, stand, until
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application
from tests.security.clients.hostile_server import Answering, complete, endless, server, silence

from partita_runtime.models.policy import VARIABLE, ModelPolicy, policy_text
from partita_runtime.serving.protocol.inference_client import decode_answer, encode_request
from partita_runtime.serving.session import endpoints
from partita_runtime.serving.transport import bounded_http

REMOTE = application("network").model(
    "network", input=(3, 16, 16), outputs=((10,),), entrypoint="tests.runtime.serving.models:convolutional"
)
IMAGES = np.random.default_rng(0).normal(size=(3, 3, 16, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _every_local_server_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ModelPolicy.model_construct(
        endpoints=("http://127.0.0.1:",), modules=None, files=None, require_digest=False
    )
    monkeypatch.setattr(endpoints, "policy_here", lambda: policy)


def calling(url: str, **fields: object) -> Application:
    """A session with a model of its own, and the endpoint `other`, which gets the request's tensor, too."""
    return application("caller").model("only").endpoint("other", url=url, **fields)


async def asked(running: Stand, **inputs: np.ndarray) -> tuple[int, str]:
    payload = encode_request(inputs)
    answer = await running.client.post("/v2/models/caller/infer", content=payload.body, headers=payload.headers)
    return answer.status_code, answer.text


@asynccontextmanager
async def caller(app: Application) -> AsyncIterator[Stand]:
    async with stand(app, way=on_its_own_port) as running:
        yield running


SAMPLE = {"only": np.zeros((1, 2, 2), np.float32), "other": np.zeros((1, 2, 2), np.float32)}
OUTPUT = {"name": "scores", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}


def answer(**fields: object) -> bytes:
    return json.dumps({"model_name": "other", "outputs": [{**OUTPUT, **fields}]}).encode()


async def test_the_answer_of_another_session_is_that_of_the_module() -> None:
    async with stand(REMOTE, way=on_its_own_port) as remote:
        content, headers = infer_body(IMAGES)
        direct = await remote.client.post("/v2/models/network/infer", content=content, headers=headers)
        app = (
            application("caller")
            .model("only")
            .endpoint("network", input=(3, 16, 16), url=f"http://{remote.url}/", outputs=["network"])
        )
        async with caller(app) as running:
            payload = encode_request({"only": np.zeros((3, 2, 2), np.float32), "network": IMAGES})
            through = await running.client.post(
                "/v2/models/caller/infer", content=payload.body, headers=payload.headers
            )
    assert through.status_code == 200, through.text
    found = decode_answer(through.headers, through.content)["network"]
    want = decode_answer(direct.headers, direct.content)["network"]
    np.testing.assert_allclose(found, want, rtol=1e-5)


async def test_a_module_downstream_gets_the_answer() -> None:
    async with server(complete(answer(shape=[1, 2, 2], data=[1, 2, 3, 4]))) as (url, _):
        app = application("caller").endpoint("other", url=url).model("only").edge("other", "only")
        async with caller(app) as running:
            status, text = await asked(running, input=SAMPLE["other"])
    assert status == 200, text


@pytest.mark.parametrize(
    ("protocol", "found", "want"),
    [
        pytest.param("OpenAIChat", {"choices": [{"message": {"content": "Ja"}}]}, [[b"Ja"]], id="chat"),
        pytest.param("OpenAIEmbeddings", {"data": [{"embedding": [1, 2]}]}, [[1, 2]], id="embeddings"),
    ],
)
async def test_a_server_with_openais_api_gets_a_text(protocol: str, found: object, want: object) -> None:
    answering = complete(json.dumps(found).encode())
    async with server(answering) as (url, requests), caller(calling(url, protocol=protocol)) as running:
        payload = encode_request({"only": SAMPLE["only"], "other": np.array([["Noch da?"]])})
        path = "/v2/models/caller/infer"
        told = await running.client.post(path, content=payload.body, headers=payload.headers)
    assert told.status_code == 200, told.text
    assert decode_answer(told.headers, told.content)["other"].tolist() == want
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("answering", "want_status", "want_words"),
    [
        pytest.param(complete(b"secret", status="500 Error"), 500, "answered with status 500", id="server error"),
        pytest.param(complete(b"", status="429 Too Many Requests"), 503, "refused the call", id="too many requests"),
        pytest.param(complete(b"", status="503 Unavailable"), 503, "refused the call", id="unavailable"),
        pytest.param(
            complete(b"", "Location: http://127.0.0.1:1/", status="302 Found"), 500, "status 302", id="redirect"
        ),
        pytest.param(complete(b"<html>"), 500, "cannot be used", id="not the protocol"),
        pytest.param(complete(b"[" * 100_000), 500, "cannot be used", id="deep nesting"),
        pytest.param(complete(answer(datatype="INT8", data=[1, 10**30])), 500, "cannot be used", id="a large number"),
        pytest.param(complete(answer(name="labels")), 500, "no output scores; it has labels", id="other output"),
        pytest.param(complete(answer(shape=[2, 1])), 500, "not one row", id="several rows"),
        pytest.param(endless(bytes(1 << 16), 0), 500, "more than 1,000,000 bytes", id="answer without end"),
    ],
)
async def test_an_answer_that_cannot_be_used_fails_the_request(
    monkeypatch: pytest.MonkeyPatch, answering: Answering, want_status: int, want_words: str
) -> None:
    monkeypatch.setattr(bounded_http, "MOST_BYTES", 1_000_000)
    async with server(answering) as (url, requests), caller(calling(url, outputs=["scores"])) as running:
        status, text = await asked(running, **SAMPLE)
        assert (status, want_words in text, "secret" in text) == (want_status, True, False), text
        assert requests == ["POST /v2/models/other/infer HTTP/1.1"]


async def test_a_server_that_cannot_be_reached_fails_the_request_as_unavailable() -> None:
    async with caller(calling("http://127.0.0.1:1")) as running:
        status, text = await asked(running, **SAMPLE)
    assert (status, "cannot be reached" in text) == (503, True), text


async def test_a_silent_server_holds_a_request_no_longer_than_any_other_module() -> None:
    async with server(silence) as (url, _), caller(calling(url).slo(100)) as running:
        status, text = await asked(running, **SAMPLE)
    assert status == 504, text


async def test_calls_beyond_the_most_wait() -> None:
    running, most = 0, 0

    async def counted(writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        await complete(answer())(writer)

    async with server(counted) as (url, requests), caller(calling(url, maxConcurrent=2)) as stand:
        inputs = {name: tensor.repeat(7, axis=0) for name, tensor in SAMPLE.items()}
        assert (await asked(stand, **inputs))[0] == 200
    assert (most, len(requests)) == (2, 7)


async def test_the_token_is_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHERS_TOKEN", "secret-token\n")
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await complete(answer())(writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening, caller(calling(url, tokenVariable="OTHERS_TOKEN")) as running:
        assert (await asked(running, **SAMPLE))[0] == 200
    assert b"authorization: bearer secret-token\r\n" in heads[0].lower()


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({"tokenVariable": "NOT_SET"}, "no environment variable NOT_SET", id="no token"),
        pytest.param(
            {"url": "http://169.254.169.254"}, "add http://169.254.169.254/ to models.allowed", id="forbidden"
        ),
    ],
)
async def test_an_endpoint_that_cannot_be_called_keeps_the_plan_from_serving(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str], want: str
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, policy_text(ModelPolicy(endpoints=("http://127.0.0.1:1/",))))
    async with stand(calling(**{"url": "http://127.0.0.1:1", **fields}), serving=False) as running:
        await until(lambda: want in running.session.signals().message, "the reason is shown")
        assert not running.session.ready


async def test_the_latency_of_calls_is_measured() -> None:
    async with server(complete(answer())) as (url, _), caller(calling(url)) as running:
        assert (await asked(running, **SAMPLE))[0] == 200
        (measured,) = running.session.signals().endpoints
        counts = running.session.signals().traffic.endpoint_calls
    assert (measured.module, sum(counts.values())) == ("other", 1)
    assert 0 < measured.p50_ms == measured.p99_ms


async def test_a_server_that_does_not_answer_counts_as_slow() -> None:
    async with server(silence) as (url, _), caller(calling(url, maxMillis=50).slo(150)) as running:
        sent = asyncio.create_task(asked(running, **SAMPLE))
        await until(lambda: not running.session.serving.idle, "the call is made")
        await asyncio.sleep(0.1)
        sent.cancel()
        await until(lambda: bool(running.session.signals().endpoints), "the call is given up")
        (measured,) = running.session.signals().endpoints
    assert measured.p99_ms > 50
