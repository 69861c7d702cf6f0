"""Deadlines for planning; the clock is passed in."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final


@dataclass(frozen=True)
class Deadline:
    """A moment on a clock in seconds."""

    clock: Callable[[], float]
    at: float

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float]) -> "Deadline":
        """The deadline in so many seconds."""
        return cls(clock, clock() + seconds)

    @property
    def left(self) -> float:
        """Seconds that remain; 0 when the deadline has passed."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left == 0

    def share(self, fraction: float) -> "Deadline":
        """An earlier deadline, after that fraction of the remaining time."""
        return Deadline.after(fraction * self.left, self.clock)


NEVER: Final = Deadline(lambda: 0.0, inf)
"""No time limit."""


class OutOfTimeError(Exception):
    """A deadline passed before the result was complete."""
