"""A client of one session: numpy arrays in, numpy arrays out, by the Open Inference Protocol over HTTP."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from partita.errors import InferenceError, needs_extra
from partita_runtime.serving.protocol.event_stream import ANSWER, ERROR, EVENT_STREAM, OUTPUT, EventReader, StreamEvent
from partita_runtime.serving.protocol.inference_client import (
    AnswerError,
    Payload,
    client_headers,
    decode_answer,
    decode_output,
    encode_request,
    model_url,
)

with needs_extra("operator", "a client"):
    import httpx

_LONGEST_MESSAGE: Final = 1000
_HINTS: Final[Mapping[int, str]] = {
    401: "give the API key or the token of a client as credentials",
    404: "check that the session is Ready, and its URL",
    503: "check that the session is Ready, or send fewer requests",
    504: "the request could not meet its deadline: send fewer requests at once, or allow more time",
}
"""What to do, by HTTP status."""

Inputs = Mapping[str, NDArray[Any]] | NDArray[Any]
"""Tensors by name, or the one tensor of a session with one input. Their first dimension is the number of samples."""


class Client:
    """Sends requests to a session. It keeps its connections; use it as a context manager, or call close()."""

    def __init__(self, url: str, *, credentials: str | None = None, timeout_s: float = 30.0) -> None:
        """`url` is that of the session: http://127.0.0.1:8000/default/traffic. `credentials` are an API key or a token.

        A request without an answer after `timeout_s` is cancelled. Raises ValueError for a URL or credentials that
        cannot be used.
        """
        self._model = model_url(url)
        self._client = httpx.Client(
            headers={**(client_headers(credentials) if credentials is not None else {}), "Accept-Encoding": "identity"},
            timeout=timeout_s,
        )

    def infer(self, inputs: Inputs, *, deadline_ms: float | None = None) -> dict[str, NDArray[Any]]:
        """The outputs by name; each has one row for a sample, or as the session's fan-out makes them.

        `deadline_ms` shortens the SLO of this request. Raises InferenceError, and ValueError for inputs of element
        types that no session takes.
        """
        payload = _payload(inputs, deadline_ms, binary_outputs=True)
        answer = self._ask("POST", f"{self._model}/infer", content=payload.body, headers=payload.headers)
        try:
            return decode_answer(answer.headers, answer.content)
        except AnswerError as error:
            raise InferenceError(f"{self._model}: {error}") from error

    def infer_stream(self, inputs: Inputs, *, deadline_ms: float | None = None) -> Iterator[tuple[str, NDArray[Any]]]:
        """Name and tensor of each output as soon as it is known; together they are what `infer` returns.

        A loop that is left early cancels the request. Raises as `infer` does, also after outputs.
        """
        payload = _payload(inputs, deadline_ms, binary_outputs=False)
        url = f"{self._model}/infer"
        for event in self._events(url, payload):
            if event.kind == OUTPUT:
                try:
                    yield decode_output(event.data)
                except AnswerError as error:
                    raise InferenceError(f"{self._model}: {error}") from error
            elif event.kind == ERROR:
                raise _error_of(url, event)
            elif event.kind == ANSWER:
                return
        raise InferenceError(f"{url} ended its event stream without its last event; try again")

    def metadata(self) -> dict[str, Any]:
        """The session's inputs and outputs: names, element types and shapes. Raises InferenceError."""
        answer = self._ask("GET", self._model)
        try:
            found: dict[str, Any] = answer.json()
        except ValueError as error:
            raise InferenceError(f"{self._model} does not describe a model: {error}") from error
        return found

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, url: str, **options: Any) -> httpx.Response:
        with _answering(url):
            answer = self._client.request(method, url, **options)
        if answer.is_success:
            return answer
        raise _refusal(url, answer)

    def _events(self, url: str, payload: Payload) -> Iterator[StreamEvent]:
        headers = {**payload.headers, "Accept": EVENT_STREAM}
        reader = EventReader()
        with _answering(url), self._client.stream("POST", url, content=payload.body, headers=headers) as answer:
            if not answer.is_success:
                answer.read()
                raise _refusal(url, answer)
            for part in answer.iter_raw():
                yield from reader.events(part)


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Raises InferenceError instead of what httpx raises."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise InferenceError(f"{url} did not answer in time; check that the session is Ready") from error
    except httpx.HTTPError as error:
        raise InferenceError(f"{url} does not answer: {str(error) or type(error).__name__}") from error


def _payload(inputs: Inputs, deadline_ms: float | None, binary_outputs: bool) -> Payload:
    tensors = inputs if isinstance(inputs, Mapping) else {"input": np.asarray(inputs)}
    parameters = {} if deadline_ms is None else {"timeout": max(1, round(deadline_ms * 1000))}
    return encode_request(tensors, parameters=parameters, binary_outputs=binary_outputs)


def _refusal(url: str, answer: httpx.Response) -> InferenceError:
    return _error(url, answer.status_code, _message(answer), _seconds(answer.headers.get("Retry-After", "")))


def _error(url: str, status: int, message: str, retry_after_s: float | None = None) -> InferenceError:
    hint = _HINTS.get(status, "")
    return InferenceError(f"{url} answers {status}: {message}{hint and f'; {hint}'}", status, retry_after_s)


def _error_of(url: str, event: StreamEvent) -> InferenceError:
    """The error that ends an event stream."""
    try:
        said = json.loads(event.data)
        return _error(url, int(said["status"]), str(said["error"])[:_LONGEST_MESSAGE])
    except (ValueError, KeyError, TypeError):
        return InferenceError(f"{url} ended its event stream with an error that is not of the protocol")


def _message(answer: httpx.Response) -> str:
    """What the session says is wrong."""
    try:
        said = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):  # not from a frontend, but from a proxy in front of it
        said = answer.text or answer.reason_phrase
    return said[:_LONGEST_MESSAGE]


def _seconds(header: str) -> float | None:
    try:
        return float(header)
    except ValueError:
        return None
