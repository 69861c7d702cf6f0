"""When a server that was silent is asked again."""

import pytest

from partita_operator.engines.circuit_breaker import CircuitBreaker


def test_a_server_that_answers_is_never_paused() -> None:
    breaker = CircuitBreaker()
    with breaker.attempt(), breaker.attempt():
        assert breaker.seconds_left(0) == 0


@pytest.mark.parametrize(
    ("silences", "want"),
    [
        pytest.param([0], 5, id="once"),
        pytest.param([0, 5], 10, id="twice"),
        pytest.param([0, 5, 15], 20, id="three times"),
        pytest.param([0, 1, 2, 3], 2, id="several requests at once count once"),
        pytest.param([0, 5, 15, 35, 75, 135, 195], 60, id="at most a minute"),
    ],
)
def test_the_pause_doubles_with_each_silence(silences: list[float], want: float) -> None:
    breaker = CircuitBreaker()
    for now in silences:
        breaker.failed(now)
    assert breaker.seconds_left(silences[-1]) == want


def test_after_a_pause_there_is_one_request_at_a_time() -> None:
    breaker = CircuitBreaker()
    breaker.failed(0)
    assert breaker.seconds_left(5) == 0
    with breaker.attempt():
        assert breaker.seconds_left(5) > 0
    assert breaker.seconds_left(5) == 0


def test_an_answer_ends_the_pauses() -> None:
    breaker = CircuitBreaker()
    breaker.failed(0)
    breaker.failed(5)
    breaker.succeeded()
    assert breaker.seconds_left(6) == 0
    breaker.failed(10)
    assert breaker.seconds_left(10) == 5
