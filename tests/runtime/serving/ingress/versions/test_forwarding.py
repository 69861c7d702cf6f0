"""Requests for other versions of a session: real frontends on both sides, or a server that answers as a test says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.runtime.serving.in_process.stand import SAMPLE, WAYS, Stand, stand
from tests.runtime.serving.load import HEADER_LENGTH, infer_body
from tests.runtime.serving.plans import application
from tests.security.clients.hostile_server import complete, server, silence

from partita_api.session.versions import VersionHeader
from partita_runtime.serving.deploy.version_routes import FORWARDED, VersionRoute
from partita_runtime.serving.protocol.inference_client import decode_answer

MAIN = application("traffic").model("only")
SECOND = application("traffic-v2").model("only")
VARIANT = VersionHeader(name="X-Variant", value="b")
CHOSEN = {"x-variant": "b"}
UNREACHABLE = "http://127.0.0.1:1"


def version(url: str, **fields: Any) -> VersionRoute:
    return VersionRoute(**{"name": "2", "session": "traffic-v2", "url": url, "header": VARIANT, **fields})


def route(running: Stand, *versions: VersionRoute) -> None:
    """As Serve does it when the operator has changed the frontend's `user_config`."""
    running.session.reconfigure(replace(MAIN, versions=versions).epoch)


async def infer(running: Stand, path: str = "/v2/models/traffic/infer", **headers: str) -> httpx.Response:
    content, binary = infer_body(SAMPLE)
    sent = {**binary, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await running.client.post(path, content=content, headers=sent)


def answered_by(answer: httpx.Response) -> str:
    """The version that has answered, as header and body say it."""
    assert answer.status_code == 200, answer.text
    text = answer.content[: int(answer.headers.get(HEADER_LENGTH, len(answer.content)))]
    found = json.loads(text)
    assert found["model_name"] == "traffic"
    assert found["model_version"] == answer.headers.get("partita-version", "1")
    return str(found["model_version"])


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def main(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    async with stand(MAIN, way=request.param) as running:
        yield running


@asynccontextmanager
async def second() -> AsyncIterator[Stand]:
    async with stand(SECOND) as running:
        yield running


async def test_the_path_chooses_a_version(main: Stand) -> None:
    async with second() as other:
        route(main, version(f"http://{other.url}"))
        assert answered_by(await infer(main, "/v2/models/traffic/versions/2/infer")) == "2"
        assert answered_by(await infer(main, "/v2/models/traffic/versions/1/infer", **CHOSEN)) == "1"
        assert answered_by(await infer(main)) == "1"
        assert other.session.meter.arrived == 1


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        pytest.param({"x-variant": "b"}, "2", id="the header"),
        pytest.param({"X-VARIANT": "b"}, "2", id="its name in upper case"),
        pytest.param({"x-variant": "B"}, "1", id="another value"),
        pytest.param({"x-variant": "b, c"}, "1", id="more values"),
        pytest.param({"x-other": "b"}, "1", id="another header"),
    ],
)
async def test_a_header_chooses_a_version(main: Stand, headers: dict[str, str], want: str) -> None:
    async with second() as other:
        route(main, version(f"http://{other.url}"))
        assert answered_by(await infer(main, **headers)) == want


async def test_a_share_of_the_requests_goes_to_a_version(main: Stand) -> None:
    async with second() as other:
        route(main, version(f"http://{other.url}", share=1.0))
        assert {answered_by(await infer(main)) for _ in range(5)} == {"2"}
        executor = main.session.serving
        route(main, version(f"http://{other.url}", share=0.5))
        found = [answered_by(await infer(main)) for _ in range(60)]
        assert {*found} == {"1", "2"}, "by chance in one of 10^17 runs"
        route(main, version(f"http://{other.url}"))
        assert {answered_by(await infer(main)) for _ in range(5)} == {"1"}
        assert main.session.serving is executor, "another share replaces no executor"


async def test_binary_answers_keep_their_tensors(main: Stand) -> None:
    """The header that names the model has another length than the one of the other session."""
    async with second() as other:
        route(main, version(f"http://{other.url}", name="a-longer-name"))
        content, headers = infer_body(SAMPLE)
        text = json.loads(content[: int(headers[HEADER_LENGTH])]) | {"parameters": {"binary_data_output": True}}
        body = json.dumps(text).encode()
        answer = await main.client.post(
            "/v2/models/traffic/versions/a-longer-name/infer",
            content=body + SAMPLE.tobytes(),
            headers={HEADER_LENGTH: str(len(body))},
        )
        assert answered_by(answer) == "a-longer-name"
        assert decode_answer(answer.headers, answer.content)["only"].shape == (1, 2)


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/v2/models/traffic/versions/2", {"name": "traffic", "versions": ["2"]}, id="metadata"),
        pytest.param("/v2/models/traffic/versions/2/ready", {"ready": True}, id="ready"),
        pytest.param("/v2/models/traffic/versions/2/config", {"name": "traffic"}, id="configuration"),
        pytest.param("/v2/models/traffic", {"name": "traffic", "versions": ["1", "2"]}, id="all versions"),
    ],
)
async def test_what_clients_know_of_a_version(main: Stand, path: str, want: dict[str, Any]) -> None:
    async with second() as other:
        route(main, version(f"http://{other.url}"))
        answer = await main.client.get(path)
        assert (answer.status_code, answer.json() | want) == (200, answer.json())
        statistics = (await main.client.get("/v2/models/traffic/versions/2/stats")).json()["model_stats"][0]
        assert (statistics["name"], statistics["version"]) == ("traffic", "2")


