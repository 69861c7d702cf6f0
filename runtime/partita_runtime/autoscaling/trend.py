"""The expected growth of a rising rate until new replicas are ready.

A straight line through recent rates is extrapolated. Only a significant rise counts: a steady load that fluctuates
has no effect.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from partita_runtime.autoscaling.load_level import RateHistory, RateSample

LEAST_SAMPLES: Final = 4
"""A line through fewer samples has no meaningful standard error."""
DOUBT: Final = 2.0
"""Standard errors subtracted from the slope: a steady rate stays below this in about 19 of 20 cases."""
MOST: Final = 1.0
"""The largest expected growth: to twice the rate."""


def expected_growth(
    history: RateHistory, ahead_seconds: float, window_seconds: float, more_seconds: float = 0.0
) -> float:
    """The growth of the rate until some time after the last sample, as a share; 0 without a significant rise.

    That time is `ahead_seconds` plus `more_seconds`. It uses the samples of the last `ahead_seconds`. Every sample is
    the mean of `window_seconds`, so its standard deviation is at least the square root of the number of requests in
    that time.
    """
    samples = history.samples
    if ahead_seconds <= 0 or not samples:
        return 0.0
    recent = [sample for sample in samples if sample.at >= samples[-1].at - ahead_seconds]
    if len(recent) < LEAST_SAMPLES:
        return 0.0
    now, slope, error = _line(recent, window_seconds)
    if now <= 0:
        return 0.0
    return min(MOST, max(0.0, slope - DOUBT * error) * (ahead_seconds + more_seconds) / now)


def _line(samples: Sequence[RateSample], window_seconds: float) -> tuple[float, float, float]:
    """Least squares: the line's rate at the last sample, its slope per second, and the slope's standard error."""
    count = len(samples)
    mean_at = sum(sample.at for sample in samples) / count
    mean_rate = sum(sample.rate for sample in samples) / count
    spread = sum((sample.at - mean_at) ** 2 for sample in samples)
    slope = sum((sample.at - mean_at) * (sample.rate - mean_rate) for sample in samples) / spread
    squares = sum((sample.rate - mean_rate - slope * (sample.at - mean_at)) ** 2 for sample in samples)
    variance = max(squares / (count - 2), mean_rate / window_seconds)
    error = sqrt(variance / spread)
    return mean_rate + slope * (samples[-1].at - mean_at), slope, error
