"""Inference requests by HTTP, answered as a whole or by an event stream."""

from collections.abc import Mapping
from functools import partial

from partita_runtime.execution.executor import Array
from partita_runtime.serving.ingress.http_answers import HttpAnswer, HttpClient, failure
from partita_runtime.serving.ingress.inference.http_formats import HttpFormat
from partita_runtime.serving.ingress.inference.pending_request import PendingRequest
from partita_runtime.serving.protocol.event_stream import EVENT_HEADERS, EventStream
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.session.epoch_executor import EpochExecutor, TakeOutputs
from partita_runtime.serving.session.session import Session


class HttpInference(PendingRequest):
    """A request that came by HTTP."""

    __slots__ = ("_client", "_format", "_stream")

    def __init__(
        self,
        session: Session,
        client: HttpClient,
        format: HttpFormat,
        requested: InferRequest,
        executor: EpochExecutor,
        arrived: int,
        headers: Mapping[str, str],
        stream: EventStream | None,
    ) -> None:
        """As `PendingRequest`; `client` receives the answer in this format, or as a stream."""
        self._client, self._format, self._stream = client, format, stream
        super().__init__(session, requested, executor, arrived, headers)

    def early(self) -> TakeOutputs | None:
        return None if self._stream is None else partial(self._send, self._stream)

    @property
    def answered_in_part(self) -> bool:
        return self._stream is not None and self._stream.has_begun

    def encoded(self, requested: InferRequest, executor: EpochExecutor, tensors: dict[str, Array]) -> HttpAnswer:
        encode_whole = partial(self._format.encode, requested, executor.interface, tensors)
        if self._stream is not None:
            content = self._stream.end(executor.interface, tensors)
            return HttpAnswer(200, content, EVENT_HEADERS, encode_whole=encode_whole)
        headers, content = encode_whole()
        return HttpAnswer(200, content, headers)

    def give(self, answer: HttpAnswer) -> None:
        self._client.answer(answer)

    def refuse(self, error: Exception) -> None:
        self._client.answer(failure(error))

    def _send(self, stream: EventStream, tensors: dict[str, Array]) -> None:
        """Called by the executor."""
        try:
            events = stream.outputs(tensors)
        except Exception as error:
            self.give_up(error)
            return
        if events:
            self._client.part(HttpAnswer(200, events, EVENT_HEADERS))
