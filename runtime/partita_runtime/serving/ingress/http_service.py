"""What a session answers by HTTP, whichever server has read the request: inference, signals, metrics."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from partita_runtime.execution.executor import Array
from partita_runtime.serving.ingress.pending_request import PendingRequest
from partita_runtime.serving.ingress.refusals import refused
from partita_runtime.serving.ingress.request_accounting import executor_for
from partita_runtime.serving.protocol.images import IMAGE_TYPES, image_request, is_image, with_images
from partita_runtime.serving.protocol.inference import Body, InferRequest, RequestError, model_metadata, server_metadata
from partita_runtime.serving.protocol.oip import HEADER_LENGTH, decode_request, encode_answer
from partita_runtime.serving.protocol.openapi_document import openapi
from partita_runtime.serving.session.body_memory import BodyReading
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.session.unserved import UnservedError
from partita_runtime.serving.telemetry.metrics import CONTENT_TYPE, metrics_text

logger = logging.getLogger(__name__)

CONTENT_TYPES: Final = (
    "application/json",
    "application/octet-stream",
    *IMAGE_TYPES,
    "application/x-www-form-urlencoded",  # what curl says of any data, if it is not told better
    "",
)
"""What the body of an inference request may be."""


class Operation(Enum):
    """What a request is for."""

    INFER = auto()
    SERVER = auto()
    LIVE = auto()
    READY = auto()
    MODEL = auto()
    MODEL_READY = auto()
    OPENAPI = auto()
    SIGNALS = auto()
    METRICS = auto()


@dataclass(frozen=True, slots=True)
class HttpHead:
    """A request as far as it is known before its body."""

    method: str
    path: str
    """Within the session, such as /v2/models/traffic/infer; percent-decoded, without a query."""
    headers: Mapping[str, str]
    """By name in lower case."""
    base_url: str = ""
    """What the client has in front of the path, such as /default/traffic."""


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that may have its body read, and be answered."""

    head: HttpHead
    operation: Operation
    content_type: str
    model: str | None = None
    version: str | None = None


class HttpAnswer(NamedTuple):
    """An answer to a request."""

    status: int
    content: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    close: bool = False
    """Whether the connection is of no use any more: there is more of the request than anybody wants to read."""


class CancellableRequest(Protocol):
    """A request that will be answered."""

    def cancel(self) -> object:
        """Nobody waits for the answer any more, and none will come."""


class HttpClient(Protocol):
    """Who is answered; called on the event loop."""

    def began(self, request: CancellableRequest) -> None:
        """The answer will take time, in which the request may be cancelled."""

    def answer(self, answer: HttpAnswer) -> None:
        """The answer, once."""


class HttpService:
    """Answers requests for one session, in two steps: `call` once the head is there, `begin` with the whole body."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def settings(self) -> FrontendSettings:
        """What bounds a request's body."""
        return self._session.settings

    def reading(self) -> BodyReading:
        """For a request's body that does not come at once; it must be ended."""
        return self._session.bodies.reading()

    def call(self, head: HttpHead) -> HttpCall:
        """What the request is for. Raises RequestError if it is refused, whatever its body says."""
        operation, model, version = _operation(head)
        content_type = ""
        if operation is Operation.INFER:
            content_type = _content_type(head)
            if head.headers.get("content-encoding", "identity") != "identity":
                raise RequestError(400, "compressed request bodies are not supported")
        length = head.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.settings.max_request_bytes:
            raise too_large(self.settings)
        return HttpCall(head, operation, content_type, model, version)

    def begin(self, client: HttpClient, call: HttpCall, body: Body, arrived: int) -> None:
        """Have a request answered whose head was there at `arrived` (microseconds), errors included."""
        try:
            if call.operation is Operation.INFER:
                self._infer(client, call, body, arrived)
                return
            answer = self._tell(call)
        except Exception as error:
            answer = _told(error)
        client.answer(answer)

    def _infer(self, client: HttpClient, call: HttpCall, body: Body, arrived: int) -> None:
        executor = executor_for(self._session, call.model, call.version)
        if is_image(call.content_type, body):
            wanted = image_request(body, executor.interface)
        else:
            wanted = decode_request(body, call.head.headers.get(HEADER_LENGTH), executor.interface)
        if wanted.images:
            client.began(asyncio.create_task(self._infer_images(client, call, wanted, executor, arrived)))
        else:
            client.began(_HttpInference(self._session, client, call, wanted, executor, arrived))

    async def _infer_images(
        self, client: HttpClient, call: HttpCall, wanted: InferRequest, executor: EpochExecutor, arrived: int
    ) -> None:
        try:
            wanted = await with_images(wanted, executor.interface)
            executor = executor_for(self._session, call.model, call.version)
            # Nothing is awaited between choosing the executor and its having the request.
            client.began(_HttpInference(self._session, client, call, wanted, executor, arrived))
        except Exception as error:
            client.answer(_told(error))

    def _tell(self, call: HttpCall) -> HttpAnswer:
        session = self._session
        match call.operation:
            case Operation.SERVER:
                return _json(server_metadata())
            case Operation.LIVE:
                return _json({"live": True})
            case Operation.MODEL:
                return _json(model_metadata(executor_for(session, call.model, call.version).interface))
            case Operation.OPENAPI:
                return _json(openapi(executor_for(session).interface, call.head.base_url))
            case Operation.SIGNALS:
                return _json(session.signals().model_dump(mode="json", by_alias=True))
            case Operation.METRICS:
                return HttpAnswer(200, metrics_text(session.signals(), session.total), {"content-type": CONTENT_TYPE})
        if call.operation is Operation.MODEL_READY:
            executor_for(session, call.model, call.version)
        return _json({"ready": session.ready}, 200 if session.ready else 503)


