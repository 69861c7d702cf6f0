"""The output of a model's process as lines of the log that cannot be taken for a result."""

from dataclasses import dataclass
from itertools import chain
from typing import Final

OUTPUT_PREFIX: Final = "model: "
"""What every line of the model's process begins with."""
LONGEST_LINE_BYTES: Final = 1000
"""Longer lines are divided. A log is read from its end, which must not be in the middle of a line."""
MOST_OUTPUT_BYTES: Final = 256 * 1024
"""What the model's process may add to a log; the rest is left out."""
_LEFT_OUT: Final = f"{OUTPUT_PREFIX}(further output is left out)"


@dataclass
class ModelOutput:
    """Divides a stream of bytes into prefixed lines."""

    _rest: bytes = b""
    """The beginning of a line whose end has not come yet."""
    _left: int = MOST_OUTPUT_BYTES
    """Negative once output was left out."""

    def lines(self, chunk: bytes) -> list[str]:
        """The lines that end in the next chunk of the stream. An empty chunk is the end of the stream."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) >= LONGEST_LINE_BYTES or (self._rest and not chunk):
            complete.append(self._rest)
            self._rest = b""
        found: list[str] = []
        for line in map(_shown, chain.from_iterable(map(_pieces, complete))):
            if self._left < 0:
                break
            self._left -= len(line.encode()) + 1
            found.append(line if self._left >= 0 else _LEFT_OUT)
        return found


def _pieces(line: bytes) -> list[bytes]:
    return [line[start : start + LONGEST_LINE_BYTES] for start in range(0, len(line) or 1, LONGEST_LINE_BYTES)]


def _shown(line: bytes) -> str:
    """The line without control characters: some of them begin a new line for some readers."""
    text = line.decode(errors="replace")
    shown = "".join(character if character.isprintable() else " " for character in text)
    return (OUTPUT_PREFIX + shown).rstrip()
