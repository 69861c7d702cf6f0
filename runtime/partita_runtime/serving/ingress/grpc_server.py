"""The session's gRPC interface: the Open Inference Protocol on its own port."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import grpc
import numpy as np
from google.protobuf.message import DecodeError

from partita_runtime.execution.executor import Array
from partita_runtime.serving.authentication.authenticator import CREDENTIALS, MAX_CREDENTIALS, UnauthenticatedError
from partita_runtime.serving.ingress.http_answers import answer_to, too_slow
from partita_runtime.serving.ingress.http_routes import Operation
from partita_runtime.serving.ingress.inference.http_clients import logged_answer
from partita_runtime.serving.ingress.inference.image_request import with_tensors
from partita_runtime.serving.ingress.inference.pending_request import PendingRequest
from partita_runtime.serving.ingress.information import configuration, repository_index, statistics
from partita_runtime.serving.ingress.port import GRACE_SECONDS, PortEndpoint
from partita_runtime.serving.ingress.refusals import refused
from partita_runtime.serving.ingress.request_accounting import executor_for
from partita_runtime.serving.ingress.versions.grpc_forwarding import GrpcForwarder
from partita_runtime.serving.protocol import oip
from partita_runtime.serving.protocol.grpc_codec import decode_request, encode_answer, metadata_message, parse_request
from partita_runtime.serving.protocol.grpc_messages import MESSAGES, METHODS, SERVICE
from partita_runtime.serving.protocol.grpc_triton_messages import REFUSED_METHODS
from partita_runtime.serving.protocol.inference import InferRequest, RequestError, bytes_tensor, server_metadata
from partita_runtime.serving.protocol.inference_client import HEADER_LENGTH, encode_request
from partita_runtime.serving.protocol.triton import REFUSALS
from partita_runtime.serving.session.body_memory import BodyMemoryError
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.unserved_error import UnservedError
from partita_runtime.serving.telemetry.logged_events import V2, Content
from partita_runtime.serving.telemetry.request_log import RequestEvents
from partita_runtime.serving.transport.clock import now_micros

logger = logging.getLogger(__name__)

_STATUS: Final[Mapping[int, grpc.StatusCode]] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The gRPC code for an HTTP status; INTERNAL for all others."""

PROMPT_SECONDS: Final = 0.5
"""A message that takes longer to arrive counts as a body that has arrived in part."""


def grpc_endpoint(session: Session, host: str) -> PortEndpoint:
    """gRPC for `session` on `host`; the session publishes its address."""
    return PortEndpoint("gRPC", host, lambda: _GrpcServer(session), partial(setattr, session.addresses, "grpc"))


