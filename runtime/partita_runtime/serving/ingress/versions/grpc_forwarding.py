"""Calls by gRPC for other versions of a session: sent on by HTTP, as requests with the same content."""

from collections.abc import Callable
from typing import Any, Final

from pydantic_core import from_json

from partita_runtime.serving.authentication.authenticator import CREDENTIALS
from partita_runtime.serving.deploy.version_routes import ANSWERED_BY
from partita_runtime.serving.ingress.http_routes import HttpHead, Operation
from partita_runtime.serving.ingress.versions.choice import ChosenVersion
from partita_runtime.serving.ingress.versions.forwarding import EVENT_PREFIX, VersionForwarder
from partita_runtime.serving.ingress.versions.shadowing import Answered, OwnAnswer, Shadowing
from partita_runtime.serving.protocol.grpc_as_http import http_answer, http_request, infer_response
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import RETRY_AFTER_SECONDS, RequestError, digits
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.transport.bounded_http import HttpReply

_RESPONSES: Final = {
    Operation.MODEL: lambda body: MESSAGES["ModelMetadataResponse"](**body),
    Operation.CONFIGURATION: lambda body: MESSAGES["ModelConfigResponse"](config=body),
    Operation.STATISTICS: lambda body: MESSAGES["ModelStatisticsResponse"](**body),
}
"""The message with the content of a body by HTTP."""


class GrpcForwarder:
    """The other versions of one session, for calls by gRPC."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._versions = VersionForwarder(session)
        self._shadows = Shadowing(session, self._versions)

    async def infer(self, message: Any, context: Any) -> Any | None:
        """The ModelInferResponse of another version; None if this session answers.

        Raises RequestError if the version refuses the call, or does not answer and the client has chosen it.
        """
        if not self._session.versions:
            return None
        head = _head(context)
        chosen = self._chosen(head, Operation.INFER, message.model_name, message.model_version)
        if chosen is None:
            return None
        left = context.time_remaining()
        headers, body = http_request(message, None if left is None else max(1, int(left * 1e6)))
        head = HttpHead("POST", head.path, {**head.headers, **headers}, credentials=head.credentials)
        reply = await self._versions.reply(head, Operation.INFER, body, chosen)
        if reply is None:
            return None
        _check(reply, context)
        try:
            return infer_response(reply.headers, reply.body)
        except ValueError:
            raise _unusable(chosen) from None

    def after(self, message: Any, context: Any) -> Callable[[Any], None] | None:
        """What to do with this session's ModelInferResponse to a call; None if the call has no copies."""
        if not self._session.versions:
            return None
        head = _head(context)
        send = self._shadows.after(head, Operation.INFER)
        if send is None:
            return None

        def copy(response: Any) -> None:
            send(max(message.ByteSize(), response.ByteSize()), lambda: _answered(head, message, response))

        return copy

    async def inform(self, operation: Operation, name: str, version: str, context: Any) -> Any | None:
        """The answer of another version to a request for information; None if this session answers.

        Raises RequestError like `infer`.
        """
        if not self._session.versions:
            return None
        head = _head(context)
        chosen = self._chosen(head, operation, name, version)
        if chosen is None:
            return None
        reply = await self._versions.reply(head, operation, b"", chosen)
        if reply is None:
            return None
        if operation is Operation.MODEL_READY:
            return MESSAGES["ModelReadyResponse"](ready=reply.status == 200)
        _check(reply, context)
        try:
            return _RESPONSES[operation](from_json(reply.body))
        except (ValueError, TypeError):
            raise _unusable(chosen) from None

    def _chosen(self, head: HttpHead, operation: Operation, model: str, version: str) -> ChosenVersion | None:
        return self._versions.choice(head, operation, model or None, version or None)


def _head(context: Any) -> HttpHead:
    """The call's metadata, as a request by HTTP has them. A call is no CloudEvent, whatever its metadata are."""
    metadata = [(key, value) for key, value in context.invocation_metadata() or () if isinstance(value, str)]
    headers = {key: value for key, value in metadata if key != CREDENTIALS and not key.startswith(EVENT_PREFIX)}
    return HttpHead("GET", "", headers, credentials=tuple(value for key, value in metadata if key == CREDENTIALS))


def _answered(head: HttpHead, message: Any, response: Any) -> Answered:
    """A call and its answer as by HTTP. No deadline is left to keep: the client has its answer."""
    headers, body = http_request(message, None)
    copied = HttpHead("POST", head.path, {**head.headers, **headers}, credentials=head.credentials)
    return Answered(copied, body, OwnAnswer(*http_answer(response)))


def _check(reply: HttpReply, context: Any) -> None:
    """Raise RequestError with what the version says, unless it has answered."""
    named = [(name, reply.headers[name]) for name in (ANSWERED_BY, "www-authenticate") if name in reply.headers]
    context.set_trailing_metadata(tuple(named))
    if reply.status == 200:
        return
    try:
        message = str(from_json(reply.body)["error"])
    except (ValueError, KeyError, TypeError):
        message = f"the version has answered with status {reply.status}"
    raise RequestError(reply.status, message, digits(reply.headers.get("retry-after", "")))


def _unusable(chosen: ChosenVersion) -> RequestError:
    return RequestError(503, f"{chosen.route.label} gives an answer that cannot be used", RETRY_AFTER_SECONDS)
