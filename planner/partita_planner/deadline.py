"""How long planning may still take; the clock is passed in."""

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
        """The moment so many seconds from now."""
        return cls(clock, clock() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self.at - self.clock())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.left == 0

    def share(self, fraction: float) -> "Deadline":
        """The moment at which that fraction of the time left will have passed."""
        return Deadline.after(fraction * self.left, self.clock)


NEVER: Final = Deadline(lambda: 0.0, inf)
"""For whoever has all the time that it takes."""


class OutOfTimeError(Exception):
    """A deadline passed before the answer was there."""
