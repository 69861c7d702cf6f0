"""Session authors, their sinks, and clients against the request log."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np
import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.reconcile.simulated import SimulatedCluster
from tests.runtime.serving.in_process.stand import WAYS, Stand, post, stand, until
from tests.runtime.serving.ingress.raw_http import exchanged
from tests.runtime.serving.ingress.raw_http import post as raw_post
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application
from tests.runtime.serving.telemetry.event_sink import event_sink
from tests.security.clients.hostile_server import Answering, complete, endless, server, silence

from partita_api.session.request_log import RequestLog
from partita_operator.ports import ServingSpec
from partita_operator.reconcile.admission import judge_session
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.request_log import RequestLogSettings
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.telemetry import request_log

ALLOWED: Final = "http://collector.logs.svc:8080/partita/"
PLATFORM: Final = OperatorSettings(request_log=RequestLogSettings(allowed_sinks=(ALLOWED,)))
PLAIN: Final = application("plain").model("only")
SMALL: Final = FrontendSettings(function_processes=1, max_log_bytes=50_000)


def logging_to(sink: str) -> SessionBuilder:
    return session("traffic").model("detector").with_spec(frontend={"requestLog": {"sink": sink}})


def settled(made: SimulatedCluster, *objects: Any) -> ServingSpec | None:
    """What the engine is to run, after these objects were added."""
    made.add(*objects)
    made.run(15)
    return made.engine.applied.get("default/traffic")


@pytest.mark.parametrize(
    "sink",
    [
        pytest.param("http://169.254.169.254/latest/meta-data", id="metadata of the cloud"),
        pytest.param("http://collector.logs.svc:8080", id="above what is allowed"),
        pytest.param("http://collector.logs.svc:8080/partita-of-others", id="beside what is allowed"),
        pytest.param(f"{ALLOWED}../admin", id="leaving what is allowed"),
        pytest.param("http://collector.logs.svc:80801/partita/", id="another port"),
        pytest.param("http://collector.logs.svc.evil.example:8080/partita/", id="another host"),
        pytest.param("https://collector.logs.svc:8080/partita/", id="another scheme"),
    ],
)
def test_a_sink_that_the_platform_does_not_allow_reaches_no_frontend(sink: str) -> None:
    author = logging_to(sink)
    assert judge_session(author.build(), "", Cluster(), PLATFORM).refusal.startswith("ForbiddenRequestLog: ")
    made = SimulatedCluster(settings=PLATFORM)
    assert settled(made, pool("fast").build(), author.build()) is None
    assert made.condition("traffic", "Ready") == ("False", "ForbiddenRequestLog")


@pytest.mark.parametrize(
    "sink",
    [
        pytest.param("http://collector.logs.svc:8080@evil.example/", id="a user"),
        pytest.param(f"{ALLOWED}?next=http://evil.example", id="a query"),
        pytest.param(f"{ALLOWED}%2e%2e/admin", id="an escaped way out"),
        pytest.param(f"{ALLOWED}\r\nHost: evil.example", id="a new line"),
        pytest.param("file:///etc/passwd", id="a file"),
        pytest.param("http://[fd00::1]/", id="brackets"),
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_no_sink(sink: str) -> None:
    with pytest.raises(ValueError, match="sink"):
        RequestLog(sink=sink)


def test_a_running_session_cannot_take_a_forbidden_sink() -> None:
    made = SimulatedCluster(settings=PLATFORM)
    granted = settled(made, pool("fast").build(), logging_to(ALLOWED).build())
    assert granted is not None
    assert granted.request_log == RequestLog(sink=ALLOWED)
    changed = settled(made, logging_to("http://169.254.169.254/").build())
    assert changed is not None
    assert (changed.request_log, changed.plan) == (None, granted.plan)


def test_a_sink_that_is_not_allowed_any_more_gets_nothing() -> None:
    made = SimulatedCluster(settings=PLATFORM)
    settled(made, pool("fast").build(), logging_to(ALLOWED).build())
    made.settings = OperatorSettings()
    kept = settled(made)
    assert kept is not None
    assert kept.request_log is None


@asynccontextmanager
async def sending_to(answering: Answering) -> AsyncIterator[tuple[Stand, list[str]]]:
    """A session that logs to a server that answers in this way, and the requests that it gets."""
    async with server(answering) as (url, requests), stand(PLAIN.logging_to(url), SMALL) as running:
        yield running, requests


async def long_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize(
    ("answering", "want"),
    [
        pytest.param(complete(b"x", status="500 Error"), "failed", id="server error"),
        pytest.param(complete(b"", status="304 Not Modified"), "failed", id="no success"),
        pytest.param(complete(b"", "WWW-Authenticate: Basic", status="401 No"), "failed", id="asking for credentials"),
        pytest.param(complete(bytes(10_000_000)), "sent", id="a large answer"),
        pytest.param(endless(bytes(1 << 16), 0), "sent", id="an answer without end"),
        pytest.param(complete(b"\x1f\x8b" * 50, "Content-Encoding: gzip"), "sent", id="compressed"),
        pytest.param(long_head, "failed", id="a long head"),
        pytest.param(complete(b"", status="OK"), "failed", id="no status"),
        pytest.param(silence, "failed", id="silence"),
    ],
)
async def test_a_hostile_sink_costs_no_request(
    monkeypatch: pytest.MonkeyPatch, answering: Answering, want: str
) -> None:
    monkeypatch.setattr(request_log, "SEND_SECONDS", 1.0)
    async with sending_to(answering) as (running, requests):
        assert (await post(running))[0] == 200
        await until(lambda: running.session.meter.logged.total() == 2, "both events have ended")
        assert (running.session.meter.logged, len(requests)) == ({want: 2}, 2)


async def test_a_redirect_leads_nowhere() -> None:
    async with server(complete(b"")) as (target, followed):
        redirect = complete(b"", f"Location: {target}/", status="307 Temporary Redirect")
        async with sending_to(redirect) as (running, _):
            assert (await post(running))[0] == 200
            await until(lambda: running.session.meter.logged["failed"] == 2, "both events have failed")
        assert followed == []


async def test_cookies_of_a_sink_are_not_sent_back() -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        await complete(b"", "Set-Cookie: session=evil; Path=/")(writer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://localhost:{listening.sockets[0].getsockname()[1]}"
    async with listening, stand(PLAIN.logging_to(url)) as running:
        for count in (2, 4):
            assert (await post(running))[0] == 200
            await until(lambda sent=count: running.session.meter.logged["sent"] == sent, "the events are sent")
    assert len(heads) == 4
    assert not [head for head in heads if b"cookie" in head.lower()]


async def test_events_for_a_slow_sink_take_bounded_memory() -> None:
    tensor, most = np.ones((8, 2, 2), np.float32), 0
    async with event_sink() as sink, stand(PLAIN.logging_to(sink.url), SMALL) as running:
        sink.answers.clear()
        content, headers = infer_body(tensor)
        for _ in range(100):
            answer = await running.client.post("/v2/models/plain/infer", content=content, headers=headers)
            assert answer.status_code == 200
            most = max(most, running.session.request_log.waiting_bytes)
        dropped = running.session.meter.logged["dropped"]
        assert 0 < most <= SMALL.max_log_bytes
        assert 100 < dropped < 200
        sink.answers.set()
        await running.session.request_log.finish()
    assert running.session.meter.logged == {"dropped": dropped, "sent": 200 - dropped}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    "value",
    [
        pytest.param("7\t8", id="two numbers"),
        pytest.param("9" * 40_000, id="many digits"),
        pytest.param("5, ce-type: evil", id="another attribute"),
    ],
)
async def test_a_client_adds_nothing_to_the_attributes_of_an_event(way: Any, value: str) -> None:
    rows = json.dumps({"instances": [[[0, 1], [2, 3]]]}).encode()
    headers = {"Inference-Header-Content-Length": value, "ce-evil": "x", "ce-time": "y"}
    headers |= {"ce-specversion": "1.0", "ce-id": "evil", "ce-source": "evil", "ce-type": "evil"}
    async with event_sink() as sink, stand(PLAIN.logging_to(sink.url), way=way) as running:
        status, body = await exchanged(running, raw_post(rows, headers, "/v1/models/plain:predict"))
        assert status == 200, body
        await until(lambda: len(sink.events) == 2, "both events have arrived")
    assert sink.of_kind("request")[0].body == rows
    assert {"evil", "jsonheaderlength"}.isdisjoint(sink.of_kind("request")[0].attributes)
    assert "evil" not in str([event.attributes for event in sink.events])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_a_client_without_credentials_is_not_logged(way: Any) -> None:
    async with event_sink() as sink, stand(PLAIN.logging_to(sink.url), way=way) as running:
        running.session.clients.allow(AllowedClients())
        assert (await post(running))[0] == 401
        running.session.clients.allow(None)
        assert (await post(running))[0] == 200
        await running.session.request_log.finish()
    assert [event.attributes.get("statuscode") for event in sink.events] == [None, "200"]
