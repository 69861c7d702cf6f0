"""A session's HTTP interface, for every HTTP server: inference, health, metadata, and measurements with a token."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita_runtime.serving.authentication.authenticator import CREDENTIALS, UnauthenticatedError
from partita_runtime.serving.deploy.monitoring_access import may_monitor
from partita_runtime.serving.ingress.http_answers import HttpAnswer, HttpClient, failure, json_answer, too_large
from partita_runtime.serving.ingress.http_routes import INFERENCE, HttpHead, Operation, not_found, route_of
from partita_runtime.serving.ingress.inference.http_clients import CopiedClient, EventClient, LoggedClient
from partita_runtime.serving.ingress.inference.http_formats import HttpFormat, Received, format_of
from partita_runtime.serving.ingress.inference.http_inference import HttpInference
from partita_runtime.serving.ingress.inference.image_request import with_tensors
from partita_runtime.serving.ingress.information import configuration, repository_index, statistics
from partita_runtime.serving.ingress.request_accounting import executor_for
from partita_runtime.serving.ingress.samples import sample_answer
from partita_runtime.serving.ingress.versions.choice import ChosenVersion
from partita_runtime.serving.ingress.versions.forwarding import VersionForwarder
from partita_runtime.serving.ingress.versions.shadowing import Shadowing
from partita_runtime.serving.protocol.cloud_events import STRUCTURED_TYPE, EventMode, event_mode
from partita_runtime.serving.protocol.event_stream import EVENT_STREAM, EventStream, asks_for_events, check_no_binary
from partita_runtime.serving.protocol.images import IMAGE_TYPES
from partita_runtime.serving.protocol.inference import (
    RETRY_AFTER_SECONDS,
    Body,
    InferRequest,
    RequestError,
    digits,
    model_metadata,
    server_metadata,
)
from partita_runtime.serving.protocol.oip import HEADER_LENGTH
from partita_runtime.serving.protocol.openapi.document import openapi
from partita_runtime.serving.protocol.triton import REFUSALS, asks_only_ready
from partita_runtime.serving.session.body_memory import BodyReading
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.telemetry.logged_events import V1, V2, Content
from partita_runtime.serving.telemetry.metrics import CONTENT_TYPE, metrics_text

CONTENT_TYPES: Final = (
    "application/json",
    "application/octet-stream",
    STRUCTURED_TYPE,
    *IMAGE_TYPES,
    "application/x-www-form-urlencoded",  # curl's default for any data
    "",
)
"""Content types of an inference request."""
_V1_TYPES: Final = ("application/json", STRUCTURED_TYPE, "application/x-www-form-urlencoded", "")
_INDEFINITE_TYPES: Final = frozenset({"application/json", "application/x-www-form-urlencoded", ""})
"""Content types that clients send with JSON, and also with binary tensors behind it."""
_NO_STREAM: Final = (
    f"an event stream answers requests of the Open Inference Protocol only: leave out Accept: {EVENT_STREAM}, or send "
    "POST v2/models/MODEL/infer without a CloudEvent"
)


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request whose head was accepted."""

    head: HttpHead
    operation: Operation
    content_type: str
    model: str | None = None
    version: str | None = None
    event: EventMode | None = None
    """How it is a CloudEvent; None if it is not."""
    streams: bool = False
    """Whether it asks for an event stream."""
    plan: str | None = None
    """The plan that executes a sample."""


