"""A real HTTP server for the load generator; each test sets its behaviour."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server with this handler on a free port. Returns the URL of its infer endpoint."""
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> str:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v2/models/traffic/infer", handler)
        runner = web.AppRunner(app, shutdown_timeout=1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}/v2/models/traffic/infer"

    yield start
    for runner in runners:
        await runner.cleanup()
