"""The difference between simulated executions and their profile, and the delays of a dispatch."""

from dataclasses import dataclass
from math import exp
from typing import Final

import numpy as np


@dataclass(frozen=True)
class Noise:
    """The difference between real execution times and the profile."""

    spread: float = 0.0
    """Standard deviation of the logarithm of actual / profiled time; 0.05 is about 5 %."""
    bias: float = 1.0
    """Mean of actual / profiled time: with 1.2 executions take a fifth longer than profiled."""
    error_rate: float = 0.0
    """Share of executions that fail."""

    def __post_init__(self) -> None:
        if self.spread < 0 or self.bias <= 0 or not 0 <= self.error_rate <= 1:
            raise ValueError(f"{self} needs spread >= 0, bias > 0 and an error rate between 0 and 1")

    def factor(self, generator: np.random.Generator) -> float:
        """Actual / profiled time of one execution (log-normal)."""
        if not self.spread:
            return self.bias
        return self.bias * exp(self.spread * generator.standard_normal() - self.spread**2 / 2)

    def fails(self, generator: np.random.Generator) -> bool:
        """Whether one execution fails."""
        return bool(self.error_rate) and generator.random() < self.error_rate


EXACT: Final = Noise()
"""Executions take exactly the profiled time."""


@dataclass(frozen=True)
class Delays:
    """Time from a dispatch until the inputs are at the first worker: ctrl + per_request * batch size (microseconds)."""

    ctrl_micros: int = 0
    per_request_micros: int = 0

    def of(self, batch_size: int) -> int:
        """The delay of one batch."""
        return self.ctrl_micros + self.per_request_micros * batch_size


NO_DELAYS: Final = Delays()
