"""Estimates the delays of a batch besides its execution, from measurements. Pure."""

from collections import deque
from typing import Final

import numpy as np

FIRST_GUESS_MICROS: Final = 10_000
"""The delay that is assumed before the first measurements; at most a tenth of the SLO."""

_KEPT: Final = 2048
_ENOUGH: Final = 16
_PERCENTILE: Final = 99
"""Percentile of the delays within one span of time."""
_OF_SPANS: Final = 75
"""Percentile of the spans' percentiles, which leaves out a short stall of the machine."""
_SPAN_MICROS: Final = 1_000_000
"""Shortest length of a span."""
_IN_SPAN: Final = 32
"""Least number of delays in a span."""
_FORGOTTEN_MICROS: Final = 30_000_000


class DelayEstimate:
    """A line over the batch size below which most delays lie (Symphony, Figure 18: d_ctrl + d_data * b).

    The estimate is bounded: one that leaves no time to serve anything would never be corrected, since nothing would be
    measured any more. For the same reason old delays are forgotten.
    """

    def __init__(self, first_guess: int, most: int) -> None:
        """Both in microseconds: the lower bound until there are enough delays, and the upper bound for one sample."""
        self._first_guess = first_guess
        self._most = most
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def observe(self, batch_size: int, micros: int, now: int) -> None:
        """A batch of this size was delayed by `micros`."""
        self._seen.append((now, batch_size, max(0, micros)))

    def line(self, now: int) -> tuple[int, int]:
        """(microseconds, microseconds for each sample): a high percentile of the recent delays."""
        while self._seen and now - self._seen[0][0] > _FORGOTTEN_MICROS:
            self._seen.popleft()
        if len(self._seen) < _ENOUGH:
            usual = float(np.median([micros for _, _, micros in self._seen])) if self._seen else 0.0
            return max(self._first_guess, min(round(usual), self._most)), 0
        times, sizes, delays = np.array(self._seen, np.float64).T
        spread = sizes.var()
        slope = max(0.0, float(np.cov(sizes, delays, bias=True)[0, 1] / spread)) if spread else 0.0
        rest, span = delays - slope * sizes, times[-1] - times[0] + 1
        spans = max(1, min(int(span) // _SPAN_MICROS, len(times) // _IN_SPAN))
        number = (times - times[0]) * spans // span
        high = [np.percentile(rest[number == one], _PERCENTILE) for one in np.unique(number)]
        base = max(0.0, float(np.percentile(high, _OF_SPANS)))
        excess = max(1.0, (base + slope) / self._most)
        return round(base / excess), round(slope / excess)


class Margins:
    """The time of a session's SLO that is kept free for the delays between frontend, replicas and client."""

    def __init__(self, slo_micros: int) -> None:
        guess, most = min(FIRST_GUESS_MICROS, slo_micros // 10), slo_micros // 5
        self.sending = DelayEstimate(guess, most)
        """From a batch's due time to its first stage's report, less its waiting and execution there."""
        self.answering = DelayEstimate(guess, most)
        """Between a request's last result and its response."""
