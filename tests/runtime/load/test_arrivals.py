"""Arrival processes: reproducible, with the requested rate and burstiness."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.load.arrivals import RateSchedule, arrival_times, parse_trace, trace_times

STEPS = RateSchedule.parse("0:40,100:80,200:0,300:20")


@pytest.mark.parametrize(
    ("process", "shape", "want_variation"),
    [
        pytest.param(ArrivalProcess.UNIFORM, 1.0, 0.0, id="uniform"),
        pytest.param(ArrivalProcess.POISSON, 1.0, 1.0, id="Poisson"),
        pytest.param(ArrivalProcess.GAMMA, 0.25, 2.0, id="bursty Gamma"),
        pytest.param(ArrivalProcess.GAMMA, 4.0, 0.5, id="even Gamma"),
    ],
)
def test_gaps_have_the_mean_and_variation_of_the_process(
    process: ArrivalProcess, shape: float, want_variation: float
) -> None:
    times = arrival_times(process, RateSchedule.constant(50), 1000, np.random.default_rng(1), shape)

    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(want_variation, abs=0.05)


@pytest.mark.parametrize("process", list(ArrivalProcess))
def test_rate_follows_its_schedule(process: ArrivalProcess) -> None:
    times = arrival_times(process, STEPS, 400, np.random.default_rng(2), 0.8)

    counts = np.histogram(times, bins=[0, 100, 200, 300, 400])[0]
    assert counts == pytest.approx([4000, 8000, 0, 2000], rel=0.06, abs=1)


@given(
    process=st.sampled_from(list(ArrivalProcess)),
    rates=st.lists(st.floats(0, 50), min_size=1, max_size=4),
    duration=st.floats(0.1, 30),
    seed=st.integers(0, 2**32),
)
def test_times_ascend_within_the_duration_and_repeat_with_the_seed(
    process: ArrivalProcess, rates: list[float], duration: float, seed: int
) -> None:
    rate = RateSchedule(tuple(5.0 * i for i in range(len(rates))), tuple(rates))

    times = arrival_times(process, rate, duration, np.random.default_rng(seed), 0.5)

    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times <= duration)).all()
    np.testing.assert_array_equal(times, arrival_times(process, rate, duration, np.random.default_rng(seed), 0.5))


def test_seeds_differ() -> None:
    first, second = (arrival_times(ArrivalProcess.POISSON, STEPS, 10, np.random.default_rng(seed)) for seed in (1, 2))

    assert not np.array_equal(first[:100], second[:100])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("8", RateSchedule((0.0,), (8.0,)), id="constant"),
        pytest.param("0:4, 30:8,60:2.5", RateSchedule((0.0, 30.0, 60.0), (4.0, 8.0, 2.5)), id="steps"),
    ],
)
def test_schedule_is_read(text: str, want: RateSchedule) -> None:
    assert RateSchedule.parse(text) == want


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        pytest.param("fast", "write it such as", id="not a number"),
        pytest.param("", "write it such as", id="empty"),
        pytest.param("5:4", "starts at second 0", id="late start"),
        pytest.param("0:4,30:8,20:2", "must ascend", id="unordered"),
        pytest.param("0:-4", "not negative", id="negative"),
        pytest.param("inf", "finite", id="infinite"),
        pytest.param("nan", "finite", id="not a number"),
    ],
)
def test_wrong_schedule_is_refused(text: str, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        RateSchedule.parse(text)


@pytest.mark.parametrize(
    ("second", "want"), [(0, 40), (99.9, 40), (100, 80), (250, 0), (1000, 20)], ids=lambda value: str(value)
)
def test_rate_at_a_time(second: float, want: float) -> None:
    assert STEPS.rate_at(second) == want


def test_trace_is_repeated_until_the_end() -> None:
    gaps = parse_trace("# seconds\n0.5\n\n1.0\n")

    np.testing.assert_allclose(trace_times(gaps, 4.0), [0.5, 1.5, 2.0, 3.0, 3.5])


def test_trace_line_that_is_not_a_number_is_named() -> None:
    with pytest.raises(ValueError, match="line 2 of the trace, 'soon'"):
        parse_trace("0.5\nsoon\n")


@pytest.mark.parametrize("gaps", [[], [0.0, 0.0], [0.5, -0.1], [float("nan")]], ids=["empty", "still", "back", "nan"])
def test_trace_without_progress_is_refused(gaps: list[float]) -> None:
    with pytest.raises(ValueError, match="a trace needs gaps"):
        trace_times(gaps, 1.0)


@pytest.mark.parametrize(
    ("duration", "shape", "want_message"),
    [
        pytest.param(0.0, 1.0, "duration above 0", id="no duration"),
        pytest.param(1.0, 0.0, "shape of Gamma", id="no shape"),
    ],
)
def test_invalid_arrivals_are_refused(duration: float, shape: float, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        arrival_times(ArrivalProcess.GAMMA, STEPS, duration, np.random.default_rng(0), shape)
