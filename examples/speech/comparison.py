"""What the session finds in a recording, what the package silero-vad finds in it, and whether they differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch
from silero_vad import VADIterator, get_speech_timestamps, load_silero_vad
from silero_vad.utils_vad import get_speech_timestamps_from_probs
from torch.nn.functional import pad

from speech.audio import Samples
from speech.state import WINDOW
from speech.stream import CHUNK, Ask, listen

ALLOWED: Final = 0.001
"""The most by which a probability may differ."""


@dataclass(frozen=True)
class Found:
    """What was found in a recording."""

    segments: Sequence[tuple[int, int]]
    """First and last sample of speech by `get_speech_timestamps`, which sees the whole recording."""
    changes: Sequence[tuple[str, int]]
    """`start` or `end`, and the sample, by `VADIterator`, which sees it window by window."""
    probabilities: Sequence[float]
    """One for each window."""


@dataclass(frozen=True)
class Comparison:
    """Two results for one recording."""

    served: Found
    package: Found

    @property
    def difference(self) -> float:
        """The most by which a probability differs."""
        return max(abs(a - b) for a, b in zip(self.served.probabilities, self.package.probabilities, strict=True))

    @property
    def is_equal(self) -> bool:
        """Whether speech starts and ends at the same samples, and probabilities are almost equal."""
        return (
            [*self.served.segments] == [*self.package.segments]
            and [*self.served.changes] == [*self.package.changes]
            and self.difference <= ALLOWED
        )


def served_result(ask: Ask, samples: Samples) -> Found:
    """What the session finds."""
    heard = listen(ask, samples)
    segments = get_speech_timestamps_from_probs(heard.probabilities, audio_length_samples=len(samples))
    changes = [("start", sample) for sample in heard.starts] + [("end", sample) for sample in heard.ends]
    return Found(_pairs(segments), sorted(changes, key=lambda change: change[1]), heard.probabilities)


def package_result(samples: Samples) -> Found:
    """What the package finds. Its stream has silence at its end, as in `listen`."""
    sound = torch.from_numpy(samples).float() / 32_768
    probabilities = _model().audio_forward(sound[None], 16_000)[0].tolist()
    iterator = VADIterator(_model())
    filled = pad(sound, (0, -len(sound) % CHUNK)).split(WINDOW)
    changes = [change for window in filled for change in (iterator(window) or {}).items()]
    return Found(_pairs(get_speech_timestamps(sound, _model())), changes, probabilities)


@cache
def _model() -> Any:
    return load_silero_vad()


def _pairs(segments: Sequence[Mapping[str, int]]) -> list[tuple[int, int]]:
    return [(int(segment["start"]), int(segment["end"])) for segment in segments]