async def test_v1_and_cloud_events_by_a_header(main: Stand) -> None:
    """The attributes of an event go on, and come back."""
    async with second() as other:
        route(main, version(f"http://{other.url}"))
        body = {"instances": SAMPLE.tolist()}
        event = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "test", "ce-type": "sample"}
        answer = await main.client.post("/v1/models/traffic:predict", json=body, headers={**CHOSEN, **event})
        assert (answer.status_code, answer.headers["partita-version"]) == (200, "2")
        assert (answer.headers["ce-specversion"], len(answer.json()["predictions"])) == ("1.0", 1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/v2/models/traffic/versions/9/infer", id="an unknown version"),
        pytest.param("/v2/models/other/versions/2/infer", id="another model"),
    ],
)
async def test_what_is_not_there(main: Stand, path: str) -> None:
    route(main, version(UNREACHABLE))
    answer = await infer(main, path)
    assert answer.status_code == 404
    if "versions/9" in path:
        assert answer.json()["error"] == "there is no version '9'; the versions are '1', '2'"


MISSING = "does not exist"


@pytest.mark.parametrize(
    ("fields", "want_message"),
    [
        pytest.param({"url": UNREACHABLE}, "cannot be reached", id="unreachable"),
        pytest.param({"url": "", "problem": MISSING}, MISSING, id="missing"),
    ],
)
async def test_a_chosen_version_that_does_not_answer(main: Stand, fields: dict[str, str], want_message: str) -> None:
    route(main, version(**fields))
    for answer in (await infer(main, "/v2/models/traffic/versions/2/infer"), await infer(main, **CHOSEN)):
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"] == f"version '2' (session traffic-v2) {want_message}"
    assert main.session.meter.versions == {"2/failed": 2}


async def test_this_session_answers_for_a_version_that_is_not_ready(main: Stand) -> None:
    async with second() as other:
        route(main, version(f"http://{other.url}", share=1.0, problem="is not ready"))
        assert answered_by(await infer(main)) == "1"
        assert answered_by(await infer(main, **CHOSEN)) == "2", "its frontends know better"


REFUSAL = b'{"error":"no"}'
JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("status", "headers", "want_share", "want_chosen"),
    [
        pytest.param("503 Busy", [JSON], 200, 503, id="it has no room"),
        pytest.param("401 Unauthorized", [JSON], 200, 401, id="it does not know the client"),
        pytest.param("404 Not Found", ["Content-Type: text/plain"], 200, 503, id="Serve has no such application"),
        pytest.param("302 Found", [JSON, "Location: http://127.0.0.1:1/"], 200, 503, id="a redirect"),
        pytest.param("400 Bad Request", [JSON], 400, 400, id="it refuses the request"),
        pytest.param("500 Error", [JSON], 500, 500, id="it fails"),
    ],
)
async def test_answers_that_are_errors(
    main: Stand, status: str, headers: list[str], want_share: int, want_chosen: int
) -> None:
    """Requests by share fall back if the version has not worked on them. Others get what they have asked for."""
    async with server(complete(REFUSAL, *headers, status=status)) as (url, requests):
        route(main, version(url, share=1.0))
        assert (await infer(main)).status_code == want_share
        assert (await infer(main, **CHOSEN)).status_code == want_chosen
        assert requests == ["POST /v2/models/traffic-v2/infer HTTP/1.1"] * 2


async def test_an_answer_that_takes_too_long(main: Stand) -> None:
    async with server(silence) as (url, _):
        route(main, version(url, share=1.0, answer_seconds=0.2))
        assert answered_by(await infer(main)) == "1"
        answer = await infer(main, **CHOSEN)
        assert (answer.status_code, main.session.bodies.taken) == (503, 0)
        assert "has not answered within 0.2 s" in answer.text


async def test_a_client_that_leaves_ends_its_request(main: Stand) -> None:
    async with server(silence) as (url, requests):
        route(main, version(url))
        asking = asyncio.create_task(infer(main, **CHOSEN))
        await main.until(lambda: requests, "the request has been sent on")
        assert main.session.bodies.taken > 0
        asking.cancel()
        await main.until(lambda: not main.session.bodies.taken, "the request has ended")


async def test_a_request_goes_on_while_its_version_is_removed(main: Stand) -> None:
    answering = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answering.wait()
        await complete(b'{"model_name":"traffic-v2","model_version":"1","outputs":[]}', JSON)(writer)

    async with server(late) as (url, requests):
        route(main, version(url))
        asking = asyncio.create_task(infer(main, **CHOSEN))
        await main.until(lambda: requests, "the request has been sent on")
        route(main)
        answering.set()
        assert answered_by(await asking) == "2"


async def test_requests_are_counted_by_version_and_result(main: Stand) -> None:
    from tests.runtime.serving.in_process.stand import MONITORING

    async with second() as other:
        route(main, version(f"http://{other.url}"), version(UNREACHABLE, name="3", header=None, share=1.0))
        await infer(main, **CHOSEN)
        await infer(main)
        assert main.session.meter.versions == {"2/answered": 1, "3/fallback": 1}
        text = (await main.client.get("/partita/metrics", headers=MONITORING)).text
    if "partita_requests" in text:  # not on the frontend's own port
        labels = 'result="answered",session="default/traffic",version="2"'
        assert f"partita_version_requests_total{{{labels}}} 1.0" in text


async def test_a_forwarded_request_stays(main: Stand) -> None:
    route(main, version(UNREACHABLE, share=1.0))
    assert answered_by(await infer(main, **{FORWARDED: "default/traffic"}, **CHOSEN)) == "1"
