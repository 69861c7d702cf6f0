"""Calls the servers that answer for modules with an endpoint: one HTTP request for each sample."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

import httpx

from partita_api.session.endpoint import EndpointSource
from partita_runtime.execution.executor import Array
from partita_runtime.models.policy import policy_here
from partita_runtime.serving.protocol.endpoint_messages import request_for, tensors_of
from partita_runtime.serving.protocol.inference_client import AnswerError
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason
from partita_runtime.serving.transport.bounded_http import TooLongError, exchange, http_client
from partita_runtime.serving.transport.clock import now_micros

logger = logging.getLogger(__name__)

_SHOWN_BYTES: Final = 300
"""Of an answer that is an error, in the log. Clients do not see it: it may say more than they may know."""
_REFUSALS: Final = frozenset({429, 503})
"""The server has too much to do."""


class EndpointError(Exception):
    """An endpoint cannot be used at all; the message says why and what to do."""


class EndpointCaller(Protocol):
    """The owner of the calls; called on the event loop."""

    def is_unneeded(self, sub_id: int) -> bool:
        """Whether a waiting call need not be made: its request has ended, or its answer would be too late."""

    def endpoint_input(self, sub_id: int) -> Array:
        """The sample of a call that is about to be made, without a batch dimension."""

    def skipped(self, sub_id: int) -> None:
        """A call was not needed any more and is not made."""

    def endpoint_answered(self, sub_id: int, outputs: Sequence[Array]) -> None:
        """The tensors that answer a call."""

    def endpoint_failed(self, sub_id: int, error: UnservedError) -> None:
        """A call has failed."""

    def endpoint_took(self, module: str, micros: int) -> None:
        """A call was answered after so long, with the time that it waited for a place; or was given up after it."""


class Endpoint:
    """One module's server. Calls beyond `maxConcurrent` wait, in order of arrival."""

    def __init__(self, module: str, source: EndpointSource, caller: EndpointCaller) -> None:
        """Raises EndpointError if the platform does not allow the URL, or there is no token."""
        self._module = module
        self._source = source
        self._caller = caller
        self._waiting: deque[int] = deque()
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._began: dict[int, int] = {}
        """When waiting and made calls began (`now_micros`)."""
        if problem := policy_here().endpoint_problem(source.url):
            raise EndpointError(f"module {module!r}: {problem}")
        self._client = http_client(source.max_concurrent, self._headers())

    def call(self, sub_id: int) -> None:
        """Call the server, as soon as there is a place; the caller receives the result."""
        self._began[sub_id] = now_micros()
        self._waiting.append(sub_id)
        self._fill()

    def cancel(self, sub_id: int) -> None:
        """The result is not needed any more."""
        if sub_id in self._calls:
            self._calls[sub_id].cancel()

    def tick(self) -> None:
        """To be called a few times a second: skips waiting calls that are not needed any more."""
        waiting, self._waiting = self._waiting, deque()
        for sub_id in waiting:
            if self._caller.is_unneeded(sub_id):
                self._skip(sub_id)
            else:
                self._waiting.append(sub_id)

    def close(self) -> None:
        """End all calls, without a result."""
        self._waiting.clear()
        for task in self._calls.values():
            task.cancel()
        # Its connections end with the calls; the pool of idle ones needs the event loop.
        asyncio.get_running_loop().create_task(self._client.aclose())

    def _headers(self) -> dict[str, str]:
        variable = self._source.token_variable
        if variable is None:
            return {}
        token = os.environ.get(variable, "").strip()
        if not token:
            raise EndpointError(
                f"module {self._module!r}: the frontend has no environment variable {variable} with the token for "
                f"{self._source.url}; set it in podTemplate, from a Secret"
            )
        return {"Authorization": f"Bearer {token}"}

    def _fill(self) -> None:
        while self._waiting and len(self._calls) < self._source.max_concurrent:
            sub_id = self._waiting.popleft()
            if self._caller.is_unneeded(sub_id):
                self._skip(sub_id)
                continue
            task = asyncio.get_running_loop().create_task(self._call(sub_id))
            self._calls[sub_id] = task
            # A task that is cancelled before its first step runs no `finally`.
            task.add_done_callback(partial(self._ended, sub_id))

    async def _call(self, sub_id: int) -> None:
        try:
            outputs = await self._answer(self._caller.endpoint_input(sub_id))
        except UnservedError as error:
            self._caller.endpoint_failed(sub_id, error)
        else:
            self._caller.endpoint_took(self._module, now_micros() - self._began[sub_id])
            self._caller.endpoint_answered(sub_id, outputs)

    def _ended(self, sub_id: int, task: asyncio.Task[None]) -> None:
        del self._calls[sub_id]
        waited = now_micros() - self._began.pop(sub_id)
        if task.cancelled() and waited > self._source.max_millis * 1000:
            # Nobody waits for it any more; without it, a server that does not answer would seem fast.
            self._caller.endpoint_took(self._module, waited)
        self._fill()

    def _skip(self, sub_id: int) -> None:
        del self._began[sub_id]
        self._caller.skipped(sub_id)

    async def _answer(self, sample: Array) -> Sequence[Array]:
        """Raises UnservedError."""
        try:
            request = request_for(self._source, sample)
            url = self._source.url.rstrip("/") + request.path
            sent = request.payload
            status, headers, body = await exchange(self._client, "POST", url, sent.headers.items(), sent.body)
            if status in _REFUSALS:
                raise self._failure(UnservedReason.OVERLOAD, f"its endpoint refused the call with status {status}")
            if not httpx.codes.is_success(status):
                logger.warning("%s answers %d: %s", url, status, ascii(body[:_SHOWN_BYTES].decode(errors="replace")))
                raise self._failure(UnservedReason.BROKEN, f"its endpoint answered with status {status}")
            return tensors_of(self._source, headers, body)
        except (AnswerError, TooLongError) as error:
            raise self._failure(UnservedReason.BROKEN, f"the answer of its endpoint cannot be used: {error}") from None
        except httpx.HTTPError as error:
            logger.warning("%s cannot be reached: %s", self._source.url, str(error) or type(error).__name__)
            raise self._failure(UnservedReason.UNAVAILABLE, "its endpoint cannot be reached") from None

    def _failure(self, reason: UnservedReason, message: str) -> UnservedError:
        return UnservedError(reason, f"module {self._module!r} failed: {message}")