class HttpService:
    """Answers requests for one session in two steps: `call` with the head, `begin` with the whole body."""

    def __init__(self, session: Session, monitoring_digest: str | None = None) -> None:
        """`monitoring_digest` is that of the token that reads measurements; None: they are not served, to anybody."""
        self._session = session
        self._name = session.key.partition("/")[2]
        self._monitoring_digest = monitoring_digest
        self._versions = VersionForwarder(session)
        self._shadows = Shadowing(session, self._versions)

    @property
    def settings(self) -> FrontendSettings:
        """The limits of a request's body."""
        return self._session.settings

    def reading(self) -> BodyReading:
        """Begin with a body that arrives in part; end it when it is complete."""
        return self._session.bodies.reading()

    def call(self, head: HttpHead) -> HttpCall:
        """Check a request's head. Raises RequestError if the request is refused before its body is read."""
        operation, model, version, plan = route_of(head, self._name)
        if operation in _OF_THE_OPERATOR:
            self._check_reader(head)
        if operation is Operation.CHECK and not self._session.answers_samples:
            raise not_found(head)
        content_type, mode, streams = "", None, False
        if operation in INFERENCE:
            content_type = _content_type(head, _V1_TYPES if operation is Operation.PREDICT else CONTENT_TYPES)
            mode = event_mode(head.headers, content_type)
            streams = asks_for_events(head.headers)
            if streams and (operation is Operation.PREDICT or mode is not None):
                raise RequestError(406, _NO_STREAM)
            if head.headers.get("content-encoding", "identity") != "identity":
                raise RequestError(400, "compressed request bodies are not supported")
        if operation is Operation.CHECK:
            content_type = _content_type(head, CONTENT_TYPES)
        length = digits(head.headers.get("content-length", "0"))
        if length is None or length > self.settings.max_request_bytes:
            raise too_large(self.settings)
        return HttpCall(head, operation, content_type, model, version, mode, streams, plan)

    def _check_reader(self, head: HttpHead) -> None:
        """Raises RequestError unless the request may read measurements, and send samples."""
        if self._monitoring_digest is None:
            raise not_found(head)
        if not may_monitor(head.headers.get(CREDENTIALS, ""), self._monitoring_digest):
            raise UnauthenticatedError(f"{head.path} needs the monitoring token of the session's namespace")

    def admit(self, call: HttpCall) -> None:
        """Check the client of a request, and count a request for information, before its body is read.

        Raises UnauthenticatedError if the client is not accepted, and RequestError (400) for what is never answered.
        """
        operation = call.operation
        if operation in _NOT_OF_CLIENTS:
            return
        if not self._session.clients.open:
            self._session.clients.check(call.head.credentials)
        if operation not in INFERENCE:
            self._session.meter.information[operation.value] += 1
        if operation in REFUSALS:
            raise RequestError(400, REFUSALS[operation])

    def begin(self, client: HttpClient, call: HttpCall, body: Body, arrived: int) -> None:
        """Answer a request whose head arrived at `arrived` (microseconds), also if it fails."""
        client = EventClient(client) if call.streams else client
        chosen = self._versions.choice(call.head, call.operation, call.model, call.version)
        if chosen is None:
            self._answer(client, call, body, arrived)
        else:
            client.began(asyncio.create_task(self._forward(client, call, body, arrived, chosen)))

    async def _forward(
        self, client: HttpClient, call: HttpCall, body: Body, arrived: int, chosen: ChosenVersion
    ) -> None:
        """Have another version answer."""
        try:
            send = client.part if call.streams else None
            reply = await self._versions.reply(call.head, call.operation, body, chosen, send)
        except Exception as error:
            client.answer(failure(error))
            return
        if reply is None:
            self._answer(client, call, body, arrived)
        else:
            client.answer(HttpAnswer(reply.status, reply.body, reply.headers))

    def _answer(self, client: HttpClient, call: HttpCall, body: Body, arrived: int) -> None:
        if self._session.versions and call.event is None:
            send = self._shadows.after(call.head, call.operation)
            client = CopiedClient(client, call.head, body, send) if send is not None else client
        try:
            if call.operation in INFERENCE:
                self._infer(client, call, body, arrived)
                return
            if call.operation is Operation.CHECK:
                self._execute_sample(client, call, body)
                return
            answer = self._inform(call, body)
        except Exception as error:
            answer = failure(error)
        client.answer(answer)

    def _infer(self, client: HttpClient, call: HttpCall, body: Body, arrived: int) -> None:
        executor = executor_for(self._session, call.model, call.version)
        format = format_of(call.operation is Operation.PREDICT, call.event)
        received = Received(body, call.content_type, call.head.headers, self.settings.max_json_bytes)
        requested = format.decode(received, executor.interface)
        if call.streams:
            check_no_binary(requested)
        logged = self._session.request_log.sampled(V1 if call.operation is Operation.PREDICT else V2)
        if logged is not None:
            logged.received(_logged_content(call, body))
            client = LoggedClient(client, logged)
        if requested.images:
            client.began(asyncio.create_task(self._infer_images(client, call, format, requested, executor, arrived)))
            return
        try:
            client.began(self._begun(client, call, format, requested, executor, arrived))
        except Exception as error:
            client.answer(failure(error))

    async def _infer_images(
        self,
        client: HttpClient,
        call: HttpCall,
        format: HttpFormat,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
    ) -> None:
        try:
            requested = await with_tensors(self._session, requested, executor, arrived, call.head.headers)
            executor = executor_for(self._session, call.model, call.version)
            # Nothing is awaited between the choice of the executor and the begin of the request.
            client.began(self._begun(client, call, format, requested, executor, arrived))
        except Exception as error:
            client.answer(failure(error))

    def _begun(
        self,
        client: HttpClient,
        call: HttpCall,
        format: HttpFormat,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
    ) -> HttpInference:
        stream = EventStream(requested) if call.streams else None
        return HttpInference(self._session, client, format, requested, executor, arrived, call.head.headers, stream)

    def _execute_sample(self, client: HttpClient, call: HttpCall, body: Body) -> None:
        executor = self._session.executor_of(call.plan or "")
        if executor is None:
            raise RequestError(503, f"plan {call.plan} cannot be executed here now", RETRY_AFTER_SECONDS)
        format = format_of(is_v1=False, mode=None)
        received = Received(body, call.content_type, call.head.headers, self.settings.max_json_bytes)
        requested = format.decode(received, executor.interface)
        client.began(asyncio.create_task(self._answer_sample(client, format, requested, executor)))

    async def _answer_sample(
        self, client: HttpClient, format: HttpFormat, requested: InferRequest, executor: EpochExecutor
    ) -> None:
        """Not counted, logged or copied: it is no request of a client."""
        try:
            if requested.images:
                requested = await self._session.images.decode(requested, executor.interface)
            tensors = await sample_answer(executor, requested)
            headers, content = format.encode(requested, executor.interface, tensors)
        except Exception as error:
            client.answer(failure(error))
        else:
            client.answer(HttpAnswer(200, content, headers))

    def _inform(self, call: HttpCall, body: Body) -> HttpAnswer:
        session = self._session
        match call.operation:
            case Operation.SERVER:
                return json_answer(server_metadata())
            case Operation.LIVE:
                return json_answer({"live": True})
            case Operation.MODEL:
                interface = executor_for(session, call.model, call.version).interface
                return json_answer(model_metadata(interface, [route.name for route in session.versions]))
            case Operation.CONFIGURATION:
                return json_answer(configuration(session, call.model, call.version))
            case Operation.STATISTICS:
                return json_answer(statistics(session, call.model, call.version))
            case Operation.INDEX:
                return json_answer(repository_index(session, asks_only_ready(body)))
            case Operation.V1_LIVE:
                return json_answer({"status": "alive"})
            case Operation.V1_MODELS:
                return json_answer({"models": [self._name]})
            case Operation.OPENAPI:
                return json_answer(openapi(executor_for(session).interface, call.head.base_url))
            case Operation.SIGNALS:
                return json_answer(session.signals().model_dump(mode="json", by_alias=True))
            case Operation.METRICS:
                return HttpAnswer(200, metrics_text(session.signals(), session.total), {"content-type": CONTENT_TYPE})
        if call.operation in (Operation.MODEL_READY, Operation.V1_MODEL):
            executor_for(session, call.model, call.version)
        name = {"name": self._name} if call.operation is Operation.V1_MODEL else {}
        return json_answer({**name, "ready": session.ready}, 200 if session.ready else 503)


def _logged_content(call: HttpCall, body: Body) -> Content:
    """A request as the request log has it, without any other of its headers: they have the client's credentials."""
    content_type, length = call.content_type, None
    if call.operation is not Operation.PREDICT:
        length = digits(call.head.headers.get(HEADER_LENGTH, ""))
    if content_type in _INDEFINITE_TYPES:
        content_type = "application/json" if length is None else "application/octet-stream"
    return Content(body, content_type, length)


_OF_THE_OPERATOR: Final = {Operation.SIGNALS, Operation.METRICS, Operation.CHECK}
"""What clients must not ask for: it needs the monitoring token."""
_NOT_OF_CLIENTS: Final = frozenset({Operation.LIVE, Operation.V1_LIVE, Operation.READY, *_OF_THE_OPERATOR})
"""What load balancers read without credentials, and the operator and Prometheus with a token of their own."""


def _content_type(head: HttpHead, supported: Sequence[str]) -> str:
    """The body's content type. Raises RequestError (415) unless it is a supported one."""
    content_type = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in supported:
        raise RequestError(
            415, f"content type {content_type!r} is not supported; send one of {', '.join(filter(None, supported))}"
        )
    return content_type