class _GrpcServer:
    """Answers for one session on one port."""

    def __init__(self, session: Session) -> None:
        options = [
            ("grpc.max_receive_message_length", session.settings.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", 2 * MAX_CREDENTIALS),  # else gRPC refuses some calls with long credentials
            ("grpc.so_reuseport", 0),  # else a frontend of another session could share the port
        ]
        self._server = grpc.aio.server(options=options)
        self._server.add_generic_rpc_handlers((_service(session),))

    async def listen(self, host: str, port: int) -> int:
        """Listen; the port. Raises OSError if the port is not available."""
        try:
            bound = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        except RuntimeError as error:
            raise OSError(str(error)) from None
        await self._server.start()
        return int(bound)

    async def close(self) -> None:
        """Take no more requests, and wait until pending ones are answered, for GRACE_SECONDS at most."""
        await self._server.stop(GRACE_SECONDS)


class _Methods:
    """The service's methods, named as in the protocol."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._versions = GrpcForwarder(session)

    async def ServerLive(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return MESSAGES["ServerLiveResponse"](live=True)

    async def ServerReady(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return MESSAGES["ServerReadyResponse"](ready=self._session.ready)

    async def ModelReady(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            other = await self._versions.inform(Operation.MODEL_READY, request.name, request.version, context)
            if other is not None:
                return other
            self._executor(request.name, request.version)
        except RequestError:
            return MESSAGES["ModelReadyResponse"](ready=False)
        return MESSAGES["ModelReadyResponse"](ready=self._session.ready)

    async def ServerMetadata(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return MESSAGES["ServerMetadataResponse"](**server_metadata())

    async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        other = await self._versions.inform(Operation.MODEL, request.name, request.version, context)
        if other is not None:
            return other
        return metadata_message(self._executor(request.name, request.version).interface)

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        other = await self._versions.inform(Operation.CONFIGURATION, request.name, request.version, context)
        if other is not None:
            return other
        config = configuration(self._session, request.name or None, request.version or None)
        return MESSAGES["ModelConfigResponse"](config=config)

    async def ModelStatistics(self, request: Any, context: Any) -> Any:  # noqa: N802
        other = await self._versions.inform(Operation.STATISTICS, request.name, request.version, context)
        if other is not None:
            return other
        measured = statistics(self._session, request.name or None, request.version or None)
        return MESSAGES["ModelStatisticsResponse"](**measured)

    async def RepositoryIndex(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return MESSAGES["RepositoryIndexResponse"](models=repository_index(self._session, request.ready))

    async def ModelInfer(self, _messages: Any, context: Any) -> Any:  # noqa: N802
        arrived = now_micros()
        message = await self._read(context)
        other = await self._versions.infer(message, context)
        if other is not None:
            return other
        copy = self._versions.after(message, context)
        answer = await self._answer(message, context, arrived)
        if copy is not None:
            copy(answer)  # later, on the event loop: gRPC sends the answer first
        return answer

    async def _answer(self, message: Any, context: Any, arrived: int) -> Any:
        executor = self._executor(message.model_name, message.model_version)
        metadata, remaining = _text_metadata(context), context.time_remaining()
        patience = None if remaining is None else max(1, now_micros() - arrived + int(remaining * 1e6))
        requested = decode_request(message, executor.interface).within(patience)
        logged = self._session.request_log.sampled(V2)
        if logged is None:
            return await self._infer(message, requested, executor, arrived, metadata)
        logged.received(_logged_content(requested))
        try:
            return await self._infer(message, requested, executor, arrived, metadata, logged)
        except Exception as error:
            answer = answer_to(error)
            logged.answered(logged_answer(answer.headers, answer.content), answer.status)
            raise

    async def _infer(
        self,
        message: Any,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
        metadata: Mapping[str, str],
        logged: RequestEvents | None = None,
    ) -> Any:
        if requested.images:
            requested = await with_tensors(self._session, requested, executor, arrived, metadata)
            executor = self._executor(message.model_name, message.model_version)
        request = _GrpcInference(self._session, requested, executor, arrived, metadata, logged)
        try:
            return await request.answer
        except asyncio.CancelledError:
            request.cancel()
            raise

    async def _read(self, context: Any) -> Any:
        """The call's message. gRPC does not say how much of a message has arrived, so a message that takes longer
        than PROMPT_SECONDS counts as one of the largest size.

        Raises BodyMemoryError if there is no room for it, and RequestError if it is late (408) or invalid (400).
        """
        settings = self._session.settings
        reading = asyncio.ensure_future(context.read())
        try:
            await asyncio.wait((reading,), timeout=PROMPT_SECONDS)
            if not reading.done():
                with self._session.bodies.reading() as room:
                    room.grew(settings.max_request_bytes)
                    await asyncio.wait((reading,), timeout=settings.body_seconds)
            if not reading.done():
                raise too_slow(settings)
            message = reading.result()
        except DecodeError:
            raise RequestError(400, "the message is not a ModelInferRequest") from None
        finally:
            reading.cancel()
        if message is grpc.aio.EOF:
            raise RequestError(400, "the call has no message, or one that is too large")
        return message

    def _executor(self, model: str, version: str) -> EpochExecutor:
        return executor_for(self._session, model, version or None)


class _GrpcInference(PendingRequest):
    """A request by gRPC."""

    __slots__ = ("_logged", "answer")

    def __init__(
        self,
        session: Session,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
        metadata: Mapping[str, str],
        logged: RequestEvents | None,
    ) -> None:
        self._logged = logged
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        super().__init__(session, requested, executor, arrived, metadata)

    def encoded(self, requested: InferRequest, executor: EpochExecutor, tensors: dict[str, Array]) -> Any:
        answer = encode_answer(requested, executor.interface, tensors)
        if self._logged is not None:
            self._logged.answered(logged_answer(*oip.encode_answer(requested, executor.interface, tensors)), 200)
        return answer

    def give(self, answer: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)

    def refuse(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


def _logged_content(requested: InferRequest) -> Content:
    """A request as the request log has it: by HTTP, with binary tensors, so that it can be replayed."""
    images = {name: bytes_tensor(images, (len(images),)) for name, images in requested.images.items()}
    tensors = {name: np.asarray(tensor) for name, tensor in requested.inputs.items()}
    payload = encode_request({**tensors, **images}, tuple(requested.outputs or ()))
    return Content(payload.body, payload.headers["Content-Type"], int(payload.headers[HEADER_LENGTH]))


def _credentials(context: Any) -> list[str]:
    return [str(value) for key, value in context.invocation_metadata() or () if key == CREDENTIALS]


def _text_metadata(context: Any) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


# ModelInfer reads its message itself, and checks first whether there is memory for it.
_HANDLERS: Final = {"ModelInfer": grpc.stream_unary_rpc_method_handler}
_FOR_EVERYBODY: Final = frozenset({"ServerLive", "ServerReady"})
"""Methods that load balancers call, without credentials."""
_INFORMATION: Final[Mapping[str, Operation]] = {
    "ServerMetadata": Operation.SERVER,
    "ModelMetadata": Operation.MODEL,
    "ModelReady": Operation.MODEL_READY,
    "ModelConfig": Operation.CONFIGURATION,
    "ModelStatistics": Operation.STATISTICS,
    "RepositoryIndex": Operation.INDEX,
    **{method: Operation(about) for method, about in REFUSED_METHODS.items()},
}
"""The operation that a method counts as."""


def _service(session: Session) -> grpc.GenericRpcHandler:
    methods = _Methods(session)
    infer = partial(parse_request, max_json_bytes=session.settings.max_json_bytes)
    served = {
        name: _HANDLERS.get(name, grpc.unary_unary_rpc_method_handler)(
            _answering(getattr(methods, name), name, session),
            request_deserializer=infer if name == "ModelInfer" else MESSAGES[f"{name}Request"].FromString,
            response_serializer=MESSAGES[f"{name}Response"].SerializeToString,
        )
        for name in METHODS
    }
    # Their messages are bytes, which are not parsed.
    refused_methods = {
        name: grpc.unary_unary_rpc_method_handler(_answering(_refusing(REFUSALS[about]), name, session))
        for name, about in REFUSED_METHODS.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, served | refused_methods)


def _refusing(reason: str) -> Callable[[Any, Any], Awaitable[Any]]:
    """A method that is never answered, for this reason."""

    async def refuse(_request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, reason)

    return refuse


async def _abort(context: Any, error: RequestError, status: grpc.StatusCode | None = None) -> None:
    if error.retry_after_seconds is not None:
        context.set_trailing_metadata((("retry-after", str(error.retry_after_seconds)),))
    if isinstance(error, UnauthenticatedError):
        context.set_trailing_metadata((("www-authenticate", error.challenge),))
    await context.abort(status or _STATUS.get(error.status, grpc.StatusCode.INTERNAL), str(error))


def _answering(
    method: Callable[[Any, Any], Awaitable[Any]], name: str, session: Session
) -> Callable[[Any, Any], Awaitable[Any]]:
    """The method of this name for the session's clients, with its errors as gRPC codes."""

    async def answer(request: Any, context: Any) -> Any:
        try:
            if name not in _FOR_EVERYBODY and not session.clients.open:
                session.clients.check(_credentials(context))
            if name in _INFORMATION:
                session.meter.information[_INFORMATION[name].value] += 1
            return await method(request, context)
        except BodyMemoryError as error:
            await _abort(context, refused(error), grpc.StatusCode.RESOURCE_EXHAUSTED)
        except UnservedError as error:
            await _abort(context, refused(error))
        except RequestError as error:
            await _abort(context, error)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            logger.error("a request raised an unexpected error", exc_info=error)
            await context.abort(grpc.StatusCode.INTERNAL, "internal error")

    return answer
