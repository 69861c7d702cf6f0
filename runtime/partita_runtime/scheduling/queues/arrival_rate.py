"""The rate at which requests of one module arrive: steady while it is, and soon right when it changes."""

from math import exp, sqrt
from typing import Final

_FAST_MICROS: Final = 300_000
_SLOW_MICROS: Final = 10_000_000
_SURPRISE: Final = 4.0
"""Standard deviations of Poisson arrivals by which the fast average must differ for the rate to have changed."""


class _DecayingAverage:
    """Exponentially weighted arrivals per microsecond, corrected for the time before there were any."""

    __slots__ = ("_arrivals", "_began", "_updated", "_window")

    def __init__(self, window: int, began: int) -> None:
        self._window = window
        self._began = began
        self._updated = began
        self._arrivals = 0.0

    def add(self, arrivals: int, now: int) -> float:
        """Take in the arrivals since the last call, as if evenly spread; the rate, 0 before any time has passed."""
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
        """Believe a rate that was seen for some time up to now, and forget what was before."""
        self._began = now - seen
        self._updated = now
        self._arrivals = rate * self._window * (1 - exp(-seen / self._window))


class ArrivalRate:
    """Arrivals over about ten seconds; over a third of a second right after a change that is no chance.

    The batch size that is worth keeping under overload follows from it, and is sensitive to a per cent of noise.
    """

    __slots__ = ("_arrivals", "_asked", "_fast", "_rate", "_slow")

    def __init__(self) -> None:
        self._arrivals = 0
        self._fast: _DecayingAverage | None = None
        self._slow: _DecayingAverage | None = None
        self._asked = -1
        self._rate = 0.0
        """The answer at `_asked`."""

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
        if now == self._asked and not self._arrivals:
            return self._rate
        fast, slow = self._fast.add(self._arrivals, now), self._slow.add(self._arrivals, now)
        self._arrivals = 0
        self._asked, self._rate = now, slow
        if abs(fast - slow) > _SURPRISE * sqrt(slow / (2 * _FAST_MICROS)):
            self._slow.restart(fast, _FAST_MICROS, now)
            self._rate = fast
        return self._rate
