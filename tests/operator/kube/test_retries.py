"""Requests to the API server are repeated if that helps, after the requested pause, a limited number of times."""

import asyncio
from http import HTTPStatus

import pytest
from tests.operator.handlers.skipping_loop import run

from partita_operator.kube.errors import ApiError, ApiUnreachableError, KubernetesError
from partita_operator.kube.retries import MAX_PAUSE_S, PATIENCE, ApiServerUnavailableError, retried


class Server:
    """Fails with these errors in order, and then succeeds."""

    def __init__(self, *errors: KubernetesError) -> None:
        self._errors = list(errors)
        self.asked_at: list[float] = []

    async def call(self) -> str:
        self.asked_at.append(asyncio.get_running_loop().time())
        if self._errors:
            raise self._errors.pop(0)
        return "done"


def refusal(status: HTTPStatus, **headers: str) -> ApiError:
    return ApiError(status, status.phrase, headers)


@pytest.mark.parametrize(
    ("error", "want_pause"),
    [
        pytest.param(refusal(HTTPStatus.CONFLICT), PATIENCE.duration, id="conflict"),
        pytest.param(refusal(HTTPStatus.INTERNAL_SERVER_ERROR), PATIENCE.duration, id="internal error"),
        pytest.param(refusal(HTTPStatus.TOO_MANY_REQUESTS, **{"Retry-After": "7"}), 7, id="Retry-After"),
        pytest.param(
            refusal(HTTPStatus.TOO_MANY_REQUESTS, **{"Retry-After": "900"}), MAX_PAUSE_S, id="long Retry-After"
        ),
        pytest.param(ApiUnreachableError("refused"), PATIENCE.duration, id="connection refused"),
        pytest.param(ApiUnreachableError("reset"), PATIENCE.duration, id="connection lost"),
    ],
)
def test_temporary_errors_are_retried(error: KubernetesError, want_pause: float) -> None:
    server = Server(error)
    assert run(retried(server.call)) == "done"
    first, second = server.asked_at
    assert second - first >= want_pause


UNKNOWN_FIELD = "failed to create typed patch object (a/b; ray.io/v1, Kind=X): .spec.x: field not declared in schema"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(refusal(HTTPStatus.UNPROCESSABLE_ENTITY), id="invalid"),
        pytest.param(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, UNKNOWN_FIELD), id="a field that the definition lacks"),
    ],
)
def test_permanent_errors_are_raised_at_once(error: ApiError) -> None:
    server = Server(error)
    with pytest.raises(ApiError):
        run(retried(server.call))
    assert len(server.asked_at) == 1


def test_retries_end_if_the_server_stays_away() -> None:
    server = Server(*[ApiUnreachableError("refused")] * 20)
    with pytest.raises(ApiServerUnavailableError, match="refused"):
        run(retried(server.call))
    assert len(server.asked_at) == PATIENCE.steps
