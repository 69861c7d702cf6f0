"""Clients of inference requests whose answers are also logged, compared with others, or event streams."""

from collections.abc import Callable, Mapping

from partita_runtime.serving.ingress.http_answers import CancellableRequest, HttpAnswer, HttpClient
from partita_runtime.serving.ingress.versions.shadowing import OwnAnswer
from partita_runtime.serving.protocol.event_stream import EVENT_HEADERS, error_event
from partita_runtime.serving.protocol.inference import digits
from partita_runtime.serving.protocol.oip import HEADER_LENGTH
from partita_runtime.serving.telemetry.logged_events import Content
from partita_runtime.serving.telemetry.request_log import RequestEvents


class EventClient:
    """A client that asks for an event stream: once the stream has begun, an error is its last event."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._has_begun = False

    def began(self, request: CancellableRequest) -> None:
        self._client.began(request)

    def part(self, part: HttpAnswer) -> None:
        self._has_begun = True
        self._client.part(part)

    def answer(self, answer: HttpAnswer) -> None:
        if self._has_begun and answer.status != 200:
            answer = HttpAnswer(200, error_event(answer.status, answer.content), EVENT_HEADERS)
        self._client.answer(answer)


class ComparedClient:
    """A client whose answer is compared with those of shadow versions, once the client has it."""

    def __init__(self, client: HttpClient, compare: Callable[[OwnAnswer], None]) -> None:
        self._client, self._compare = client, compare

    def began(self, request: CancellableRequest) -> None:
        self._client.began(request)

    def part(self, part: HttpAnswer) -> None:
        self._client.part(part)

    def answer(self, answer: HttpAnswer) -> None:
        self._client.answer(answer)
        if answer.status == 200:
            whole = answer.whole
            self._compare(OwnAnswer(whole.headers, whole.content))


class LoggedClient:
    """A client whose answer is logged."""

    def __init__(self, client: HttpClient, logged: RequestEvents) -> None:
        self._client, self._logged = client, logged

    def began(self, request: CancellableRequest) -> None:
        self._client.began(request)

    def part(self, part: HttpAnswer) -> None:
        self._client.part(part)

    def answer(self, answer: HttpAnswer) -> None:
        self._client.answer(answer)
        whole = answer.whole
        self._logged.answered(logged_answer(whole.headers, whole.content), whole.status)


def logged_answer(headers: Mapping[str, str], content: bytes) -> Content:
    """An answer as the request log has it."""
    return Content(content, headers["content-type"], digits(headers.get(HEADER_LENGTH, "")))
