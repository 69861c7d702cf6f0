"""Azure Functions traces: the files' format, and synthetic traces of the same kind."""

import numpy as np
import pytest

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.load.arrivals import arrival_times, trace_times
from partita_runtime.load.azure_functions import (
    gaps_of_starts,
    read_invocations,
    read_minute_counts,
    schedule_of_counts,
    shared_out_counts,
    shared_out_starts,
    synthetic_schedules,
)

COUNTS = ["HashOwner,HashApp,HashFunction,Trigger,1,2,3", "o,a,f,http,1,0,3", "o,a,g,queue,0,2,0", "o,b,h,timer,4,4,4"]
INVOCATIONS = ["app,func,end_timestamp,duration", "a,f,12.5,2.5", "a,g,3.0,1.0", "a,f,4.25,0.25"]


def test_files_are_read() -> None:
    assert read_minute_counts(COUNTS) == {"f": (1, 0, 3), "g": (0, 2, 0), "h": (4, 4, 4)}
    assert read_invocations(INVOCATIONS) == {"f": (4.0, 10.0), "g": (2.0,)}


def test_functions_are_assigned_in_turn() -> None:
    assert shared_out_counts(read_minute_counts(COUNTS), 2) == [(5, 4, 7), (0, 2, 0)]
    assert shared_out_starts(read_invocations(INVOCATIONS), 1) == [(2.0, 4.0, 10.0)]


@pytest.mark.parametrize(
    ("read", "lines", "want_message"),
    [
        pytest.param(read_minute_counts, [], "line 1: a trace of 2019", id="2019: empty"),
        pytest.param(read_minute_counts, INVOCATIONS, "line 1: a trace of 2019", id="2019: another format"),
        pytest.param(read_minute_counts, [*COUNTS[:2], "o,a,g,http,1,x,2"], "line 3", id="2019: not a number"),
        pytest.param(read_minute_counts, [*COUNTS[:2], "o,a,g,http,1"], "line 3", id="2019: too short"),
        pytest.param(read_minute_counts, [*COUNTS[:1], "o,a,g,http,1,-1,2"], "line 2", id="2019: below 0"),
        pytest.param(read_invocations, COUNTS, "line 1: a trace of 2021", id="2021: another format"),
        pytest.param(read_invocations, [*INVOCATIONS, "a,f,soon,1"], "line 5", id="2021: not a time"),
    ],
)
def test_bad_files_are_refused(read, lines: list[str], want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        read(lines)


def test_counts_are_scaled_to_a_rate() -> None:
    schedule = schedule_of_counts((5, 4, 7), mean_rate=16)

    assert schedule.starts_s == (0, 60, 120)
    assert schedule.rates == pytest.approx((15, 12, 21))
    with pytest.raises(ValueError, match="without invocations"):
        schedule_of_counts((0, 0), mean_rate=16)


def test_bursts_of_invocations_stay_when_scaled() -> None:
    gaps = gaps_of_starts((0, 0, 0, 30), mean_rate=10)

    assert gaps == pytest.approx((0, 0, 0.3))
    assert len(trace_times(gaps, 30)) == pytest.approx(300, abs=3)
    with pytest.raises(ValueError, match="two different times"):
        gaps_of_starts((1.0,), mean_rate=10)


def test_synthetic_rates_have_the_requested_mean_and_shape() -> None:
    schedules = synthetic_schedules(5, 100, 1440, np.random.default_rng(1))
    rates = np.array([schedule.rates for schedule in schedules])

    assert rates.sum(axis=0).mean() == pytest.approx(100)
    assert rates[0].mean() > 1.5 * rates[1].mean() > 2 * rates[4].mean(), "popularity has a heavy tail"
    hours = rates[0].reshape(24, 60).mean(axis=1)
    assert hours.max() > 2 * hours.min(), "day and night differ"
    assert rates[0].max() > 3 * rates[0].mean(), "some minutes are bursts"


def test_synthetic_rates_can_be_played_and_are_reproducible() -> None:
    one, other = (synthetic_schedules(2, 50, 10, np.random.default_rng(7), step_s=1) for _ in range(2))
    times = arrival_times(ArrivalProcess.POISSON, one[0], 10, np.random.default_rng(1))

    assert one == other
    assert len(times) == pytest.approx(sum(one[0].rates), rel=0.2)


def test_invalid_synthetic_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="0 <= diurnal <= 1"):
        synthetic_schedules(2, 50, 10, np.random.default_rng(7), diurnal=2)
