"""How far a stage's real execution times are from its profile."""

from typing import Final

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DOUBT: Final = 1 / 16
_LOWEST: Final = 1 / 16
_HIGHEST: Final = 16.0
_STEP: Final = 0.005


class LatencyCorrection:
    """Factor that brings a profile's latencies to what executions take, and how far they spread around that.

    Moving averages of actual / predicted and of its absolute deviation, as TCP estimates round-trip times (Jacobson,
    1988). While executions take what the profile says, the factor is exactly 1 and the spread 0. One execution counts
    for at most twice the average, so that a single hiccup does not stop the service.
    """

    __slots__ = ("_deviation", "_mean", "actual_micros", "executions", "factor", "predicted_micros", "spread")

    def __init__(self) -> None:
        self._mean = 1.0
        self._deviation = 0.0
        self.factor = 1.0
        """What latencies are multiplied with, from 1/16 to 16; it moves in steps of at least 0.5 %."""
        self.spread = 0.0
        """Deviation from that, as a share of the profile's latencies."""
        self.executions = 0
        self.predicted_micros = 0
        """Sum over executions of what the profile says."""
        self.actual_micros = 0

    def observe(self, predicted: int, actual: int) -> bool:
        """Take one execution in (microseconds); whether `factor` has changed."""
        self.executions += 1
        self.predicted_micros += predicted
        self.actual_micros += actual
        error = min(actual / max(1, predicted) - self._mean, self._mean)
        self._mean += _GAIN * error
        self._deviation += _DEVIATION_GAIN * (abs(error) - self._deviation)
        return self._settle()

    def doubt(self) -> bool:
        """Go a step back towards the profile; whether `factor` has changed.

        For when nothing is executed, and thus observed, any more because of the correction alone. The margin goes
        faster than the mean: it may come from a single hiccup.
        """
        self._mean += _DOUBT * (1 - self._mean)
        self._deviation -= _DEVIATION_GAIN * self._deviation
        return self._settle()

    def _settle(self) -> bool:
        factor = min(_HIGHEST, max(_LOWEST, self._mean))
        if abs(factor - self.factor) + abs(self._deviation - self.spread) < _STEP:
            return False
        self.factor, self.spread = factor, self._deviation
        return True
