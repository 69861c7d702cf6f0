"""A significant rise of a rate is extrapolated; a fluctuation is not."""

from collections.abc import Callable

import numpy as np
import pytest

from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.trend import expected_growth

MANY = 1e6
"""A rate so high that arrivals hardly fluctuate."""


def history(rate_at: Callable[[float], float], seconds: int, scale: float = MANY) -> RateHistory:
    seen = RateHistory()
    for at in range(0, seconds + 1, 5):
        seen = seen.add(float(at), scale * rate_at(at))
    return seen


@pytest.mark.parametrize(
    ("rate_at", "seconds", "ahead", "want"),
    [
        pytest.param(lambda at: 100 + at, 60, 20, 20 / 160, id="a straight rise continues"),
        pytest.param(lambda at: 100 + at, 60, 40, 40 / 160, id="more for a longer look-ahead"),
        pytest.param(lambda at: 100 + max(0, at - 40), 60, 20, 20 / 120, id="the history is as long as the look-ahead"),
        pytest.param(lambda at: 10 * at, 60, 60, 1.0, id="at most twice the rate"),
        pytest.param(lambda at: 100 + at, 10, 20, 0.0, id="too few measurements"),
        pytest.param(lambda at: 100 + at, 60, 0, 0.0, id="look-ahead of 0"),
        pytest.param(lambda at: 200 - at, 60, 20, 0.0, id="falling"),
        pytest.param(lambda _: 100, 60, 20, 0.0, id="steady"),
        pytest.param(lambda _: 0, 60, 20, 0.0, id="no load"),
        pytest.param(lambda at: 140 if at == 60 else 100, 60, 60, 0.0, id="one high rate is not a rise"),
        pytest.param(lambda at: 100 + at + 40 * (at % 10 > 0), 60, 20, 0.0, id="a rise within the fluctuations"),
    ],
)
def test_the_expected_rise_of_a_rate(
    rate_at: Callable[[float], float], seconds: int, ahead: float, want: float
) -> None:
    assert expected_growth(history(rate_at, seconds), ahead, 10) == pytest.approx(want, abs=1e-3)


def test_no_measurements() -> None:
    assert expected_growth(RateHistory(), 60, 10) == 0


def test_few_arrivals_fluctuate_by_chance() -> None:
    growth = [expected_growth(history(lambda at: 100 + at, 60, scale), 60, 10) for scale in (MANY, 1.0, 0.1, 0.001)]
    assert growth == pytest.approx([0.375, 0.335, 0.248, 0.0], abs=0.001)


def test_steady_arrivals_rarely_count_as_a_rise() -> None:
    counts = np.random.default_rng(1).poisson(10_000, 1000).tolist()
    seen, found = RateHistory(), []
    for at, count in enumerate(counts):
        seen = seen.add(10.0 * at, count / 10)
        found.append(expected_growth(seen, 60, 10))
    assert max(found) < 0.05
    assert sum(found) < 0.001 * len(found)
