"""The console's HTTP server on a real API server process: pages, headers, hosts, live changes, and its absence."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from tests.operator.cli.console.cluster_objects import TRAFFIC, condition, pool_object, signals, with_status
from tests.operator.cli.console.running import apply, running_console, until_shown
from tests.patience import PATIENCE_SECONDS

from partita_devtools.api_server.process import EmbeddedApiServer, start_api_server
from partita_operator.console.web.application import SECURITY_HEADERS
from partita_operator.console.web.hosts import is_answered, is_host_name, is_loopback
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.resources import EventResource, SessionResource

HOSTILE = "<script>alert('x')</script>"
SESSION = "/sessions/default/traffic"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedApiServer]:
    """An API server with a pool and a session."""
    server = start_api_server(tmp_path_factory.mktemp("console"), report=print, dies_with_parent=True)
    asyncio.run(_fill(server))
    yield server
    server.stop()


async def _fill(server: EmbeddedApiServer) -> None:
    async with KubernetesClient(await load_config(server.kubeconfig)) as client:
        await apply(client, pool_object(0), with_message(HOSTILE))
        session = await client.get(SessionResource, "traffic", "default")
        await client.create(EventResource, event(session["metadata"]["uid"]))


def with_message(message: str) -> Any:
    return with_status(
        TRAFFIC.build(), conditions=(condition("Ready", "False", "SLOTooTight", message),), signals=signals()
    )


def event(uid: str) -> dict[str, Any]:
    about = {"kind": "InferenceSession", "name": "traffic", "namespace": "default", "uid": uid}
    return {
        "metadata": {"name": "traffic.1", "namespace": "default"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "SLOTooTight",
        "message": f"An event: {HOSTILE}",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
    }


@pytest.fixture
async def console(server: EmbeddedApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A console that has read the cluster."""
    async with running_console(server.kubeconfig, names=("console.example.com",)) as client:
        await until_shown(client, "/", "traffic")
        yield client


async def test_the_pages_show_the_cluster(console: httpx.AsyncClient) -> None:
    overview = (await console.get("/")).text
    session = (await console.get(SESSION)).text
    pool = (await console.get("/pools/fast")).text

    assert "1 of 1 sessions" in overview
    assert "action needed" in session
    assert session.count("no pipeline meets the SLO at any cost") == 2, "of the condition and of the event"
    assert "Available" in pool
    assert HOSTILE not in overview + session + pool
    assert session.count("&lt;script&gt;alert") == 2, "of the condition and of the event"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        pytest.param("GET", "/", 200, id="overview"),
        pytest.param("HEAD", "/", 200, id="head"),
        pytest.param("GET", "/static/console.js", 200, id="script"),
        pytest.param("GET", "/static/theme.css", 200, id="colours"),
        pytest.param("GET", "/static/..%2fserver.py", 404, id="a file that is not served"),
        pytest.param("GET", "/sessions/default/none", 404, id="no session"),
        pytest.param("GET", "/sessions/default/traffic/plans/none", 404, id="no plan"),
        pytest.param("GET", "/pools/%3Cscript%3Ealert(1)%3C%2Fscript%3E", 404, id="no pool"),
        pytest.param("GET", "/elsewhere", 404, id="no page"),
        pytest.param("GET", "/?page=x", 400, id="no number"),
        pytest.param("GET", "/?state=%3Cscript%3E", 400, id="no state"),
        pytest.param("POST", "/", 405, id="post"),
        pytest.param("DELETE", SESSION, 405, id="delete"),
    ],
)
async def test_every_answer_has_the_headers(console: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    answer = await console.request(method, path)

    assert answer.status_code == status, answer.text
    assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == dict(SECURITY_HEADERS)
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "<script>" not in answer.text


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        pytest.param("127.0.0.1:8765", True, id="address"),
        pytest.param("10.1.2.3", True, id="another address"),
        pytest.param("[::1]:8765", True, id="IPv6"),
        pytest.param("localhost:9000", True, id="localhost behind a forwarded port"),
        pytest.param("LOCALHOST.", True, id="localhost in full"),
        pytest.param("console.example.com", True, id="name of --allow-host"),
        pytest.param("Console.Example.com:443", True, id="the same in capitals"),
        pytest.param("evil.example", False, id="another name"),
        pytest.param("127.0.0.1.evil.example", False, id="a name that begins with an address"),
        pytest.param("localhost.evil.example:8765", False, id="a name that begins with localhost"),
        pytest.param("localhost:8765@evil.example", False, id="a name with a user"),
        pytest.param("evil.example/localhost", False, id="a path"),
        pytest.param("", False, id="none"),
    ],
)
async def test_other_hosts_are_refused(console: httpx.AsyncClient, host: str, answered: bool) -> None:
    answers = [
        await console.get(path, headers={"Host": host}) for path in ("/", "/changes") if not answered or path == "/"
    ]

    assert is_answered(host, ("console.example.com",)) == answered
    for answer in answers:
        assert answer.status_code == (200 if answered else 403)
        assert "Content-Security-Policy" in answer.headers
        assert ("--allow-host" in answer.text) != answered