class _HttpInference(PendingRequest):
    """A request that came by HTTP."""

    __slots__ = ("_client",)

    def __init__(
        self,
        session: Session,
        client: HttpClient,
        call: HttpCall,
        wanted: InferRequest,
        executor: EpochExecutor,
        arrived: int,
    ) -> None:
        self._client = client
        super().__init__(session, wanted, executor, arrived, call.head.headers)

    def encoded(self, wanted: InferRequest, executor: EpochExecutor, tensors: dict[str, Array]) -> HttpAnswer:
        headers, content = encode_answer(wanted, executor.interface, tensors)
        return HttpAnswer(200, content, headers)

    def give(self, answer: HttpAnswer) -> None:
        self._client.answer(answer)

    def refuse(self, error: Exception) -> None:
        self._client.answer(_told(error))


_OF_SERVER: Final[Mapping[str, Operation]] = {
    "v2": Operation.SERVER,
    "v2/health/live": Operation.LIVE,
    "v2/health/ready": Operation.READY,
    "openapi.json": Operation.OPENAPI,
    "partita/signals": Operation.SIGNALS,
    "partita/metrics": Operation.METRICS,
}
_OF_MODEL: Final[Mapping[str, Operation]] = {
    "": Operation.MODEL,
    "ready": Operation.MODEL_READY,
    "infer": Operation.INFER,
}


def _told(error: Exception) -> HttpAnswer:
    if isinstance(error, UnservedError):
        return refusal(refused(error))
    if isinstance(error, RequestError):
        return refusal(error)
    logger.error("a request broke the frontend", exc_info=error)
    return _json({"error": "internal error"}, 500)


def refusal(error: RequestError) -> HttpAnswer:
    """The answer that says what is wrong."""
    headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
    return _json({"error": str(error)}, error.status, headers, close=error.status in (408, 413, 415))


def too_large(settings: FrontendSettings) -> RequestError:
    """What is said of a body that is not read any further."""
    return RequestError(413, f"the request's body must not be larger than {settings.max_request_bytes} bytes")


def too_slow(settings: FrontendSettings) -> RequestError:
    """What is said of a body that is not waited for any longer."""
    return RequestError(408, f"the request's body did not arrive within {settings.body_seconds:g} s")


def _operation(head: HttpHead) -> tuple[Operation, str | None, str | None]:
    """With the model and the version that are request for. Raises RequestError for what there is not (404, 405)."""
    parts, model, version = head.path.strip("/").split("/"), None, None
    if parts[:2] != ["v2", "models"] or len(parts) == 2:
        operation = _OF_SERVER.get("/".join(parts))
    else:
        model, parts = parts[2], parts[3:]
        if parts[:1] == ["versions"] and len(parts) > 1:
            version, parts = parts[1], parts[2:]
        operation = _OF_MODEL.get("/".join(parts))
    if operation is None:
        raise RequestError(404, f"{head.method} {head.path}: Not Found")
    if head.method not in (("POST",) if operation is Operation.INFER else ("GET", "HEAD")):
        raise RequestError(405, f"{head.method} {head.path}: Method Not Allowed")
    return operation, model, version


def _content_type(head: HttpHead) -> str:
    """What the body is said to be. Raises RequestError (415) for what is not taken."""
    content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in CONTENT_TYPES:
        raise RequestError(
            415, f"content type {content_type!r} is not supported; send one of {', '.join(filter(None, CONTENT_TYPES))}"
        )
    return content_type


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None, close: bool = False) -> HttpAnswer:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return HttpAnswer(status, text, {"content-type": "application/json", **(headers or {})}, close)
