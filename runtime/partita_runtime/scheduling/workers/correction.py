"""The ratio between the real execution times of a stage and its profile."""

from typing import Final

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DOUBT: Final = 1 / 16
_LOWEST: Final = 1 / 16
_HIGHEST: Final = 16.0
_STEP: Final = 0.005


class LatencyCorrection:
    """The factor between profiled and real execution times, and how far real times spread around it.

    Moving averages of actual / predicted and of its absolute deviation, as TCP estimates round-trip times (Jacobson,
    1988). While executions match the profile, the factor is exactly 1 and the spread 0. One execution counts for at
    most twice the average: a single outlier does not stop the service.
    """

    __slots__ = ("_deviation", "_mean", "actual_micros", "executions", "factor", "predicted_micros", "spread")

    def __init__(self) -> None:
        self._mean = 1.0
        self._deviation = 0.0
        self.factor = 1.0
        """Profiled latencies are multiplied with it; from 1/16 to 16, in steps of at least 0.5 %."""
        self.spread = 0.0
        """Deviation from the corrected latencies, as a share of the profiled latencies."""
        self.executions = 0
        self.predicted_micros = 0
        """Sum of the profiled times of all executions."""
        self.actual_micros = 0

    def observe(self, predicted: int, actual: int) -> bool:
        """Add one execution (microseconds); returns whether `factor` or `spread` has changed."""
        self.executions += 1
        self.predicted_micros += predicted
        self.actual_micros += actual
        error = min(actual / max(1, predicted) - self._mean, self._mean)
        self._mean += _GAIN * error
        self._deviation += _DEVIATION_GAIN * (abs(error) - self._deviation)
        return self._settle()

    def doubt(self) -> bool:
        """Move one step back towards the profile; returns whether `factor` or `spread` has changed.

        Used when the correction alone prevents executions, so nothing more can be observed. The spread shrinks faster
        than the mean: it may come from a single outlier.
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
