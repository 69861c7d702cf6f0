"""What a request to the API server fails with. The official client's own exceptions do not leave this package."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

_UNKNOWN_FIELD: Final = re.compile(r"\.(?P<path>\S+): field not declared in schema")
_FAILED_TEST: Final = "the server rejected our request due to an error in our request"
"""What the server says of a JSON patch that it cannot apply to the object as it is."""


class KubernetesError(Exception):
    """A request to the API server failed."""


class ApiUnreachableError(KubernetesError):
    """The API server did not answer, or its answer was cut off."""


class ApiError(KubernetesError):
    """The API server answered with an error status. As text it is the server's message."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status code."""
        self.message = message
        self.headers = headers or {}


class NameTakenError(KubernetesError):
    """An object that belongs to somebody else has the name of one that Partita would write. It stays as it is."""


def is_missing(error: ApiError) -> bool:
    """Whether the object, its namespace or its kind does not exist."""
    return error.status == HTTPStatus.NOT_FOUND


def is_forbidden(error: ApiError) -> bool:
    """Whether the operator lacks the right."""
    return error.status == HTTPStatus.FORBIDDEN


def is_conflict(error: ApiError) -> bool:
    """Whether another version, another field manager or an object of the same name is in the way."""
    return error.status == HTTPStatus.CONFLICT


def is_failed_test(error: ApiError) -> bool:
    """Whether an operation `test` of a JSON patch does not hold. The object is as before."""
    return error.status == HTTPStatus.UNPROCESSABLE_ENTITY and _FAILED_TEST in error.message


def unknown_field(error: ApiError) -> str:
    """The field of an applied manifest that the kind's definition does not have, as a path; empty for other errors.

    The server answers with status 500, although repeating cannot help.
    """
    found = _UNKNOWN_FIELD.search(error.message)
    return found["path"] if found else ""


def refusal(what: str, error: ApiError, remedy: str) -> str:
    """That the server refuses to do `what`, and the `remedy` if the operator lacks the right."""
    if is_forbidden(error):
        return f"Partita may not {what}: {error}. {remedy}"
    return f"The Kubernetes API server refuses to {what}: {error}."


def api_error(error: Any) -> ApiError:
    """The official client's ApiException as an ApiError, with the message of the Status that the server sent."""
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):  # an unknown path, or a proxy: plain text, or nothing
        message = str(error.body or error.reason or "").strip()
    return ApiError(int(error.status or 0), str(message) or f"HTTP status {error.status}", error.headers)
