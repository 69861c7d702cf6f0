"""The session's HTTP interface as an ASGI application, which Ray Serve runs behind its proxy."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, NamedTuple

from partita_runtime.serving.authentication.authenticator import CREDENTIALS
from partita_runtime.serving.ingress.http_answers import CancellableRequest, HttpAnswer, refusal, too_large, too_slow
from partita_runtime.serving.ingress.http_routes import HttpHead
from partita_runtime.serving.ingress.http_service import HttpCall, HttpService
from partita_runtime.serving.ingress.refusals import refused
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.transport.clock import now_micros

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

CLIENT_LEFT: Final = 499
"""Status of a request whose client closed the connection; it is never sent."""
WATCH_AFTER_SECONDS: Final = 0.2
"""After this time the frontend watches whether the client leaves; watching every request costs more than it saves."""


class _DisconnectedError(Exception):
    """The client left before its request was complete."""


def asgi_application(session: Session, monitoring_digest: str = "") -> ASGIApp:
    """The ASGI application that serves `session`, relative to its route prefix.

    `monitoring_digest` is that of the token that reads measurements; empty: nobody has it.
    """
    service = HttpService(session, monitoring_digest)

    async def serve(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                response = _AsgiResponse(send)
                await response.end(await _answer(service, _head(scope), receive, response))
            case "lifespan":
                await _live(receive, send)
            case "websocket":
                await send({"type": "websocket.close"})

    return serve


class _AsgiResponse:
    """Sends the answer to one request, as a whole or in parts."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False

    async def part(self, part: HttpAnswer) -> None:
        """Send a part that is not the last one."""
        if not self._has_begun:
            await self._begin(part.status, part.headers)
        await self._send({"type": "http.response.body", "body": part.content, "more_body": True})

    async def end(self, answer: HttpAnswer) -> None:
        """Send the last part, or the whole answer."""
        if not self._has_begun:
            headers = {**answer.headers, "content-length": str(len(answer.content))}
            if answer.close:
                headers["connection"] = "close"  # else the server would read the rest of the request
            await self._begin(answer.status, headers)
        await self._send({"type": "http.response.body", "body": answer.content})

    async def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self._has_begun = True
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


async def _answer(service: HttpService, head: HttpHead, receive: Receive, response: _AsgiResponse) -> HttpAnswer:
    """The answer, or the last part of one whose other parts are sent."""
    try:
        call, arrived = service.call(head), now_micros()
        service.admit(call)
    except RequestError as error:
        return refusal(error)
    try:
        body = await _body(service, call, receive)
    except RequestError as error:
        return refusal(error)._replace(close=True)
    except BodyMemoryError as error:
        return refusal(refused(error))._replace(close=True)
    except _DisconnectedError:
        return HttpAnswer(CLIENT_LEFT)
    client = _AsgiClient()
    service.begin(client, call, body, arrived)
    watching = asyncio.get_running_loop().call_later(WATCH_AFTER_SECONDS, client.watch, receive)
    try:
        while not (given := await client.given.get()).is_last:
            await response.part(given.answer)
        return given.answer
    finally:
        watching.cancel()
        client.leave()


class _Given(NamedTuple):
    """What the service has given a client."""

    answer: HttpAnswer
    is_last: bool


class _AsgiClient:
    """The client of one request, as the service sees it."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[_Given] = asyncio.Queue()
        self._in_progress: CancellableRequest | None = None
        self._left: asyncio.Task[None] | None = None

    def watch(self, receive: Receive) -> None:
        """Call `leave` when the client leaves."""
        self._left = asyncio.create_task(_client_left(receive))
        self._left.add_done_callback(self.leave)

    def began(self, request: CancellableRequest) -> None:
        self._in_progress = request

    def part(self, part: HttpAnswer) -> None:
        self.given.put_nowait(_Given(part, is_last=False))

    def answer(self, answer: HttpAnswer) -> None:
        self._in_progress = None
        self.given.put_nowait(_Given(answer, is_last=True))

    def leave(self, _: object = None) -> None:
        """The client has left."""
        if self._left is not None:
            self._left.cancel()
        if self._in_progress is not None:
            self._in_progress.cancel()
            self._in_progress = None
        self.given.put_nowait(_Given(HttpAnswer(CLIENT_LEFT), is_last=True))


def _head(scope: MutableMapping[str, Any]) -> HttpHead:
    base_url = scope.get("root_path", "")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    return HttpHead(
        method=scope["method"],
        path=scope["path"].removeprefix(base_url),
        headers=dict(headers),
        base_url=base_url,
        credentials=tuple([value for name, value in headers if name == CREDENTIALS]),
    )


async def _body(service: HttpService, call: HttpCall, receive: Receive) -> bytes:
    """The request's body.

    Raises RequestError if it is too large (413) or does not arrive in time (408), and BodyMemoryError if too many bytes
    of all bodies have arrived in part.
    """
    if call.head.method != "POST":
        return b""
    settings = service.settings
    chunks, size, more = [], 0, True
    try:
        with service.reading() as reading:
            async with asyncio.timeout(settings.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _DisconnectedError
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    more = message.get("more_body", False)
                    if size > settings.max_request_bytes:
                        raise too_large(settings)
                    if more:
                        reading.grew(len(chunks[-1]))
    except TimeoutError:
        raise too_slow(settings) from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    """Confirm the server's start and end; nothing else has to be done."""
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})
