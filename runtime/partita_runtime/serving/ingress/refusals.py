"""Turns the session's errors into those of the protocol, with an HTTP status."""

from collections.abc import Mapping
from typing import Final

from partita_runtime.serving.protocol.inference import RETRY_AFTER_SECONDS, RequestError
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason

_STATUS: Final[Mapping[UnservedReason, int]] = {
    UnservedReason.TOO_LATE: 504,
    UnservedReason.OVERLOAD: 503,
    UnservedReason.NO_REPLICAS: 503,
    UnservedReason.UNAVAILABLE: 503,
    UnservedReason.NO_ANSWER: 504,
    UnservedReason.BROKEN: 500,
    UnservedReason.REFUSED: 400,
}


def refused(error: UnservedError | BodyMemoryError) -> RequestError:
    """The error that the client receives."""
    status = 503 if isinstance(error, BodyMemoryError) else _STATUS[error.reason]
    return RequestError(status, str(error), RETRY_AFTER_SECONDS if status == 503 else None)
