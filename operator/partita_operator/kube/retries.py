"""Requests to the API server that are repeated over its short absences, by the official client's rule of client-go."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubernetes.aio.utils.retry import Backoff, on_retry_after_error

from partita_operator.kube.errors import ApiError, ApiUnreachableError, KubernetesError, unknown_field

T = TypeVar("T")

PATIENCE: Final = Backoff(steps=5, duration=0.2, factor=2.2)
"""Attempts, and the pauses between them in seconds: 0.2, 0.44, 0.97, 2.1. The work queue repeats what needs longer."""
MAX_PAUSE_S: Final = 10.0
"""Longest pause, whatever the server's Retry-After says."""
_RETRIED_CODES: Final = frozenset({409, 429, 500, 502, 503, 504})


class ApiServerUnavailableError(Exception):
    """The API server does not answer, or answers that it cannot now."""


async def retried(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of `call`, repeated on conflicts, on overload and while the server is away.

    Raises ApiServerUnavailableError after the last attempt, and ApiError for what repeating cannot help.
    """
    try:
        # The configuration's own `retries` leaves out PATCH, which is how Partita writes.
        found: T = await on_retry_after_error(PATIENCE, _may_pass, call, sleep_func=_pause)
    except KubernetesError as error:
        if not _may_pass(error):
            raise
        raise ApiServerUnavailableError(f"The Kubernetes API server failed several times: {error}") from error
    return found


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ApiError):
        return error.status in _RETRIED_CODES and not unknown_field(error)
    return isinstance(error, ApiUnreachableError)


async def _pause(seconds: float) -> None:
    await asyncio.sleep(min(seconds, MAX_PAUSE_S))
