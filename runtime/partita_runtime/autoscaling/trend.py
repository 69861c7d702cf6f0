"""How much a rate that rises will have grown by the time that new replicas serve.

A straight line through the rates of late is carried on. Only what the line rises beyond doubt counts: a load that is
steady, and only fluctuates, asks for nothing.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from partita_runtime.autoscaling.load_level import RateHistory, RateSample

LEAST_SAMPLES: Final = 4
"""A line through fewer samples says nothing of how well it fits."""
DOUBT: Final = 2.0
"""Standard errors taken off the slope: about what a steady rate's slope stays below in 19 of 20 cases."""
MOST: Final = 1.0
"""The largest growth expected: twice the rate."""


def expected_growth(history: RateHistory, ahead_seconds: float, window_seconds: float) -> float:
    """Share by which the rate will have grown `ahead_seconds` after the last sample; 0 unless it surely rises.

    It looks back for as long as it looks ahead. Every sample is the mean of `window_seconds`, and so fluctuates by at
    least the root of the requests that arrived then, whatever a few samples look like.
    """
    samples = history.samples
    if ahead_seconds <= 0 or not samples:
        return 0.0
    of_late = [sample for sample in samples if sample.at >= samples[-1].at - ahead_seconds]
    if len(of_late) < LEAST_SAMPLES:
        return 0.0
    now, slope, error = _line(of_late, window_seconds)
    if now <= 0:
        return 0.0
    return min(MOST, max(0.0, slope - DOUBT * error) * ahead_seconds / now)


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
