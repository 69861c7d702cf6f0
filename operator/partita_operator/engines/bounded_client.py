"""HTTP requests to servers that may run code of sessions: bounded in bytes and time, with pauses after silence."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx

from partita_operator.engines.circuit_breaker import CircuitBreaker

_IDENTITY: Final = "identity"


class NoAnswerError(Exception):
    """There is no usable answer; the message says why, without what the server sent."""


class SilentServerError(NoAnswerError):
    """The server did not complete its answer in time."""


@dataclass(frozen=True)
class Answer:
    """A complete answer."""

    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is a success."""
        return httpx.codes.is_success(self.status)

    def json(self) -> Any:
        """The body as JSON. Raises NoAnswerError if it is not JSON, or nested too deeply to be an answer."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise NoAnswerError("the answer is not JSON") from error


class BoundedClient:
    """An HTTP client for one task. It follows no redirects, uses no proxy, and decompresses nothing."""

    def __init__(
        self,
        base_url: str = "",
        *,
        seconds: float,
        most_bytes: int,
        headers: Mapping[str, str] = {},
        breaker: CircuitBreaker | None = None,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        """`seconds` limits a request from the connection to the last byte, `most_bytes` the body of its answer.

        The `breaker`, if any, refuses requests for a while after the server was silent. `verify` says how certificates
        are checked; True for public authorities.
        """
        self._client = httpx.AsyncClient(
            base_url=base_url,
            headers={**headers, "Accept-Encoding": _IDENTITY},
            timeout=None,
            trust_env=False,
            verify=verify,
        )
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._breaker = breaker

    async def request(self, method: str, url: str, *, seconds: float | None = None, **options: Any) -> Answer:
        """Any request; `options` are httpx's. Raises NoAnswerError."""
        if self._breaker is None:
            return await self._timed(method, url, seconds, options)
        pause = self._breaker.seconds_left(time.monotonic())
        if pause > 0:
            raise SilentServerError(f"it was silent before; the next request follows in {pause:.0f} s")
        with self._breaker.attempt():
            try:
                answer = await self._timed(method, url, seconds, options)
            except SilentServerError:
                self._breaker.failed(time.monotonic())
                raise
        self._breaker.succeeded()
        return answer

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    async def _timed(self, method: str, url: str, seconds: float | None, options: Mapping[str, Any]) -> Answer:
        try:
            async with asyncio.timeout(self._seconds if seconds is None else seconds):
                return await self._complete(method, url, options)
        except TimeoutError as error:
            raise SilentServerError("there was no complete answer in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswerError(str(error) or type(error).__name__) from error

    async def _complete(self, method: str, url: str, options: Mapping[str, Any]) -> Answer:
        async with self._client.stream(method, url, **options) as answer:
            if answer.headers.get("Content-Encoding", _IDENTITY) != _IDENTITY:
                raise NoAnswerError("the answer is compressed, although the request forbids that")
            body = bytearray()
            async for part in answer.aiter_raw():
                body += part
                if len(body) > self._most_bytes:
                    raise NoAnswerError(f"the answer has more than {self._most_bytes:,} bytes")
            return Answer(answer.status_code, bytes(body))
