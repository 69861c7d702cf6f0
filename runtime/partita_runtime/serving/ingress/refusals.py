"""Turns the session's errors into those of the protocol, with an HTTP status."""

from collections.abc import Mapping
from typing import Final

from partita_runtime.serving.protocol.inference import RETRY_AFTER_SECONDS, RequestError
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.unserved import Reason, UnservedError

_STATUS: Final[Mapping[Reason, int]] = {
    Reason.TOO_LATE: 504,
    Reason.OVERLOAD: 503,
    Reason.NO_REPLICAS: 503,
    Reason.UNAVAILABLE: 503,
    Reason.NO_ANSWER: 504,
    Reason.BROKEN: 500,
}


def refused(error: UnservedError | BodyMemoryError) -> RequestError:
    """The error that the client receives."""
    status = 503 if isinstance(error, BodyMemoryError) else _STATUS[error.reason]
    return RequestError(status, str(error), RETRY_AFTER_SECONDS if status == 503 else None)
