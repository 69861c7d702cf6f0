"""Sends requests on to the session that is a version of this one, and its answers back."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import httpx

from partita_runtime.serving.authentication.authenticator import CREDENTIALS
from partita_runtime.serving.deploy.version_routes import ANSWERED_BY, FORWARDED, VersionRoute
from partita_runtime.serving.ingress.http_answers import HttpAnswer
from partita_runtime.serving.ingress.http_routes import HttpHead, Operation
from partita_runtime.serving.ingress.versions.choice import ChosenVersion, choice
from partita_runtime.serving.protocol.cloud_events import STRUCTURED_TYPE
from partita_runtime.serving.protocol.event_stream import (
    ANSWER,
    ERROR,
    EVENT_HEADERS,
    EVENT_STREAM,
    EventReader,
    StreamEvent,
)
from partita_runtime.serving.protocol.inference import MODEL_VERSION, RETRY_AFTER_SECONDS, Body, RequestError, digits
from partita_runtime.serving.protocol.oip import HEADER_LENGTH
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.transport.bounded_http import BegunReply, HttpReply, TooLongError, begun_reply, whole_reply

logger = logging.getLogger(__name__)

EVENT_PREFIX: Final = "ce-"
"""Of headers with the attributes of a CloudEvent."""
_SENT: Final = frozenset({"content-type", HEADER_LENGTH, "traceparent", "tracestate"})
"""Headers that are sent on, besides credentials and the attributes of a CloudEvent."""
_RETURNED: Final = frozenset({HEADER_LENGTH, "retry-after", "www-authenticate", *EVENT_HEADERS})
_TYPES_OF_FRONTENDS: Final = frozenset({"application/json", "application/octet-stream", EVENT_STREAM, STRUCTURED_TYPE})
"""Content types of a frontend's answers. What is in front of it, such as Serve's proxy, answers with text."""
_FALL_BACK: Final = frozenset({401, 503})
"""The version does not accept the client, or has no room. A client that has chosen no version need not notice."""
_PATHS: Final[Mapping[Operation, str]] = {
    Operation.INFER: "/v2/models/{}/infer",
    Operation.PREDICT: "/v1/models/{}:predict",
    Operation.MODEL: "/v2/models/{}",
    Operation.MODEL_READY: "/v2/models/{}/ready",
    Operation.CONFIGURATION: "/v2/models/{}/config",
    Operation.STATISTICS: "/v2/models/{}/stats",
}
_BEGINNINGS: Final[Mapping[Operation, str]] = {
    Operation.INFER: '{{"model_name":"{name}","model_version":"{version}"',
    Operation.MODEL: '{{"name":"{name}","versions":["{version}"]',
    Operation.CONFIGURATION: '{{"name":"{name}"',
    Operation.STATISTICS: '{{"model_stats":[{{"name":"{name}","version":"{version}"',
}
"""How a frontend's answer begins, by the name of the model and its version."""


class VersionAwayError(Exception):
    """A version has not answered; the message follows its name."""


class _EventRelay:
    """Sends the events of a version on to the client."""

    def __init__(self, send: Callable[[HttpAnswer], None], version: str) -> None:
        self.has_begun = False
        self._send = send
        self._headers = {**EVENT_HEADERS, ANSWERED_BY: version}

    def take(self, event: StreamEvent) -> None:
        self.has_begun = True
        self._send(HttpAnswer(200, event.encoded, self._headers))


