"""The HTTP application: reads requests, answers with pages, and never writes to the cluster."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from partita_operator.console.reading.follower import ClusterFollower
from partita_operator.console.reading.object_events import ObjectEventReader
from partita_operator.console.views.pools import pool_page, pool_rows
from partita_operator.console.views.session_page import plan_page, session_page
from partita_operator.console.views.sessions import QueryError, SessionQuery, sessions_part
from partita_operator.console.web.hosts import is_answered
from partita_operator.console.web.pages import environment, render

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ALIVE_S: Final = 15.0
"""After so many seconds without a change, a stream sends a comment: a connection that is gone is noticed."""
PACE_S: Final = 1.0
"""Shortest time between two changes of a stream."""
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC: Final = {
    "theme.css": ("partita_operator.console.drawing", "theme.css", "text/css"),
    "console.css": ("partita_operator.console.web", "static/console.css", "text/css"),
    "console.js": ("partita_operator.console.web", "static/console.js", "text/javascript"),
}


class ConsoleApplication:
    """The pages of one cluster."""

    def __init__(
        self,
        follower: ClusterFollower,
        events: ObjectEventReader,
        server: str,
        clock: Callable[[], datetime],
        names: Collection[str] = (),
    ) -> None:
        """`server` is the API server's URL, for people; `names` are host names under which it answers."""
        self._follower, self._events, self._server, self._clock = follower, events, server, clock
        self._names = frozenset(names)
        self._templates = environment()
        self._static = {
            name: (files(package).joinpath(path).read_text(encoding="utf-8"), kind)
            for name, (package, path, kind) in _STATIC.items()
        }

    def application(self) -> web.Application:
        """The application for aiohttp."""
        made = web.Application(middlewares=[self._guarded])
        made.on_response_prepare.append(_add_headers)
        made.router.add_get("/", self._overview)
        made.router.add_get("/pools/{name}", self._pool)
        made.router.add_get("/sessions/{namespace}/{name}", self._session)
        made.router.add_get("/sessions/{namespace}/{name}/plans/{plan}", self._plan)
        made.router.add_get("/changes", self._changes)
        made.router.add_get("/static/{name}", self._file)
        return made

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answers for known hosts only, and with a page whatever happens."""
        host = request.headers.get("Host", "")
        if not is_answered(host, self._names):
            return web.Response(
                status=HTTPStatus.FORBIDDEN,
                text="The console answers only under an IP address, localhost, and the names of its option "
                "--allow-host.\n",
            )
        try:
            return await handler(request)
        except web.HTTPException as error:
            return self._error(HTTPStatus(error.status), error.reason)
        except QueryError as error:
            return self._error(HTTPStatus.BAD_REQUEST, f"This address cannot be used: {error}.")
        except Exception:
            logger.exception("%s cannot be shown", request.path)
            return self._error(
                HTTPStatus.INTERNAL_SERVER_ERROR, "This page cannot be shown; the command's output has the reason."
            )

    async def _overview(self, request: web.Request) -> web.Response:
        query = SessionQuery.parse(request.query)
        cluster = self._follower.snapshot.cluster
        return self._page(
            "overview", pools=pool_rows(cluster), sessions=sessions_part(cluster.sessions.values(), query)
        )

    async def _pool(self, request: web.Request) -> web.Response:
        snapshot, name = self._follower.snapshot, request.match_info["name"]
        page = pool_page(snapshot, name)
        if page is None:
            return self._missing(f"GPUPool {name}")
        meta = snapshot.cluster.pools[name].metadata
        return self._page("pool", pool=page, events=await self._events.events_of(meta.uid, None))

    async def _session(self, request: web.Request) -> web.Response:
        snapshot, key = self._follower.snapshot, _key(request)
        page = session_page(snapshot, key)
        if page is None:
            return self._missing(f"InferenceSession {key}")
        meta = snapshot.cluster.sessions[key].metadata
        return self._page("session", session=page, events=await self._events.events_of(meta.uid, meta.namespace))

    async def _plan(self, request: web.Request) -> web.Response:
        key, name = _key(request), request.match_info["plan"]
        page = plan_page(self._follower.snapshot, key, name)
        if page is None:
            return self._missing(f"PipelinePlan {name} of {key}")
        return self._page("plan", page=page)

    async def _changes(self, request: web.Request) -> web.StreamResponse:
        """A stream of server-sent events, one for each change of the snapshot."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        seen = self._follower.revision
        with suppress(ConnectionError):  # the viewer has left
            await response.write(b"retry: 3000\n\n")
            while True:
                try:
                    async with asyncio.timeout(ALIVE_S):
                        seen = await self._follower.changed(seen)
                    message = f"event: changed\ndata: {seen}\n\n"
                except TimeoutError:
                    message = ": alive\n\n"
                await response.write(message.encode())
                await asyncio.sleep(PACE_S)
        return response

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._static:
            raise web.HTTPNotFound
        text, kind = self._static[name]
        return web.Response(text=text, content_type=kind)

    def _page(self, template: str, status: HTTPStatus = HTTPStatus.OK, **data: Any) -> web.Response:
        html = render(
            self._templates,
            template,
            self._clock(),
            snapshot=self._follower.snapshot,
            server=self._server,
            **data,
        )
        return web.Response(status=status, text=html, content_type="text/html")

    def _missing(self, what: str) -> web.Response:
        if self._follower.snapshot.seen_at is None:
            return self._error(HTTPStatus.SERVICE_UNAVAILABLE, f"{what} is not known yet: the cluster is being read.")
        return self._error(HTTPStatus.NOT_FOUND, f"There is no {what}, or you may not read it.")

    def _error(self, status: HTTPStatus, message: str) -> web.Response:
        return self._page("error", status, title=status.phrase, message=message)


def _key(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"


async def _add_headers(_request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY_HEADERS.items():
        response.headers[name] = value
    response.headers["Server"] = "partita"
