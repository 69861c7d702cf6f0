"""How long a batch is under way besides its execution, estimated from what was measured. Pure."""

from collections import deque
from typing import Final

import numpy as np

_KEPT: Final = 512
_ENOUGH: Final = 16
_PERCENTILE: Final = 99


class DelayEstimate:
    """A line over the batch size below which most delays lie (Symphony, Figure 18: d_ctrl + d_data * b)."""

    def __init__(self, first_guess: int) -> None:
        """`first_guess` (microseconds) is the answer before enough was seen."""
        self._first_guess = first_guess
        self._seen: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def observe(self, batch_size: int, micros: int) -> None:
        """A batch of this size was under way for so long."""
        self._seen.append((batch_size, max(0, micros)))

    def line(self) -> tuple[int, int]:
        """(microseconds, microseconds for each sample): a high percentile of what was seen."""
        if len(self._seen) < _ENOUGH:
            return self._first_guess, 0
        sizes, delays = np.array(self._seen, np.float64).T
        spread = sizes.var()
        slope = max(0.0, float(np.cov(sizes, delays, bias=True)[0, 1] / spread)) if spread else 0.0
        base = float(np.percentile(delays - slope * sizes, _PERCENTILE))
        return max(0, round(base)), round(slope)
