"""Only a lasting change of the request rate leads to a new plan."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.autoscaling.load_level import MOST_SAMPLES, RateHistory, lasting_level

PLANNED = 100.0


def history(rate_at: Callable[[float], float], seconds: int, every: int = 5) -> RateHistory:
    seen = RateHistory()
    for at in range(0, seconds + 1, every):
        seen = seen.add(float(at), rate_at(at))
    return seen


@pytest.mark.parametrize(
    ("rate_at", "seconds", "want"),
    [
        pytest.param(lambda _: 100, 600, None, id="as planned"),
        pytest.param(lambda _: 114, 600, None, id="a little above, inside the band"),
        pytest.param(lambda _: 76, 600, None, id="a little below, inside the band"),
        pytest.param(lambda _: 143, 55, None, id="above, but not for long yet"),
        pytest.param(lambda _: 143, 60, 150.0, id="above for long enough: rounded up"),
        pytest.param(lambda at: 143 if at >= 100 else 90, 160, 150.0, id="risen, and back after a while"),
        pytest.param(lambda at: 143 if at % 50 else 100, 300, None, id="above, with breaks"),
        pytest.param(lambda at: 130 + at / 10, 60, 140.0, id="rising: the highest rate counts"),
        pytest.param(lambda _: 51, 295, None, id="below, but not for long yet"),
        pytest.param(lambda _: 51, 300, 51.0, id="below for long enough"),
        pytest.param(lambda at: 70 if at == 200 else 20, 300, 70.0, id="below: the highest rate counts"),
        pytest.param(lambda at: 90 if at == 200 else 20, 300, None, id="below, but for one peak"),
        pytest.param(lambda _: 0, 300, 1.0, id="no load at all"),
    ],
)
def test_lasting_changes_count(rate_at: Callable[[float], float], seconds: int, want: float | None) -> None:
    assert lasting_level(history(rate_at, seconds), PLANNED) == want


@pytest.mark.parametrize("every", [1, 2, 7, 31, 100], ids=lambda every: f"a sample every {every} s")
def test_the_answer_does_not_depend_on_the_number_of_measurements(every: int) -> None:
    seen = history(lambda _: 40, 700, every)
    assert lasting_level(seen, PLANNED) == 40.0
    assert len(seen.samples) <= 2 * MOST_SAMPLES


def test_without_measurements_nothing_changes() -> None:
    assert lasting_level(RateHistory(), PLANNED) is None


@given(st.floats(0, 1e6), st.floats(1, 1e6))
def test_a_constant_load_settles_after_one_new_level(rate: float, planned: float) -> None:
    seen = history(lambda _: rate, 600)
    level = lasting_level(seen, planned)
    assert level is None or lasting_level(seen, level) is None
