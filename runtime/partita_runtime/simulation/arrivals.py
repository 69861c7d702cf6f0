"""The arrival times of simulated requests."""

from collections.abc import Callable, Sequence

import numpy as np

from partita_api.inferencesession import ArrivalProcess, Rate
from partita_runtime.load.arrivals import RateSchedule, Times, arrival_times, trace_times

Arrivals = Callable[[float, np.random.Generator], Times]
"""(seconds, generator) -> arrival times in [0, seconds), ascending; the same generator state gives the same times."""


def arrivals_at(process: ArrivalProcess | str, rate: float | RateSchedule, gamma_shape: float = 1.0) -> Arrivals:
    """Random (or evenly spaced) arrivals at a rate in requests per second; the rate may follow a schedule.

    `process` is an `ArrivalProcess` or its name, such as "Poisson". Raises ValueError for other names.
    """
    named = ArrivalProcess(process)
    schedule = rate if isinstance(rate, RateSchedule) else RateSchedule.constant(rate)
    return lambda seconds, generator: arrival_times(named, schedule, seconds, generator, gamma_shape)


def arrivals_of(rate: Rate) -> Arrivals:
    """Arrivals with the rate and the process that a session declares."""
    shape = float(rate.gamma_shape) if rate.gamma_shape is not None else 1.0
    return arrivals_at(rate.arrival, rate.requests_per_second, shape)


def arrivals_from_trace(gaps_s: Sequence[float]) -> Arrivals:
    """Arrivals with these gaps in seconds between them; the gaps repeat if they are too few."""
    return lambda seconds, _: trace_times(gaps_s, seconds)
