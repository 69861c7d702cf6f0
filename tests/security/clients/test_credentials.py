"""Clients without valid credentials: frontends answer none of their requests, by HTTP or gRPC, on any port."""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
from tests.runtime.serving.in_process.stand import SAMPLE, WAYS, Stand, on_its_own_port, stand
from tests.runtime.serving.ingress.raw_http import connected, exchanged, post
from tests.runtime.serving.load import infer_body
from tests.security.clients.entrances import APP, ENTRANCES, Entrance, HttpEntrance, allow, entrance

from partita_runtime.serving.authentication.authenticator import MAX_CREDENTIALS
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest

KEY = "f3c1a0b9d2e84f6a97b5c3d1e0f2a4b6"
OTHER = "0123456789abcdef0123456789abcdef"
SALT = "2c9f7f0e-uid-of-the-session"
RIGHT = f"Bearer {KEY}"


def accepting(*keys: str) -> AllowedClients:
    return AllowedClients(salt=SALT, api_keys=tuple(key_digest(SALT, key.encode()) for key in keys))


@pytest.fixture(params=ENTRANCES)
async def way_in(request: pytest.FixtureRequest) -> AsyncIterator[Entrance]:
    """Each entrance of a session that accepts the clients with KEY."""
    async with entrance(request.param, accepting(KEY)) as made:
        yield made


@pytest.mark.parametrize(
    ("values", "want_challenge"),
    [
        pytest.param([], 'Bearer realm="partita"', id="no credentials"),
        pytest.param([f"Bearer {OTHER}"], 'error="invalid_token"', id="a wrong key"),
        pytest.param([f"Bearer {KEY[:-1]}"], 'error="invalid_token"', id="the first characters of a key"),
        pytest.param([f"Bearer {KEY}x"], 'error="invalid_token"', id="a key and more"),
        pytest.param([f"Bearer {KEY.upper()}"], 'error="invalid_token"', id="a key in upper case"),
        pytest.param(["Bearer "], "error=", id="an empty key"),
        pytest.param([f"Bearer {key_digest(SALT, KEY.encode())}"], 'error="invalid_token"', id="a stolen digest"),
        pytest.param([f"Bearer {SALT}"], 'error="invalid_token"', id="the salt"),
        pytest.param([KEY], 'error="invalid_request"', id="a key without a scheme"),
        pytest.param([f"Basic {KEY}"], 'error="invalid_request"', id="another scheme"),
        pytest.param([RIGHT, RIGHT], 'error="invalid_request"', id="two headers"),
        pytest.param([RIGHT, f"Bearer {OTHER}"], 'error="invalid_request"', id="the right key before a wrong one"),
        pytest.param([f"Bearer {OTHER}", RIGHT], 'error="invalid_request"', id="the right key after a wrong one"),
        pytest.param([f"{RIGHT}, {RIGHT}"], 'error="invalid_token"', id="two keys in one header"),
        pytest.param([f"Bearer {'x' * MAX_CREDENTIALS}"], 'error="invalid_request"', id="a long key"),
        pytest.param([f"Bearer {KEY} {OTHER}"], 'error="invalid_token"', id="a key with a space"),
    ],
)
async def test_requests_that_are_not_answered(way_in: Entrance, values: list[str], want_challenge: str) -> None:
    status, challenge = await way_in.infer(values)
    assert (status, want_challenge.lower() in challenge) == ("401", True), challenge
    assert way_in.running.session.meter.arrived == 0, "a refused request counts as load"
    assert await way_in.infer([RIGHT]) == ("200", "")


async def test_the_scheme_may_have_any_case(way_in: Entrance) -> None:
    assert (await way_in.infer([f"bEARER {KEY}"]))[0] == "200"


async def test_nobody_is_answered_without_keys(way_in: Entrance) -> None:
    allow(way_in.running, AllowedClients())
    assert [(await way_in.infer(values))[0] for values in ([], [RIGHT], ["Bearer "])] == ["401"] * 3
    allow(way_in.running, None)
    assert (await way_in.infer([]))[0] == "200"


async def test_other_keys_count_at_once_and_replace_no_executor(way_in: Entrance) -> None:
    executor = way_in.running.session.serving
    assert (await way_in.infer([RIGHT]))[0] == "200"
    allow(way_in.running, accepting(OTHER))
    assert [(await way_in.infer([value]))[0] for value in (RIGHT, f"Bearer {OTHER}")] == ["401", "200"]
    assert way_in.running.session.serving is executor


