"""Whether the request rate has moved for good, so that a new plan is worth its roll-out.

The autoscaler follows the load within a plan; a new plan changes batch sizes and partitions too, but costs a
solve and a migration. So a new level must last: longer before giving capacity up than before asking for it.
"""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

RISE: Final = 1.15
"""A rate above this multiple of the planned one asks for a new plan,"""
RISE_SECONDS: Final = 60.0
"""once it has lasted for this long."""
FALL: Final = 0.75
"""A rate below this multiple of the planned one allows a smaller plan,"""
FALL_SECONDS: Final = 300.0
"""once it has lasted for this long."""
MOST_SAMPLES: Final = 60
"""About how many samples are kept of that time; closer ones are merged into the higher of two."""


@dataclass(frozen=True)
class RateSample:
    """A request rate, as measured at one moment."""

    at: float
    """Seconds on any steady clock."""
    rate: float
    """Requests per second."""


@dataclass(frozen=True)
class RateHistory:
    """What was measured of late, oldest first."""

    samples: tuple[RateSample, ...] = ()

    def add(self, at: float, rate: float) -> "RateHistory":
        """With one more sample; samples too old to matter are left out, and close ones are merged."""
        earlier = [sample for sample in self.samples if sample.at < at]
        if len(earlier) >= 2 and earlier[-1].at - earlier[-2].at < FALL_SECONDS / MOST_SAMPLES:
            earlier[-2:] = [RateSample(earlier[-2].at, max(earlier[-2].rate, earlier[-1].rate))]
        old = sum(sample.at <= at - FALL_SECONDS for sample in earlier)
        return RateHistory((*earlier[max(0, old - 1) :], RateSample(at, rate)))


def lasting_level(history: RateHistory, planned: float) -> float | None:
    """The request rate to plan for anew, or None while the planned one will do.

    It is the highest rate of the time for which the load was outside of its band, rounded up to two significant
    digits, so that small differences do not make different plans.
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
    """The rates of the last `seconds`; none if they do not reach back that far."""
    samples = history.samples
    if not samples or samples[0].at > samples[-1].at - seconds:
        return ()
    return tuple(sample.rate for sample in samples if sample.at >= samples[-1].at - seconds)


def _two_digits_up(rate: float) -> float:
    if rate < 1:
        return 1.0
    step = 10.0 ** (floor(log10(rate)) - 1)
    return max(1.0, ceil(rate / step - 1e-9) * step)
