"""Answers to requests by HTTP, those of errors among them, and who receives them."""

import json
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from partita_runtime.serving.authentication.authenticator import UnauthenticatedError
from partita_runtime.serving.ingress.http_routes import MethodError
from partita_runtime.serving.ingress.refusals import refused
from partita_runtime.serving.protocol.inference import RequestError
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.session.unserved_error import UnservedError

logger = logging.getLogger(__name__)


class HttpAnswer(NamedTuple):
    """An answer to a request, or a part of one that is an event stream."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    close: bool = False
    """Whether to close the connection: the rest of the request is not read."""
    encode_whole: "Callable[[], tuple[Mapping[str, str], bytes]] | None" = None
    """Of the end of an event stream: makes headers and content of the answer without events."""

    @property
    def whole(self) -> "HttpAnswer":
        """The answer without events."""
        if self.encode_whole is None:
            return self
        headers, content = self.encode_whole()
        return HttpAnswer(self.status, content, headers)


class CancellableRequest(Protocol):
    """A pending request."""

    def cancel(self) -> object:
        """The client has left; there will be no answer."""


class HttpClient(Protocol):
    """Receives the answer to a request; called on the event loop."""

    def began(self, request: CancellableRequest) -> None:
        """The request is pending and can be cancelled."""

    def part(self, part: HttpAnswer) -> None:
        """A part of an answer that is an event stream; the last one is its `answer`. Headers are those of the first."""

    def answer(self, answer: HttpAnswer) -> None:
        """The answer, once."""


def failure(error: Exception) -> HttpAnswer:
    """The answer to a request that raised this error. An unexpected one is written to the frontend's log."""
    if not isinstance(error, UnservedError | BodyMemoryError | RequestError):
        logger.error("a request raised an unexpected error", exc_info=error)
    return answer_to(error)


def answer_to(error: Exception) -> HttpAnswer:
    """The answer to a request that raised this error, which is not written to the frontend's log."""
    if isinstance(error, UnservedError | BodyMemoryError):
        return refusal(refused(error))
    return refusal(error) if isinstance(error, RequestError) else json_answer({"error": "internal error"}, 500)


def refusal(error: RequestError) -> HttpAnswer:
    """The answer with an error."""
    headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
    if isinstance(error, UnauthenticatedError):
        headers["www-authenticate"] = error.challenge
    if isinstance(error, MethodError):
        headers["allow"] = ", ".join(error.allowed)
    return json_answer({"error": str(error)}, error.status, headers, close=error.status in (408, 413, 415))


def too_large(settings: FrontendSettings) -> RequestError:
    """The error for a body that is too large."""
    return RequestError(413, f"the request's body must not be larger than {settings.max_request_bytes} bytes")


def too_slow(settings: FrontendSettings) -> RequestError:
    """The error for a body that does not arrive in time."""
    return RequestError(408, f"the request's body did not arrive within {settings.body_seconds:g} s")


def json_answer(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None, close: bool = False
) -> HttpAnswer:
    """An answer in JSON."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return HttpAnswer(status, text, {"content-type": "application/json", **(headers or {})}, close)
