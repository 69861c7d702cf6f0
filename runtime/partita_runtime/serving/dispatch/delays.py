"""How long a batch is under way besides its execution, estimated from what was measured. Pure."""

from collections import deque
from typing import Final

import numpy as np

FIRST_GUESS_MICROS: Final = 10_000
"""What a delay is taken to be before it was measured, if the SLO has ten times that."""

_KEPT: Final = 2048
_ENOUGH: Final = 16
_PERCENTILE: Final = 99
"""Of the delays of one span of time."""
_OF_SPANS: Final = 75
"""Percentile of the spans: a machine that stood still for a moment is no measure for the moments after it."""
_SPAN_MICROS: Final = 1_000_000
"""How long a span is, if it has enough delays to be judged by."""
_IN_SPAN: Final = 32
_FORGOTTEN_MICROS: Final = 30_000_000


class DelayEstimate:
    """A line over the batch size below which most delays lie (Symphony, Figure 18: d_ctrl + d_data * b).

    It never takes more than it may: an estimate that leaves no time to serve anything would never be corrected, for
    nothing would be measured any more. For the same reason old delays are forgotten.
    """

    def __init__(self, first_guess: int, most: int) -> None:
        """`first_guess` (microseconds) is the least answer until enough was seen, `most` the largest for a sample."""
        self._first_guess = first_guess
        self._most = most
        self._seen: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def observe(self, batch_size: int, micros: int, now: int) -> None:
        """A batch of this size was under way for so long."""
        self._seen.append((now, batch_size, max(0, micros)))

    def line(self, now: int) -> tuple[int, int]:
        """(microseconds, microseconds for each sample): a high percentile of what was usual of late."""
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
    """What is kept free of a session's SLO for the ways between frontend, replicas and client."""

    def __init__(self, slo_micros: int) -> None:
        guess, most = min(FIRST_GUESS_MICROS, slo_micros // 10), slo_micros // 5
        self.sending = DelayEstimate(guess, most)
        """From the moment at which a batch should go to its first stage's report, less waiting and running there."""
        self.answering = DelayEstimate(guess, most)
        """From a request's last result to its response."""
