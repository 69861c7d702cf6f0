"""Versions of a session: requests do not circle, clients get no rights by internal headers, credentials are checked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.runtime.serving.in_process.stand import SAMPLE, Stand, on_its_own_port, stand
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import Application, application
from tests.security.clients.hostile_server import complete, endless, server

from partita_api.session.versions import Version, VersionHeader
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest
from partita_runtime.serving.deploy.version_routes import FORWARDED, ShadowRoute, VersionRoute
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.transport import bounded_http

MAIN, SECOND = (application(name).model("only") for name in ("traffic", "traffic-v2"))
KEY, OTHER = "f3c1a0b9d2e84f6a97b5c3d1e0f2a4b6", "0123456789abcdef0123456789abcdef"
VARIANT = VersionHeader(name="x-variant", value="b")
JSON = "Content-Type: application/json"


def accepting(*keys: str) -> AllowedClients:
    return AllowedClients(salt="uid", api_keys=tuple(key_digest("uid", key.encode()) for key in keys))


def configure(
    running: Stand, app: Application, url: str, session: str, clients: AllowedClients | None = None, **fields: Any
) -> None:
    route = VersionRoute(name="2", session=session, url=url, **{"share": 1.0, "header": VARIANT, **fields})
    running.session.reconfigure(replace(app, versions=(route,), clients=clients).epoch)


async def infer(running: Stand, path: str = "", **headers: str) -> httpx.Response:
    content, binary = infer_body(SAMPLE)
    path = path or f"/v2/models/{running.app.name}/infer"
    sent = {**binary, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return await running.client.post(path, content=content, headers=sent)


@asynccontextmanager
async def both() -> AsyncIterator[tuple[Stand, Stand]]:
    async with stand(MAIN, way=on_its_own_port) as first, stand(SECOND) as second:
        yield first, second


async def test_sessions_that_name_each_other_send_a_request_on_once() -> None:
    """Otherwise one request would take all connections of both."""
    async with both() as (first, second):
        configure(first, MAIN, f"http://{second.url}", "traffic-v2")
        configure(second, SECOND, f"http://{first.url}", "traffic")
        answer = await infer(first, x_variant="b")
        assert (answer.status_code, answer.headers["partita-version"]) == (200, "2")
        assert (first.session.meter.arrived, second.session.meter.arrived) == (0, 1)


async def test_a_session_that_leads_to_itself_sends_a_request_on_once() -> None:
    async with stand(MAIN, way=on_its_own_port) as running:
        configure(running, MAIN, f"http://{running.url}", "traffic")
        assert (await infer(running)).status_code == 200
        assert running.session.meter.arrived == 1
        assert running.session.meter.versions == {"2/answered": 1}


@pytest.mark.parametrize("session", ["../other/traffic", "other/traffic", "traffic?x=", "Traffic", ""])
def test_versions_of_other_namespaces_have_no_name(session: str) -> None:
    with pytest.raises(ValueError, match="session"):
        Version(name="2", session=session)


@pytest.mark.parametrize(
    ("key", "headers", "want_status"),
    [
        pytest.param(None, {FORWARDED: "default/traffic"}, 401, id="as another frontend"),
        pytest.param(OTHER, {FORWARDED: "default/traffic"}, 401, id="as another frontend, with a wrong key"),
        pytest.param(None, {"x-variant": "b"}, 401, id="of another version"),
        pytest.param(KEY, {"x-variant": "b"}, 200, id="with the right key"),
        pytest.param(KEY, {FORWARDED: "x", "x-variant": "b"}, 200, id="with the right key, as another frontend"),
    ],
)
async def test_internal_headers_replace_no_credentials(
    key: str | None, headers: dict[str, str], want_status: int
) -> None:
    async with both() as (first, second):
        configure(first, MAIN, f"http://{second.url}", "traffic-v2", accepting(KEY))
        second.session.reconfigure(replace(SECOND, clients=accepting(KEY)).epoch)
        sent = headers if key is None else {**headers, "Authorization": f"Bearer {key}"}
        for running in (first, second):
            assert (await infer(running, **sent)).status_code == want_status


async def test_a_version_checks_the_credentials_of_the_client() -> None:
    """The first session's trust is not enough."""
    async with both() as (first, second):
        second.session.reconfigure(replace(SECOND, clients=accepting(KEY)).epoch)
        for clients in (None, accepting(OTHER)):
            configure(first, MAIN, f"http://{second.url}", "traffic-v2", clients)
            refused = await infer(first, x_variant="b", Authorization=f"Bearer {OTHER}")
            assert (refused.status_code, refused.headers["partita-version"]) == (401, "2")
        assert second.session.meter.arrived == 0
        stays = await infer(first, Authorization=f"Bearer {OTHER}")
        assert (stays.status_code, first.session.meter.arrived) == (200, 1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/v2/models/traffic/versions/2/../../../../partita/signals", id="signals"),
        pytest.param("/v2/models/traffic/versions/2%2F..%2Fx/infer", id="percent-encoded"),
        pytest.param("/v2/models/..%2Ftraffic/versions/2/infer", id="in the name of the model"),
        pytest.param("/v2/models/traffic/versions/2/partita/signals", id="behind a version"),
    ],
)
async def test_paths_do_not_choose_what_is_asked_of_a_version(path: str) -> None:
    async with (
        server(complete(b"{}", JSON)) as (url, requests),
        stand(MAIN, way=on_its_own_port) as running,
    ):
        configure(running, MAIN, url, "traffic-v2", share=0.0)
        host, port = running.url.split("/")[0].split(":")
        content, headers = infer_body(SAMPLE)
        asked = httpx.URL(scheme="http", host=host, port=int(port), raw_path=path.encode())
        answer = await running.client.request("POST", asked, content=content, headers=headers)
        assert (answer.status_code, requests) == (404, [])


