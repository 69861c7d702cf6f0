"""The load generator against a real HTTP server: it counts every request, and never hangs."""

import asyncio
import time
from collections import Counter

import numpy as np
import pytest
from aiohttp import web
from tests.runtime.load.conftest import Serve

from partita_runtime.load.generator import LoadConfig, Progress, run_load
from partita_runtime.serving.protocol.inference_client import Payload

PAYLOADS = (Payload({"Content-Type": "application/octet-stream"}, b"\x01" * 1000),)


def config(url: str, *due: float, timeout_s: float = 20.0, payloads: tuple[Payload, ...] = PAYLOADS) -> LoadConfig:
    return LoadConfig(
        url=url,
        payloads=payloads,
        schedule=np.array(due),
        duration_s=max(due, default=0.0) + 0.01,
        slo_s=10.0,
        timeout_s=timeout_s,
    )


async def test_every_request_arrives_once_and_is_counted(serve: Serve) -> None:
    received = Counter[bytes]()

    async def handler(request: web.Request) -> web.Response:
        received[await request.read()] += 1
        return web.Response(body=b"{}")

    payloads = tuple(Payload({}, bytes([i]) * 100_000) for i in range(3))
    run = await run_load(config(await serve(handler), *np.linspace(0, 0.3, 90), payloads=payloads))

    assert received == {payload.body: 30 for payload in payloads}
    assert run.report.outcomes == {"200": 90}
    assert run.report.attainment == 1
    assert sum(second.offered for second in run.report.seconds) == 90
    assert [r.scheduled_s for r in run.records] == pytest.approx(np.linspace(0, 0.3, 90))
    assert all(r.scheduled_s <= r.sent_s <= r.ended_s for r in run.records)


async def test_requests_leave_on_schedule_while_none_is_answered(serve: Serve) -> None:
    all_there = asyncio.Event()
    waiting = []

    async def handler(request: web.Request) -> web.Response:
        waiting.append(request)
        if len(waiting) == 20:
            all_there.set()
        await all_there.wait()
        return web.Response()

    due = np.linspace(0, 0.4, 20)
    run = await run_load(config(await serve(handler), *due))

    assert run.report.outcomes == {"200": 20}
    for record in run.records:
        assert record.latency_s >= 0.4 - record.scheduled_s, "the first answer came after the last request was sent"


async def test_latency_counts_from_the_schedule_even_if_the_generator_is_late(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.Response:
        time.sleep(0.05)  # noqa: ASYNC251 - stops the generator too, which shares this event loop
        return web.Response()

    run = await run_load(config(await serve(handler), *[0.0] * 10))

    last = max(run.records, key=lambda r: r.ended_s)
    assert last.latency_s == last.ended_s
    assert last.latency_s >= 0.5, "ten requests were served one after the other"


@pytest.mark.parametrize("status", [400, 503, 504])
async def test_refusals_are_counted_by_status(serve: Serve, status: int) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Retry-After": "1"})

    run = await run_load(config(await serve(handler), 0.0, 0.01, 0.02))

    assert run.report.outcomes == {str(status): 3}
    assert run.report.goodput == 0
    assert run.report.p99_ms is None


async def test_request_without_an_answer_is_cancelled(serve: Serve) -> None:
    over = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    load = LoadConfig(await serve(handler), PAYLOADS, np.zeros(4), duration_s=0.1, slo_s=0.05, timeout_s=0.1)
    run = await run_load(load)
    over.set()

    assert run.report.outcomes == {"timeout": 4}
    assert run.report.attainment == 0


async def test_refused_connections_are_counted(unused_tcp_port: int) -> None:
    run = await run_load(config(f"http://127.0.0.1:{unused_tcp_port}/", 0.0, 0.01))

    assert run.report.outcomes == {"connection": 2}


async def test_connection_broken_during_the_answer_is_counted(serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"half an answ")
        assert request.transport is not None
        request.transport.abort()
        return answer

    run = await run_load(config(await serve(handler), 0.0, 0.0))

    assert run.report.outcomes == {"connection": 2}


async def test_connections_are_reused(serve: Serve) -> None:
    peers = set()

    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response()

    url = await serve(handler)
    run = await run_load(config(url, *np.linspace(0, 1.0, 25)))

    assert run.report.outcomes == {"200": 25}
    assert len(peers) < 25


async def test_progress_ends_with_everything_counted(serve: Serve) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response()

    seen: list[Progress] = []
    await run_load(config(await serve(handler), *np.linspace(0, 1.2, 30)), seen.append)

    assert (seen[-1].sent, seen[-1].ended, seen[-1].good, seen[-1].pending) == (30, 30, 30, 0)
    assert [p.sent for p in seen] == sorted(p.sent for p in seen)
    assert len(seen) >= 2


async def test_empty_schedule_is_an_empty_report() -> None:
    run = await run_load(config("http://127.0.0.1:9/"))

    assert run.report.requests == 0
    assert run.report.outcomes == {}


@pytest.mark.parametrize(
    ("changes", "want_message"),
    [
        pytest.param({"payloads": ()}, "at least one payload", id="nothing to send"),
        pytest.param({"duration_s": 0.0}, "longer than 0", id="no duration"),
        pytest.param({"timeout_s": 0.5}, "cut off answers", id="timeout below the SLO"),
        pytest.param({"schedule": np.array([0.2, 0.1])}, "must ascend", id="unordered schedule"),
        pytest.param({"schedule": np.array([0.2, 2.0])}, "between 0 and", id="schedule beyond the end"),
    ],
)
def test_invalid_load_is_refused(changes: dict[str, object], want_message: str) -> None:
    valid = {"url": "http://h/", "payloads": PAYLOADS, "schedule": np.array([0.5]), "duration_s": 1.0, "slo_s": 1.0}

    with pytest.raises(ValueError, match=want_message):
        LoadConfig(**{**valid, **changes})  # type: ignore[arg-type]
