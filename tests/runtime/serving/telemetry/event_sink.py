"""A sink of a request log: an HTTP server that keeps the events that it receives."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Received:
    """A request of POST that a sink received."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def attributes(self) -> dict[str, str]:
        """Those of the CloudEvent, without their prefix."""
        return {name[3:]: value for name, value in self.headers.items() if name.startswith("ce-")}

    @property
    def kind(self) -> str:
        """The last word of its type."""
        return self.attributes["type"].rpartition(".")[2]

    @property
    def line(self) -> str:
        """As a collector stores it."""
        encoded = base64.b64encode(self.body).decode()
        described = {**self.attributes, "datacontenttype": self.headers["content-type"]}
        return json.dumps({**described, **({"data_base64": encoded} if self.body else {})})


class EventSink:
    """Answers with `status`, as soon as it `answers`."""

    def __init__(self) -> None:
        self.url = ""
        self.events: list[Received] = []
        self.status = HTTPStatus.ACCEPTED
        self.authorization = ""
        """The header without which events are refused; empty if none is needed."""
        self.answers = asyncio.Event()
        self.answers.set()
        self.connections: set[Any] = set()
        """The peers that sent something."""

    def of_kind(self, kind: str) -> list[Received]:
        """The events of requests, or of responses."""
        return [event for event in self.events if event.kind == kind]

    async def take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if self.authorization and headers.get("authorization") != self.authorization:
            return web.Response(status=HTTPStatus.UNAUTHORIZED)
        self.connections.add(request.transport and request.transport.get_extra_info("peername"))
        self.events.append(Received(request.path, headers, await request.read()))
        await self.answers.wait()
        return web.Response(status=self.status)


@asynccontextmanager
async def event_sink() -> AsyncIterator[EventSink]:
    """A sink on a free port of this machine."""
    sink = EventSink()
    application = web.Application(client_max_size=1 << 26)
    application.router.add_post("/{path:.*}", sink.take)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sink.url = f"http://127.0.0.1:{runner.addresses[0][1]}/events"
    try:
        yield sink
    finally:
        sink.answers.set()
        await runner.cleanup()
