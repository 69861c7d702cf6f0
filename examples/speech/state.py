"""What must be known of a stream to go on with it. A client gets it in an answer, and sends it with the next chunk."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

WINDOW: Final = 512
"""Samples of a window: 32 ms."""
CONTEXT: Final = 64
"""Samples before a window that the detector reads, too."""
UNITS: Final = 128
"""Numbers in each of the two parts of the detector's state: hidden, cell."""
LENGTH: Final = CONTEXT + 2 * UNITS + 3
"""Numbers in a packed state."""

THRESHOLD: Final = 0.5
"""The probability from which on a window has speech ..."""
END_THRESHOLD: Final = 0.35
"""... and below which it has none. Windows between them are as the one before."""
PAUSE: Final = 1_600
"""Samples of silence that end a segment: 100 ms."""
AROUND: Final = 480
"""Samples by which a segment is longer than its windows, on both sides: 30 ms."""


class StateError(ValueError):
    """Numbers that are no state of a stream."""


@dataclass(frozen=True)
class Segments:
    """Where speech starts and ends: samples of a stream, which count from its beginning."""

    samples: int = 0
    """The number of samples so far."""
    in_speech: bool = False
    quiet_since: int = 0
    """In speech: the end of the first window of a pause that may end it; 0 if there is no such pause."""

    def after(self, probability: float) -> tuple[Self, int | None]:
        """The state after another window, and where speech starts or ends if it does. The rule is VADIterator's."""
        now, quiet_since = self.samples + WINDOW, self.quiet_since
        if probability >= THRESHOLD:
            if self.in_speech:
                return type(self)(now, True), None
            return type(self)(now, True), max(0, now - AROUND - WINDOW)
        if probability < END_THRESHOLD and self.in_speech:
            quiet_since = quiet_since or now
            if now - quiet_since >= PAUSE:
                return type(self)(now), quiet_since + AROUND - WINDOW
        return type(self)(now, self.in_speech, quiet_since), None


@dataclass(frozen=True)
class StreamState:
    """The state of a stream after some windows."""

    context: Array
    """The last samples `[64]`, from -1 to 1."""
    recurrent: Array
    """The detector's state `[2, 128]`."""
    segments: Segments

    def packed(self) -> Array:
        """As numbers, all 0 at the start of a stream."""
        segments = [self.segments.samples, self.segments.in_speech, self.segments.quiet_since]
        return np.concatenate([self.context, self.recurrent.ravel(), segments]).astype(np.float64)

    @classmethod
    def unpacked(cls, numbers: Array) -> Self:
        """Raises StateError for numbers that `packed` cannot have made."""
        context, hidden, cell, rest = np.split(numbers, [CONTEXT, CONTEXT + UNITS, CONTEXT + 2 * UNITS])
        if not np.isfinite(numbers).all() or (rest != rest.round()).any():
            raise StateError
        samples, in_speech, quiet_since = (int(number) for number in rest)
        if samples % WINDOW or in_speech not in (0, 1) or not 0 <= quiet_since <= samples < 2**53:
            raise StateError
        # A window adds less than 1 to the cell, and the others are within 1.
        if max(np.abs(context).max(), np.abs(hidden).max()) > 1 or np.abs(cell).max() > samples / WINDOW + 1:
            raise StateError
        recurrent = np.stack([hidden, cell]).astype(np.float32)
        return cls(context.astype(np.float32), recurrent, Segments(samples, bool(in_speech), quiet_since))
