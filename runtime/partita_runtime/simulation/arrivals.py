"""When simulated requests arrive."""

from collections.abc import Callable, Sequence

import numpy as np

from partita_api.inferencesession import ArrivalProcess, Rate
from partita_runtime.load.arrivals import RateSchedule, Times, arrival_times, trace_times

Arrivals = Callable[[float, np.random.Generator], Times]
"""(seconds, generator) -> arrival times in [0, seconds), ascending; the same generator state gives the same times."""


def arrivals_at(process: ArrivalProcess, rate: float | RateSchedule, gamma_shape: float = 1.0) -> Arrivals:
    """Random (or evenly spaced) arrivals at a rate in requests per second, which may follow a schedule."""
    schedule = rate if isinstance(rate, RateSchedule) else RateSchedule.constant(rate)
    return lambda seconds, generator: arrival_times(process, schedule, seconds, generator, gamma_shape)


def arrivals_of(rate: Rate) -> Arrivals:
    """Arrivals as a session declares them."""
    shape = float(rate.gamma_shape) if rate.gamma_shape is not None else 1.0
    return arrivals_at(rate.arrival, rate.requests_per_second, shape)


def arrivals_from_trace(gaps_s: Sequence[float]) -> Arrivals:
    """Arrivals after these gaps in seconds, repeated where they are too few."""
    return lambda seconds, _: trace_times(gaps_s, seconds)