class VersionForwarder:
    """The other versions of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._name = session.key.partition("/")[2]

    def choice(
        self, head: HttpHead, operation: Operation, model: str | None, version: str | None
    ) -> ChosenVersion | None:
        """The other version that answers a request; None if this session does."""
        routes = self._session.versions
        if not routes or model not in (None, self._name):
            return None
        return choice(routes, operation, version, head.headers, random.random())

    async def reply(
        self,
        head: HttpHead,
        operation: Operation,
        body: Body,
        chosen: ChosenVersion,
        send: Callable[[HttpAnswer], None] | None = None,
    ) -> HttpReply | None:
        """The version's answer; None if this session has to answer in its place.

        `send` asks for an event stream, and receives all events but the last one.
        Raises RequestError (503) if the client has chosen a version that does not answer, and BodyMemoryError if too
        many bytes wait for answers.
        """
        route = chosen.route
        relay = None if send is None else _EventRelay(send, route.name)
        try:
            reply = await self.exchange(head, operation, body, route, relay)
        except VersionAwayError as error:
            logger.warning("session %s: %s %s", self._session.key, route.label, error)
            falls_back = not chosen.explicit and not (relay is not None and relay.has_begun)
            self._count(route, "fallback" if falls_back else "failed")
            if falls_back:
                return None
            raise RequestError(503, f"{route.label} {error}", RETRY_AFTER_SECONDS) from None
        if reply.status in _FALL_BACK and not chosen.explicit:
            self._count(route, "fallback")
            return None
        self._count(route, "answered")
        return _renamed(reply, operation, route, self._name)

    async def exchange(
        self, head: HttpHead, operation: Operation, body: Body, route: VersionRoute, relay: _EventRelay | None = None
    ) -> HttpReply:
        """The version's answer as it is, or the last event of a stream if there is a `relay` for the others.

        Raises VersionAwayError, and BodyMemoryError if too many bytes wait.
        """
        if not route.url:
            raise VersionAwayError(route.problem)
        method = "GET" if head.method == "HEAD" else head.method
        url = route.url + _PATHS[operation].format(route.session)
        headers = [*_sent(head), (FORWARDED, self._session.key)]
        if relay is not None:
            headers.append(("accept", EVENT_STREAM))
        client = self._session.versions_client
        with self._session.bodies.reading() as waiting:
            waiting.grew(len(body))
            try:
                async with (
                    asyncio.timeout(route.answer_seconds),
                    begun_reply(client, method, url, headers, bytes(body)) as begun,
                ):
                    reply = await (whole_reply(begun) if relay is None else _relayed(begun, relay))
            except TimeoutError:
                raise VersionAwayError(f"has not answered within {route.answer_seconds:g} s") from None
            except httpx.HTTPError:
                raise VersionAwayError("cannot be reached") from None
            except TooLongError as error:
                raise VersionAwayError(f"gives an answer that cannot be used: {error}") from None
        if not _is_of_frontend(reply):
            raise VersionAwayError(f"has no frontend: the answer is a text with status {reply.status}")
        return reply

    def _count(self, route: VersionRoute, result: str) -> None:
        self._session.meter.versions[f"{route.name}/{result}"] += 1


def _sent(head: HttpHead) -> Iterator[tuple[str, str]]:
    for name, value in head.headers.items():
        if name in _SENT or name.startswith(EVENT_PREFIX):
            yield name, value
    for value in head.credentials:
        yield CREDENTIALS, value


async def _relayed(begun: BegunReply, relay: _EventRelay) -> HttpReply:
    """The last event of a stream once the others are sent on; an answer without events is whole."""
    if begun.status != 200 or _content_type(begun.headers) != EVENT_STREAM:
        return await whole_reply(begun)
    reader, last = EventReader(), None
    async for part in begun.parts:
        for event in reader.events(part):
            if last is None and event.kind in (ANSWER, ERROR):
                last = event
            elif last is None:
                relay.take(event)
    if last is None:
        raise VersionAwayError("gives an answer that cannot be used: its event stream has no last event")
    return HttpReply(begun.status, EVENT_HEADERS, last.encoded)


def _content_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_of_frontend(reply: HttpReply) -> bool:
    return _content_type(reply.headers) in _TYPES_OF_FRONTENDS and (200 <= reply.status < 300 or reply.status >= 400)


def _renamed(reply: HttpReply, operation: Operation, route: VersionRoute, model: str) -> HttpReply:
    """The answer for clients: it names the model and the version that they know."""
    headers = {
        name: value
        for name, value in reply.headers.items()
        if value.isascii() and (name in _RETURNED or name.startswith(EVENT_PREFIX))
    }
    headers[ANSWERED_BY] = route.name
    pattern = _BEGINNINGS.get(operation, "")
    if pattern and _content_type(reply.headers) == EVENT_STREAM:
        pattern = f"event: {ANSWER}\ndata: {pattern}"
    theirs = pattern.format(name=route.session, version=MODEL_VERSION).encode()
    if not theirs or not reply.body.startswith(theirs):
        return reply._replace(headers=headers)
    ours = pattern.format(name=model, version=route.name).encode()
    length = digits(headers.get(HEADER_LENGTH, ""))
    if length is not None:
        headers[HEADER_LENGTH] = str(length + len(ours) - len(theirs))
    return HttpReply(reply.status, headers, ours + reply.body[len(theirs) :])
