"""Watches go on after whatever the API server answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.devtools.api_server.objects import Cluster
from tests.patience import PATIENCE_SECONDS

from partita_devtools.api_server.http import application
from partita_devtools.machine.ports import free_ports
from partita_operator.handlers import watches
from partita_operator.kube.cache import Kind
from partita_operator.kube.connection import load_config

TOKEN = "secret"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FailingServer:
    """An API server whose watch requests of sessions get 404 while it fails, after one of the pools got 503."""

    cluster: Cluster = field(default_factory=Cluster)
    is_failing: bool = False
    refusals: int = 0
    """How many more requests it refuses for their token."""
    pools_failed: asyncio.Event = field(default_factory=asyncio.Event)
    sessions_failed: asyncio.Event = field(default_factory=asyncio.Event)
    _streams: set[web.Request] = field(default_factory=set)

    @asynccontextmanager
    async def kubeconfig(self, directory: Path) -> AsyncIterator[Path]:
        """Runs it; the file with its address."""
        app = application(self.cluster.store, TOKEN)
        app.middlewares.append(self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        try:
            yield path
        finally:
            await runner.cleanup()

    def fail(self) -> None:
        """End all watches, and fail from now on."""
        self.is_failing = True
        for request in self._streams:
            if request.transport is not None:
                request.transport.close()

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self.refusals > 0:
            self.refusals -= 1
            return web.json_response({"kind": "Status", "code": 401}, status=HTTPStatus.UNAUTHORIZED)
        if "watch" not in request.query:
            return await handler(request)
        if self.is_failing and request.path.endswith("inferencesessions"):
            await self.pools_failed.wait()
            self.sessions_failed.set()
            return web.Response(status=HTTPStatus.NOT_FOUND, text="404 page not found")
        if self.is_failing:
            self.pools_failed.set()
            return web.json_response({"kind": "Status", "code": 503}, status=HTTPStatus.SERVICE_UNAVAILABLE)
        self._streams.add(request)
        try:
            return await handler(request)
        finally:
            self._streams.discard(request)


async def test_watches_begin_again_after_one_failed_while_another_waits_for_its_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "CANCEL_S", 1.0)
    seen: list[str] = []
    noticed = asyncio.Event()

    def on_event(kind: Kind, _: str | None, raw: dict[str, Any]) -> None:
        if kind is Kind.POOL:
            seen.append(raw["metadata"]["name"])
            noticed.set()

    async def until_seen(name: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while name not in seen:
                noticed.clear()
                await noticed.wait()

    server = FailingServer()
    server.cluster.pool("before")
    async with server.kubeconfig(tmp_path) as kubeconfig:
        connection = await load_config(kubeconfig)
        watching = asyncio.create_task(watches.watch(connection, on_event, *free_ports(1)))
        await until_seen("before")

        server.fail()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.sessions_failed.wait()
        server.is_failing = False
        server.cluster.pool("after")
        await until_seen("after")

        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


async def test_credentials_that_the_api_server_refuses_are_tried_again_after_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "RESTART_S", 0.0123)
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float, *arguments: Any) -> Any:
        pauses.append(seconds)
        return await sleep(seconds, *arguments)

    monkeypatch.setattr(asyncio, "sleep", record)
    seen = asyncio.Event()
    server, refusals = FailingServer(), 30
    server.cluster.pool("fast")
    async with server.kubeconfig(tmp_path) as kubeconfig:
        connection = await load_config(kubeconfig)
        server.refusals = refusals
        watching = asyncio.create_task(watches.watch(connection, lambda *_: seen.set(), *free_ports(1)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await seen.wait()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    kinds = 3
    assert pauses.count(watches.RESTART_S) >= refusals // kinds - 1
