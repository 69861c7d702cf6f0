"""Calls of the API server are repeated where that helps, after the pause that it asks for, and not for ever."""

import asyncio
from http import HTTPStatus

import httpx2
import pytest
from tests.operator.handlers.skipping_loop import run

from partita_operator.kube.retries import DELAYS_S, ApiServerUnavailableError, retried

REQUEST = httpx2.Request("PATCH", "http://api/apis/partita.dev/v1alpha1/gpupools/fast")


class Server:
    """Answers with one of `answers` after the other, and then with success."""

    def __init__(self, *answers: httpx2.Response | httpx2.HTTPError) -> None:
        self._answers = list(answers)
        self.asked_at: list[float] = []

    async def call(self) -> str:
        self.asked_at.append(asyncio.get_running_loop().time())
        if not self._answers:
            return "done"
        answer = self._answers.pop(0)
        if isinstance(answer, httpx2.HTTPError):
            raise answer
        answer.raise_for_status()
        return "done"


def refusal(status: HTTPStatus, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers, request=REQUEST)


@pytest.mark.parametrize(
    ("answer", "want_pause"),
    [
        pytest.param(refusal(HTTPStatus.CONFLICT), DELAYS_S[0], id="conflict"),
        pytest.param(refusal(HTTPStatus.INTERNAL_SERVER_ERROR), DELAYS_S[0], id="internal error"),
        pytest.param(refusal(HTTPStatus.TOO_MANY_REQUESTS, **{"Retry-After": "7"}), 7, id="asks for a pause"),
        pytest.param(refusal(HTTPStatus.TOO_MANY_REQUESTS, **{"Retry-After": "900"}), 10, id="for one of any length"),
        pytest.param(httpx2.ConnectError("refused", request=REQUEST), DELAYS_S[0], id="connection refused"),
        pytest.param(httpx2.ReadError("reset", request=REQUEST), DELAYS_S[0], id="connection lost"),
    ],
)
def test_what_may_pass_is_tried_again(answer: httpx2.Response | httpx2.HTTPError, want_pause: float) -> None:
    server = Server(answer)
    assert run(retried(server.call)) == "done"
    first, second = server.asked_at
    assert second - first >= want_pause


def test_what_repeating_cannot_help_is_raised_at_once() -> None:
    server = Server(refusal(HTTPStatus.UNPROCESSABLE_ENTITY))
    with pytest.raises(httpx2.HTTPStatusError):
        run(retried(server.call))
    assert len(server.asked_at) == 1


def test_a_server_that_stays_away_is_left_to_the_next_pass() -> None:
    server = Server(*[httpx2.ConnectError("refused", request=REQUEST)] * 20)
    with pytest.raises(ApiServerUnavailableError, match="refused"):
        run(retried(server.call))
    assert len(server.asked_at) == len(DELAYS_S) + 1
