"""Sends a sample of the requests and answers of a frontend to a sink. Requests never wait for it."""

import asyncio
import logging
import math
import random
import time
import uuid
from collections import Counter, deque
from enum import StrEnum
from functools import partial
from typing import Final

import aiohttp

from partita_api.session.request_log import RequestLog, RequestLogMode
from partita_runtime.serving.telemetry.logged_events import Content, LoggedEvent, Origin, logged_event
from partita_runtime.serving.telemetry.sink_authorization import AuthorizationHeader, CredentialsError

logger = logging.getLogger(__name__)

CONNECTIONS: Final = 8
"""Most events that are being sent at the same time."""
SEND_SECONDS: Final = 10.0
"""How long it may take to send an event, with the connection and the answer."""
ANSWER_BYTES: Final = 64 * 1024
"""How much of an answer is read and discarded, to use the connection again. With more, it is closed."""
FINISH_SECONDS: Final = 5.0
"""How long events are still sent when the frontend ends."""
WARN_AGAIN_SECONDS: Final = 60.0


class Result(StrEnum):
    """What became of an event."""

    SENT = "sent"
    """The sink has answered with a status of success."""
    FAILED = "failed"
    """The sink cannot be reached, is too slow, or answers otherwise, or its credentials cannot be used. There is no
    second attempt."""
    DROPPED = "dropped"
    """Not sent: too many bytes wait for the sink, or the log was switched off."""


class RequestLogger:
    """The request log of one frontend; use it on one event loop."""

    def __init__(self, session_key: str, max_bytes: int, results: Counter[str]) -> None:
        """At most `max_bytes` of events wait or are being sent. `results` counts what became of them."""
        self._session_key = session_key
        self._max_bytes = max_bytes
        self._results = results
        self._rules: RequestLog | None = None
        self._share = 0.0
        """Of requests that are logged."""
        self._authorization: AuthorizationHeader | None = None
        """None: events are sent without credentials."""
        self._waiting: deque[LoggedEvent] = deque()
        self._sending: dict[asyncio.Task[bool], LoggedEvent] = {}
        self.waiting_bytes = 0
        """Of the events that wait or are being sent."""
        self._http: aiohttp.ClientSession | None = None
        self._warned = -math.inf

    def follow(self, rules: RequestLog | None) -> None:
        """Log by these rules from now on; None: nothing. A sink that is not named any more gets no further events."""
        if rules == self._rules:
            return
        if self._rules is not None and (rules is None or rules.sink != self._rules.sink):
            self._drop_all()
        self._rules = rules
        self._share = 0.0 if rules is None else rules.sample.fraction
        authorization = None if rules is None else rules.authorization
        self._authorization = None if authorization is None else AuthorizationHeader(authorization)

    @property
    def problem(self) -> str:
        """Why no event can be sent now; empty if the credentials of the sink, if it needs any, can be used."""
        try:
            self._credentials()
        except CredentialsError as error:
            return f"the request log sends no events: {error}."
        return ""

    def sampled(self, protocol: str) -> "RequestEvents | None":
        """For each request: where to log it; None if it is not to be logged."""
        if self._rules is None or random.random() >= self._share:
            return None
        return RequestEvents(self, Origin(str(uuid.uuid4()), self._session_key, protocol))

    def log(self, origin: Origin, content: Content, status: int | None = None) -> None:
        """Send the event of a request, or of an answer with this HTTP status, as soon as there is a connection."""
        rules = self._rules
        unwanted = RequestLogMode.RESPONSE if status is None else RequestLogMode.REQUEST
        if rules is None or rules.mode is unwanted:
            return
        event = logged_event(origin, content, time.time(), rules.max_body_bytes, status)
        if self.waiting_bytes + event.size > self._max_bytes:
            self._count(Result.DROPPED)
            return
        self.waiting_bytes += event.size
        self._waiting.append(event)
        self._fill()

    async def finish(self) -> None:
        """Send what waits, for FINISH_SECONDS at most, and log nothing any more."""
        deadline = time.monotonic() + FINISH_SECONDS
        while self._sending and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(self._sending, timeout=left)
        self.close()

    def close(self) -> None:
        """Log nothing any more; events that are not sent yet are dropped."""
        self.follow(None)

    def _fill(self) -> None:
        while self._rules is not None and self._waiting and len(self._sending) < CONNECTIONS:
            event = self._waiting.popleft()
            task = asyncio.get_running_loop().create_task(self._send(self._rules.sink, event))
            self._sending[task] = event
            # A task that is cancelled before its first step runs no `finally`.
            task.add_done_callback(partial(self._ended, event))

    def _ended(self, event: LoggedEvent, task: asyncio.Task[bool]) -> None:
        self._sending.pop(task, None)
        self.waiting_bytes -= event.size
        if task.cancelled():
            self._count(Result.DROPPED)
        elif (error := task.exception()) is not None:
            self._count(Result.FAILED)
            logger.error("the request log raised an unexpected error", exc_info=error)
        else:
            self._count(Result.SENT if task.result() else Result.FAILED)
        self._fill()

    def _count(self, result: Result) -> None:
        self._results[result.value] += 1

    async def _send(self, sink: str, event: LoggedEvent) -> bool:
        """Whether the sink has accepted the event."""
        try:
            headers = {**event.headers, **self._credentials()}
            async with self._client().post(
                sink, data=bytes(event.body), headers=headers, allow_redirects=False
            ) as answer:
                await _discard(answer)
                if 200 <= answer.status < 300:
                    return True
                self._warn(sink, f"answers with status {answer.status}")
        except TimeoutError:
            self._warn(sink, f"does not answer within {SEND_SECONDS:g} s")
        except CredentialsError as error:
            self._warn(sink, f"gets no events: {error}")
        except (aiohttp.ClientError, OSError) as error:
            self._warn(sink, f"cannot be used ({type(error).__name__})")
        return False

    def _credentials(self) -> dict[str, str]:
        """The header with the credentials of the sink, if it needs any. Raises CredentialsError."""
        return {} if self._authorization is None else {"Authorization": self._authorization.current()}

    def _client(self) -> aiohttp.ClientSession:
        """Without proxies of the environment, cookies, and decompression of answers."""
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS),
                timeout=aiohttp.ClientTimeout(total=SEND_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._http

    def _warn(self, sink: str, problem: str) -> None:
        now = time.monotonic()
        if now - self._warned >= WARN_AGAIN_SECONDS:
            self._warned = now
            logger.warning("session %s: the sink %s of its request log %s", self._session_key, sink, problem)

    def _drop_all(self) -> None:
        while self._waiting:
            self.waiting_bytes -= self._waiting.pop().size
            self._count(Result.DROPPED)
        for task in self._sending:
            task.cancel()
        if self._http is not None:
            asyncio.get_running_loop().create_task(self._http.close())
            self._http = None


class RequestEvents:
    """A request of the sample. Its two events have the same id."""

    __slots__ = ("_log", "_origin")

    def __init__(self, log: RequestLogger, origin: Origin) -> None:
        self._log, self._origin = log, origin

    def received(self, content: Content) -> None:
        """The request was read, and is valid."""
        self._log.log(self._origin, content)

    def answered(self, content: Content, status: int) -> None:
        """The request was answered with this HTTP status."""
        self._log.log(self._origin, content, status)


async def _discard(answer: aiohttp.ClientResponse) -> None:
    """Read an answer, unless it is too long."""
    length = 0
    async for part in answer.content.iter_any():
        length += len(part)
        if length > ANSWER_BYTES:
            answer.close()
            return
