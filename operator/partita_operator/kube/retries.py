"""Calls of the API server that survive its short absences."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import httpx2
from lightkube import ApiError

T = TypeVar("T")

DELAYS_S: Final = (0.2, 0.5, 1.0, 2.0)
"""Pauses between attempts; whoever needs more patience repeats the whole pass."""
_RETRIED_CODES: Final = frozenset({409, 429, 500, 502, 503, 504})


class ApiServerUnavailableError(Exception):
    """The API server does not answer, or answers that it cannot now."""


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of `call`, which is repeated on conflicts, overload and a server that is away.

    Raises ApiServerUnavailableError after the last attempt, and ApiError for what repeating cannot help.
    """
    for delay in (*DELAYS_S, None):
        try:
            return await call()
        except httpx2.HTTPError as error:
            if isinstance(error, httpx2.HTTPStatusError) and error.response.status_code not in _RETRIED_CODES:
                raise
            if delay is None:
                raise ApiServerUnavailableError(f"The Kubernetes API server cannot serve: {error!r}") from error
            await asyncio.sleep(max(delay, _retry_after(error)))
    raise AssertionError("the last attempt returns or raises")


def is_missing(error: ApiError) -> bool:
    """Whether the object, or its namespace, is not there."""
    return error.status.code == 404


def _retry_after(error: httpx2.HTTPError) -> float:
    """Seconds that the server asks to wait, at most 10."""
    header = error.response.headers.get("Retry-After", "") if isinstance(error, httpx2.HTTPStatusError) else ""
    return min(10.0, float(header)) if header.isdigit() else 0.0
