"""Copies of requests for a shadow version: clients notice nothing, and the answers are compared."""

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.runtime.serving.in_process.stand import SAMPLE, WAYS, Stand, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application
from tests.security.clients.hostile_server import Answering, complete, server, silence

from partita_runtime.serving.deploy.version_routes import FORWARDED, ShadowRoute, VersionRoute
from partita_runtime.serving.ingress.versions import shadowing

MAIN = application("traffic").model("only")
SHADOW = application("traffic-v3").model("only")
JSON = "Content-Type: application/json"


def copied(running: Stand, url: str, share: float = 1.0, **fields: Any) -> None:
    shadow = ShadowRoute(share=share, absolute=0.001, relative=0.001)
    route = VersionRoute(**{"name": "3", "session": "traffic-v3", "url": url, "shadow": shadow, **fields})
    running.session.reconfigure(replace(MAIN, versions=(route,)).epoch)


async def infer(running: Stand, path: str = "/v2/models/traffic/infer", **headers: str) -> httpx.Response:
    content, binary = infer_body(SAMPLE)
    return await running.client.post(path, content=content, headers={**binary, **headers})


def results(running: Stand) -> dict[str, int]:
    return dict(running.session.meter.shadows)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def main(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(MAIN, way=request.param) as running:
        yield running


def answering(**output: Any) -> Answering:
    tensor = {"name": "only", "datatype": "FP32", "shape": [1, 2], "data": [0, 0], **output}
    return complete(json.dumps({"model_name": "traffic-v3", "outputs": [tensor]}).encode(), JSON)


async def test_two_sessions_with_one_model_answer_equally(main: Stand) -> None:
    async with stand(SHADOW) as other:
        copied(main, f"http://{other.url}")
        answer = await infer(main)
        assert (answer.status_code, "partita-version" in answer.headers) == (200, False)
        assert answer.json()["model_name"] == "traffic"
        await main.until(lambda: results(main) == {"3/equal": 1}, "the answers have been compared")
        assert (main.session.meter.arrived, other.session.meter.arrived) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(answering(data=[5, 0]), "different", id="another value"),
        pytest.param(answering(name="other"), "different", id="another output"),
        pytest.param(answering(shape=[2, 1]), "different", id="another shape"),
        pytest.param(answering(data=[1]), "failed", id="too few values"),
        pytest.param(complete(b"[" * 100_000, JSON), "failed", id="deep JSON"),
        pytest.param(complete(b'{"error":"no"}', JSON, status="500 Error"), "failed", id="an error"),
        pytest.param(complete(b"gone", "Content-Type: text/plain", status="404 Not Found"), "failed", id="no frontend"),
    ],
)
async def test_answers_are_counted_and_never_returned(main: Stand, answer: Answering, want: str) -> None:
    async with server(answer) as (url, _):
        copied(main, url)
        before = await infer(main)
        await main.until(lambda: results(main) == {f"3/{want}": 1}, "the answers have been compared")
        assert (before.status_code, before.json()["model_name"]) == (200, "traffic")


async def test_the_last_difference_is_logged(main: Stand, caplog: pytest.LogCaptureFixture) -> None:
    """Not each one: a version that always differs would fill the log."""
    with caplog.at_level(logging.WARNING, shadowing.__name__):
        async with server(answering(name="other")) as (url, _):
            copied(main, url)
            for _ in range(3):
                await infer(main)
            await main.until(lambda: results(main) == {"3/different": 3}, "the answers have been compared")
    assert [record.getMessage() for record in caplog.records] == [
        "session default/traffic: version '3' (session traffic-v3) answers differently: its outputs are other, not only"
    ]


async def test_a_silent_version_delays_nothing_and_takes_few_copies(main: Stand) -> None:
    async with server(silence) as (url, requests):
        copied(main, url)
        answers = [await infer(main) for _ in range(shadowing.MOST_COPIES + 3)]
        assert {answer.status_code for answer in answers} == {200}
        assert results(main) == {"3/dropped": 3}
        await main.until(lambda: len(requests) == shadowing.MOST_COPIES, "the others are on their way")
        copied(main, url, share=0.0)
        assert (await infer(main)).status_code == 200


async def test_large_requests_have_no_copies(main: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadowing, "MOST_BYTES", 10)
    async with server(answering()) as (url, requests):
        copied(main, url)
        assert (await infer(main)).status_code == 200
        assert (results(main), requests) == ({"3/dropped": 1}, [])


@pytest.mark.parametrize(
    ("path", "headers", "fields"),
    [
        pytest.param("/v2/models/traffic/infer", {FORWARDED: "default/other"}, {}, id="forwarded by another session"),
        pytest.param("/v2/models/traffic/infer", {}, {"share": 0.0}, id="no share"),
        pytest.param("/v2/models/traffic/infer", {}, {"problem": "is not ready"}, id="a version that is not ready"),
        pytest.param("/v2/models/other/infer", {}, {}, id="a request that fails"),
    ],
)
async def test_requests_without_copies(main: Stand, path: str, headers: dict[str, str], fields: dict[str, Any]) -> None:
    async with server(answering()) as (url, requests):
        copied(main, url, **fields)
        await infer(main, path, **headers)
        copied(main, url)
        await infer(main)
        await main.until(lambda: results(main), "another request has a copy")
        assert len(requests) == 1


async def test_clients_may_ask_a_shadow_version_by_its_path(main: Stand) -> None:
    async with server(answering()) as (url, requests):
        copied(main, url)
        answer = await infer(main, "/v2/models/traffic/versions/3/infer")
        assert (answer.status_code, answer.headers["partita-version"]) == (200, "3")
        assert (len(requests), results(main)) == (1, {})