NOT_ASCII = f"Bearer {KEY[:-1]}\xe9"


@pytest.fixture(params=WAYS.values(), ids=WAYS)
async def protected(request: pytest.FixtureRequest) -> AsyncIterator[Stand]:
    """A session by HTTP that accepts the clients with KEY."""
    async with stand(APP, way=request.param) as running:
        allow(running, accepting(KEY))
        yield running


async def test_a_key_that_is_not_ascii(protected: Stand) -> None:
    assert (await HttpEntrance(protected).infer([NOT_ASCII]))[0] == "401"


@pytest.mark.parametrize(
    ("method", "path", "want_open"),
    [
        pytest.param("GET", "/v2/health/live", True, id="live"),
        pytest.param("GET", "/v2/health/ready", True, id="ready"),
        pytest.param("GET", "/", True, id="live by V1"),
        pytest.param("POST", "/v1/models/plain:predict", False, id="predict"),
        pytest.param("GET", "/v1/models", False, id="models by V1"),
        pytest.param("GET", "/partita/signals", False, id="signals"),
        pytest.param("GET", "/partita/metrics", False, id="metrics"),
        pytest.param("GET", "/v2", False, id="server"),
        pytest.param("GET", "/v2/models/plain", False, id="model"),
        pytest.param("GET", "/v2/models/plain/ready", False, id="model ready"),
        pytest.param("GET", "/v2/models/plain/versions/1", False, id="model version"),
        pytest.param("HEAD", "/v2/models/plain", False, id="head"),
        pytest.param("GET", "/v2/models/plain/config", False, id="model configuration"),
        pytest.param("GET", "/v2/models/plain/stats", False, id="statistics"),
        pytest.param("GET", "/v2/models/stats", False, id="statistics of all models"),
        pytest.param("POST", "/v2/repository/index", False, id="index"),
        pytest.param("POST", "/v2/repository/models/plain/load", False, id="load"),
        pytest.param("GET", "/v2/systemsharedmemory/status", False, id="shared memory"),
        pytest.param("GET", "/openapi.json", False, id="openapi"),
        pytest.param("POST", "/v2/models/plain/infer", False, id="infer"),
        pytest.param("POST", "//v2/models/plain/infer/", False, id="other spelling"),
        pytest.param("POST", "/v2/models/%70lain/infer", False, id="percent-encoded"),
        pytest.param("POST", f"/v2/models/plain/infer?api_key={KEY}", False, id="key in the query"),
        pytest.param("POST", "/v2/health/live/../../models/plain/infer", False, id="path through an open one"),
    ],
)
async def test_which_endpoints_everybody_reaches(protected: Stand, method: str, path: str, want_open: bool) -> None:
    content, headers = infer_body(SAMPLE) if method == "POST" else (b"", {})
    host = protected.url.split("/")[0]
    async with httpx.AsyncClient() as client:
        url = httpx.URL(scheme="http", host=host.split(":")[0], port=int(host.split(":")[1]), raw_path=path.encode())
        answer = await client.request(method, url, content=content, headers=headers)
    assert (answer.status_code == 200) is want_open, answer.status_code
    assert answer.status_code in (200, 401, 404)


async def test_the_body_of_a_refused_request_is_not_read(protected: Stand) -> None:
    """Nor waited for: the head alone is answered."""
    head = post(b"", {"Content-Length": 50_000_000, "Authorization": f"Bearer {OTHER}"})
    status, _ = await exchanged(protected, head)
    assert (status, protected.session.bodies.taken) == (401, 0)


async def test_a_request_after_an_accepted_one_needs_credentials_too() -> None:
    """On one connection: what the first request proves holds for it alone."""
    content, headers = infer_body(SAMPLE)
    async with stand(APP, way=on_its_own_port) as running, connected(running) as (reader, writer):
        allow(running, accepting(KEY))
        writer.write(post(content, {**headers, "Authorization": RIGHT}) + post(content, {**headers}))
        answers = await asyncio.wait_for(reader.read(-1), 20)
        assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"401"]


async def test_a_frontend_does_not_start_to_serve_before_it_knows_its_clients() -> None:
    """Clients and plan come in one configuration, and the clients count first."""
    async with stand(replace(APP, clients=accepting(KEY)), way=on_its_own_port) as running:
        assert [(await HttpEntrance(running).infer(values))[0] for values in ([], [RIGHT])] == ["401", "200"]