async def test_only_known_headers_go_on() -> None:
    """No cookies, no headers about the connection, nothing that says who the client is to a proxy."""
    heads: list[str] = []

    async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        await complete(b"{}", JSON)(writer)
        writer.close()

    listening = await asyncio.start_server(remember, "127.0.0.1", 0)
    async with stand(MAIN, way=on_its_own_port) as running:
        port = listening.sockets[0].getsockname()[1]
        configure(running, MAIN, f"http://127.0.0.1:{port}", "traffic-v2")
        sent = {"Cookie": "a=b", "X-Forwarded-For": "10.0.0.1", "Host": "other.example.com", "TE": "trailers"}
        await infer(running, **sent, X_Other="1", Traceparent="00-a-b-01", Authorization="Bearer x")
    listening.close()
    names = {line.partition(":")[0] for line in heads[0].split("\r\n")[1:] if line}
    assert names == {
        "host",
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "inference-header-content-length",
        "partita-forwarded",
        "traceparent",
        "user-agent",
    }
    assert f"host: 127.0.0.1:{port}" in heads[0]


@pytest.mark.parametrize(
    "header",
    ["Set-Cookie: a=b", "Partita-Version: 1", "Connection: close", "X-Other: 1", "Retry-After: \xe9", "Date: now"],
)
async def test_a_version_sets_no_other_headers(header: str) -> None:
    async with (
        server(complete(b"{}", JSON, header)) as (url, _),
        stand(MAIN, way=on_its_own_port) as running,
    ):
        configure(running, MAIN, url, "traffic-v2")
        answer = await infer(running)
        assert (answer.status_code, answer.headers["partita-version"]) == (200, "2")
        assert {*answer.headers} == {"content-type", "partita-version", "connection", "content-length", "date"}
        assert answer.headers["connection"] == "keep-alive"


async def test_an_endless_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "MOST_BYTES", 1_000_000)
    async with (
        server(endless(b"x" * 65536, 0)) as (url, _),
        stand(MAIN, way=on_its_own_port) as running,
    ):
        configure(running, MAIN, url, "traffic-v2")
        answer = await infer(running, x_variant="b")
        assert (answer.status_code, "more than 1,000,000 bytes" in answer.text) == (503, True)


async def test_requests_that_wait_for_a_version_have_limited_memory() -> None:
    answering = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> None:
        await answering.wait()
        await complete(b"{}", JSON)(writer)

    body = len(infer_body(SAMPLE)[0])
    settings = FrontendSettings(function_processes=1, max_request_bytes=body, max_reading_bytes=2 * body)
    async with server(late) as (url, requests), stand(MAIN, settings, way=on_its_own_port) as running:
        configure(running, MAIN, url, "traffic-v2")
        waiting = [asyncio.create_task(infer(running)) for _ in range(2)]
        await running.until(lambda: len(requests) == 2, "two requests wait")
        refused = await infer(running)
        assert (refused.status_code, "bytes in all" in refused.text) == (503, True)
        answering.set()
        assert [(await asked).status_code for asked in waiting] == [200, 200]
    assert running.session.bodies.taken == 0


async def test_a_shadow_version_decides_nothing_about_an_answer() -> None:
    """It leads clients nowhere, sets no headers, and gets no copy without the client's own credentials."""
    redirect = complete(b"{}", JSON, "Location: http://127.0.0.1:1/", "Set-Cookie: a=b", status="302 Found")
    async with server(redirect) as (url, requests), stand(MAIN, way=on_its_own_port) as running:
        shadow = ShadowRoute(share=1.0, absolute=0.0, relative=0.0)
        fields = {"share": 0.0, "header": None, "shadow": shadow}
        configure(running, MAIN, url, "traffic-v2", accepting(KEY), **fields)
        assert (await infer(running)).status_code == 401
        assert (await infer(running, Authorization=f"Bearer {OTHER}")).status_code == 401
        answer = await infer(running, Authorization=f"Bearer {KEY}")
        await running.until(lambda: running.session.meter.shadows, "the copy has been answered")
        assert (answer.status_code, answer.json()["model_name"]) == (200, "traffic")
        assert {*answer.headers} == {"content-type", "connection", "content-length", "date"}
        assert (len(requests), running.session.meter.shadows) == (1, {"2/failed": 1})
