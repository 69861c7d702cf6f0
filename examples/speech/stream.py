"""A client of the session: sends a stream chunk by chunk, and carries its state from one to the next.

python -m speech.stream FILE    # writes first chunks of streams for `partita load --payload FILE`
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from checks.client import Array

from speech.audio import Samples, recording
from speech.state import LENGTH, WINDOW

CHUNK: Final = 32 * WINDOW
"""Samples of a chunk: 1.024 s."""
Ask = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""A request to the session: tensors by name, with a batch dimension."""


@dataclass
class Heard:
    """What the session has found in a stream so far."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    """One for each window that has begun."""


def listen(ask: Ask, samples: Samples) -> Heard:
    """What the session finds in a whole stream. The last chunk is filled up with silence."""
    heard, state = Heard(), np.zeros(LENGTH)
    for start in range(0, len(samples), CHUNK):
        chunk = samples[start : start + CHUNK]
        filled = np.pad(chunk, (0, CHUNK - len(chunk)))
        answer = ask({"chunk": filled[None], "state": state[None]})
        state = answer["speech.state"][0]
        heard.starts += answer["speech.starts"][0].tolist()
        heard.ends += answer["speech.ends"][0].tolist()
        heard.probabilities += answer["speech.probabilities"][0][: -(-len(chunk) // WINDOW)].tolist()
    return heard


def write_requests(path: Path, count: int = 8) -> None:
    """Write the first chunks of `count` streams, as `partita load` reads them."""
    chunks = np.stack([recording(seed)[CHUNK : 2 * CHUNK] for seed in range(count)])
    np.savez(path, chunk=chunks, state=np.zeros((count, LENGTH)))


if __name__ == "__main__":
    write_requests(Path(sys.argv[1]))