def test_names_and_addresses() -> None:
    assert [is_host_name(text) for text in ("console", "a.b-c.example", "http://a", "a:80", "a/b", "", "-a")] == [
        *(True, True),
        *(False, False, False, False, False),
    ]
    assert [
        is_loopback(text) for text in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "10.0.0.1", "a")
    ] == [
        *(True, True, True, True),
        *(False, False, False),
    ]


async def next_change(lines: AsyncIterator[str]) -> None:
    """Return once the stream announces a change."""
    async for line in lines:
        if line == "event: changed":
            return
    raise AssertionError("the stream has ended")


async def test_a_change_reaches_open_pages(console: httpx.AsyncClient, server: EmbeddedApiServer) -> None:
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        console.stream("GET", "/changes") as stream,
        KubernetesClient(await load_config(server.kubeconfig)) as client,
    ):
        lines = stream.aiter_lines()
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        assert stream.headers["Content-Security-Policy"] == SECURITY_HEADERS["Content-Security-Policy"]
        assert await anext(lines) == "retry: 3000"
        try:
            await apply(client, with_message("Another message."))
            await next_change(lines)
            # The change that was announced may be an earlier one; each further one is announced, too.
            while "Another message." not in (page := (await console.get(SESSION)).text):
                await next_change(lines)
            assert "Another message." in page
        finally:
            await apply(client, with_message(HOSTILE))


async def test_pages_stay_while_the_api_server_is_away(console: httpx.AsyncClient, server: EmbeddedApiServer) -> None:
    server.stop()
    try:
        page = await until_shown(console, SESSION, "Out of date")
        assert "does not answer" in page
        assert "no pipeline meets the SLO at any cost" in page
        assert "/sessions/default/traffic" in (await console.get("/")).text
    finally:
        start_api_server(server.state_dir, report=print, dies_with_parent=True)
    await until_shown(console, SESSION, "Out of date", shown=False)


async def test_a_namespace_shows_its_sessions_and_all_pools(server: EmbeddedApiServer) -> None:
    async with running_console(server.kubeconfig, "elsewhere") as client:
        page = await until_shown(client, "/", "/pools/fast")

    assert "There is no InferenceSession in namespace elsewhere" in page
    assert "traffic" not in page


async def test_a_cluster_that_has_never_answered_is_explained(server: EmbeddedApiServer) -> None:
    server.stop()
    try:
        async with running_console(server.kubeconfig) as client:
            page = await until_shown(client, "/", "Nothing is known yet")
            missing = await client.get(SESSION)
            assert "does not answer" in page
            assert "There is no" not in page
            assert missing.status_code == 503
            start_api_server(server.state_dir, report=print, dies_with_parent=True)
            await until_shown(client, "/", "traffic")
    finally:
        start_api_server(server.state_dir, report=print, dies_with_parent=True)
