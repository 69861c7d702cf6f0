"""A rate that surely rises is carried on; one that only fluctuates is not."""

from collections.abc import Callable

import numpy as np
import pytest

from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.trend import expected_growth

MANY = 1e6
"""A rate at which arrivals hardly fluctuate."""


def history(rate_at: Callable[[float], float], seconds: int, scale: float = MANY) -> RateHistory:
    seen = RateHistory()
    for at in range(0, seconds + 1, 5):
        seen = seen.add(float(at), scale * rate_at(at))
    return seen


@pytest.mark.parametrize(
    ("rate_at", "seconds", "ahead", "want"),
    [
        pytest.param(lambda at: 100 + at, 60, 20, 20 / 160, id="a straight rise goes on"),
        pytest.param(lambda at: 100 + at, 60, 40, 40 / 160, id="further ahead it is more"),
        pytest.param(lambda at: 100 + max(0, at - 40), 60, 20, 20 / 120, id="only as far back as ahead counts"),
        pytest.param(lambda at: 10 * at, 60, 60, 1.0, id="at most twice the rate"),
        pytest.param(lambda at: 100 + at, 10, 20, 0.0, id="too little is known yet"),
        pytest.param(lambda at: 100 + at, 60, 0, 0.0, id="it does not look ahead"),
        pytest.param(lambda at: 200 - at, 60, 20, 0.0, id="falling"),
        pytest.param(lambda _: 100, 60, 20, 0.0, id="steady"),
        pytest.param(lambda _: 0, 60, 20, 0.0, id="no load"),
        pytest.param(lambda at: 140 if at == 60 else 100, 60, 60, 0.0, id="one high rate is no rise"),
        pytest.param(lambda at: 100 + at + 40 * (at % 10 > 0), 60, 20, 0.0, id="a rise lost in fluctuations"),
    ],
)
def test_what_a_rate_will_have_grown_by(
    rate_at: Callable[[float], float], seconds: int, ahead: float, want: float
) -> None:
    assert expected_growth(history(rate_at, seconds), ahead, 10) == pytest.approx(want, abs=1e-3)


def test_nothing_measured() -> None:
    assert expected_growth(RateHistory(), 60, 10) == 0


def test_few_arrivals_fluctuate_by_themselves() -> None:
    growth = [expected_growth(history(lambda at: 100 + at, 60, scale), 60, 10) for scale in (MANY, 1.0, 0.1, 0.001)]
    assert growth == pytest.approx([0.375, 0.335, 0.248, 0.0], abs=0.001)


def test_steady_arrivals_hardly_ever_look_like_a_rise() -> None:
    counts = np.random.default_rng(1).poisson(10_000, 1000).tolist()
    seen, found = RateHistory(), []
    for at, count in enumerate(counts):
        seen = seen.add(10.0 * at, count / 10)
        found.append(expected_growth(seen, 60, 10))
    assert max(found) < 0.05
    assert sum(found) < 0.001 * len(found)
