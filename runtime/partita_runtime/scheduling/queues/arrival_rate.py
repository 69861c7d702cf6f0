"""The arrival rate of one module: steady under constant load, and quick to follow a change."""

from math import exp, sqrt
from typing import Final

_FAST_MICROS: Final = 300_000
_SLOW_MICROS: Final = 10_000_000
_SURPRISE: Final = 4.0
"""The rate has changed if the fast average differs by this many standard deviations of Poisson arrivals."""


class _DecayingAverage:
    """Exponentially weighted arrivals per microsecond, corrected for the time before the first arrival."""

    __slots__ = ("_arrivals", "_began", "_updated", "_window")

    def __init__(self, window: int, began: int) -> None:
        self._window = window
        self._began = began
        self._updated = began
        self._arrivals = 0.0

    def add(self, arrivals: int, now: int) -> float:
        """Add the arrivals since the last call, evenly spread; returns the rate, or 0 if no time has passed."""
        if now > self._updated:
            passed = (now - self._updated) / self._window
            kept = exp(-passed)
            self._arrivals = self._arrivals * kept + arrivals * (1 - kept) / passed
            self._updated = now
        else:
            self._arrivals += arrivals
        seen = self._window * (1 - exp((self._began - now) / self._window))
        return self._arrivals / seen if seen else 0.0

    def restart(self, rate: float, seen: int, now: int) -> None:
        """Start again with a rate that was measured over the last `seen` microseconds."""
        self._began = now - seen
        self._updated = now
        self._arrivals = rate * self._window * (1 - exp(-seen / self._window))


class ArrivalRate:
    """The average over about ten seconds; after a significant change, the average over a third of a second.

    The smallest sustainable batch size under overload depends on it, and noise of one per cent already matters there.
    """

    __slots__ = ("_arrivals", "_asked_at", "_fast", "_rate", "_slow")

    def __init__(self) -> None:
        self._arrivals = 0
        self._fast: _DecayingAverage | None = None
        self._slow: _DecayingAverage | None = None
        self._asked_at = -1
        self._rate = 0.0
        """The rate at `_asked_at`."""

    def count(self, now: int) -> None:
        """One more arrival."""
        if self._fast is None:
            self._fast = _DecayingAverage(_FAST_MICROS, now)
            self._slow = _DecayingAverage(_SLOW_MICROS, now)
        self._arrivals += 1

    def per_micro(self, now: int) -> float:
        """Arrivals per microsecond, as of `now`; 0 before any time has passed."""
        if self._fast is None or self._slow is None:
            return 0.0
        if now == self._asked_at and not self._arrivals:
            return self._rate
        fast, slow = self._fast.add(self._arrivals, now), self._slow.add(self._arrivals, now)
        self._arrivals = 0
        self._asked_at, self._rate = now, slow
        if abs(fast - slow) > _SURPRISE * sqrt(slow / (2 * _FAST_MICROS)):
            self._slow.restart(fast, _FAST_MICROS, now)
            self._rate = fast
        return self._rate
