"""Clients of inference requests whose answers are also logged, requests that are copied, or event streams."""

from collections.abc import Mapping

from partita_runtime.serving.ingress.http_answers import CancellableRequest, HttpAnswer, HttpClient
from partita_runtime.serving.ingress.http_routes import HttpHead
from partita_runtime.serving.ingress.versions.shadowing import Answered, OwnAnswer, SendCopies
from partita_runtime.serving.protocol.event_stream import EVENT_HEADERS, error_event
from partita_runtime.serving.protocol.inference import Body, digits
from partita_runtime.serving.protocol.oip import HEADER_LENGTH
from partita_runtime.serving.telemetry.logged_events import Content
from partita_runtime.serving.telemetry.request_log import RequestEvents


class _ClientAround:
    """Stands before another client, which receives everything; a subclass adds to it."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def began(self, request: CancellableRequest) -> None:
        self._client.began(request)

    def part(self, part: HttpAnswer) -> None:
        self._client.part(part)

    def answer(self, answer: HttpAnswer) -> None:
        self._client.answer(answer)


class EventClient(_ClientAround):
    """A client that asks for an event stream: once the stream has begun, an error is its last event."""

    def __init__(self, client: HttpClient) -> None:
        super().__init__(client)
        self._has_begun = False

    def part(self, part: HttpAnswer) -> None:
        self._has_begun = True
        super().part(part)

    def answer(self, answer: HttpAnswer) -> None:
        if self._has_begun and answer.status != 200:
            answer = HttpAnswer(200, error_event(answer.status, answer.content), EVENT_HEADERS)
        super().answer(answer)


class CopiedClient(_ClientAround):
    """A client whose request is copied to shadow versions, once the client has its answer."""

    def __init__(self, client: HttpClient, head: HttpHead, body: Body, send: SendCopies) -> None:
        super().__init__(client)
        self._head, self._body, self._send = head, body, send

    def answer(self, answer: HttpAnswer) -> None:
        super().answer(answer)
        if answer.status == 200:
            whole = answer.whole
            answered = Answered(self._head, self._body, OwnAnswer(whole.headers, whole.content))
            self._send(max(len(self._body), len(whole.content)), lambda: answered)


class LoggedClient(_ClientAround):
    """A client whose answer is logged."""

    def __init__(self, client: HttpClient, logged: RequestEvents) -> None:
        super().__init__(client)
        self._logged = logged

    def answer(self, answer: HttpAnswer) -> None:
        super().answer(answer)
        whole = answer.whole
        self._logged.answered(logged_answer(whole.headers, whole.content), whole.status)


def logged_answer(headers: Mapping[str, str], content: bytes) -> Content:
    """An answer as the request log has it."""
    return Content(content, headers["content-type"], digits(headers.get(HEADER_LENGTH, "")))
