"""Whether the request rate has a new lasting level, which justifies a new plan.

The autoscaler follows the load within a plan. A new plan also changes batch sizes and partitions, but costs a solve
and a rollout. So a new level must last, and longer before capacity is reduced than before it is increased.
"""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

RISE: Final = 1.15
"""A rate above this multiple of the planned rate requests a new plan,"""
RISE_SECONDS: Final = 60.0
"""once it has lasted for this long."""
FALL: Final = 0.75
"""A rate below this multiple of the planned rate allows a smaller plan,"""
FALL_SECONDS: Final = 300.0
"""once it has lasted for this long."""
MOST_SAMPLES: Final = 60
"""About the number of samples kept of that time; of two closer ones the higher is kept."""


@dataclass(frozen=True)
class RateSample:
    """A request rate measured at one time."""

    at: float
    """Seconds on any steady clock."""
    rate: float
    """Requests per second."""


@dataclass(frozen=True)
class RateHistory:
    """Recent measurements of the rate, oldest first."""

    samples: tuple[RateSample, ...] = ()

    def add(self, at: float, rate: float) -> "RateHistory":
        """The history with one more sample, without outdated samples and with close samples merged."""
        earlier = [sample for sample in self.samples if sample.at < at]
        if len(earlier) >= 2 and earlier[-1].at - earlier[-2].at < FALL_SECONDS / MOST_SAMPLES:
            earlier[-2:] = [RateSample(earlier[-2].at, max(earlier[-2].rate, earlier[-1].rate))]
        old = sum(sample.at <= at - FALL_SECONDS for sample in earlier)
        return RateHistory((*earlier[max(0, old - 1) :], RateSample(at, rate)))


def lasting_level(history: RateHistory, planned: float) -> float | None:
    """The request rate for a new plan, or None while the planned rate is still right.

    It is the highest rate while the load was outside of its band, rounded up to two significant digits: small
    differences do not lead to different plans.
    """
    risen = _last(history, RISE_SECONDS)
    if risen and min(risen) > planned * RISE:
        return _two_digits_up(max(risen))
    fallen = _last(history, FALL_SECONDS)
    if fallen and max(fallen) < planned * FALL:
        level = _two_digits_up(max(fallen))
        return level if level < planned else None
    return None


def _last(history: RateHistory, seconds: float) -> tuple[float, ...]:
    """The rates of the last `seconds`; empty if the history is shorter."""
    samples = history.samples
    if not samples or samples[0].at > samples[-1].at - seconds:
        return ()
    return tuple(sample.rate for sample in samples if sample.at >= samples[-1].at - seconds)


def _two_digits_up(rate: float) -> float:
    if rate < 1:
        return 1.0
    step = 10.0 ** (floor(log10(rate)) - 1)
    return max(1.0, ceil(rate / step - 1e-9) * step)
