"""A recording of voice-like sound, the same for the same seed, so nothing is downloaded.

The voice is a sum of the harmonics of its pitch. Those near the formants of a vowel are loud, and the formants move
from vowel to vowel. Noise between them stands for consonants. No word can be understood.

python -m speech.audio FILE    # writes a recording as WAV
"""

import sys
import wave
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
"""Samples in a second."""
Samples = NDArray[np.int16]
Sound = NDArray[np.float64]
"""Samples from -1 to 1."""

FORMANTS: Final = np.array(
    [[730, 1090, 2440], [530, 1840, 2480], [270, 2290, 3010], [570, 840, 2410], [300, 870, 2240]]
)
"""Of the vowels a, e, i, o, u, in Hz."""
BANDWIDTHS: Final = np.array([90.0, 110.0, 170.0])


class AudioError(Exception):
    """A file that is no recording for the detector; the message says what is expected."""


def recording(seed: int = 0) -> Samples:
    """About 12 seconds: silence, two voices with a pause between them, a hum, a hiss, and a short voice at the end."""
    generator = np.random.default_rng(seed)
    silence = np.zeros(int(0.9 * RATE))
    hum = 0.3 * np.sin(2 * np.pi * 50 * np.arange(RATE) / RATE)
    hiss = 0.1 * generator.normal(size=RATE)
    parts = [
        silence,
        voice(2.2, 115, generator),
        silence,
        voice(1.7, 210, generator),
        silence,
        hum,
        silence,
        hiss,
        silence,
        voice(0.8, 150, generator),
    ]
    sound = np.concatenate(parts)
    noise = 0.001 * generator.normal(size=len(sound))
    return (32767 * (sound + noise).clip(-1, 1)).astype(np.int16)


def voice(seconds: float, pitch: float, generator: np.random.Generator) -> Sound:
    """A voice of this pitch in Hz."""
    time = np.arange(int(seconds * RATE)) / RATE
    starts = np.cumsum(generator.uniform(0.14, 0.26, size=int(seconds / 0.14) + 1))
    vowels = FORMANTS[generator.integers(len(FORMANTS), size=len(starts))]
    formants = [np.interp(time, starts, vowels[:, i]) for i in range(len(BANDWIDTHS))]
    melody = pitch * (1 + 0.12 * np.sin(2 * np.pi * 0.8 * time) - 0.1 * time / seconds)
    phase = 2 * np.pi * np.cumsum(melody) / RATE
    harmonics = np.zeros(len(time))
    for number in range(1, int(4000 / pitch)):
        resonances = sum(
            1 / (1 + ((number * melody - formant) / width) ** 2)
            for formant, width in zip(formants, BANDWIDTHS, strict=True)
        )
        harmonics += resonances / number**0.5 * np.sin(number * phase)
    syllable = np.interp(time, starts, np.arange(len(starts))) % 1
    loud = np.sin(np.pi * syllable).clip(0.02) ** 0.5
    consonants = 0.3 * generator.normal(size=len(time)) * (syllable < 0.15)
    sound = harmonics * loud + consonants
    fade = np.minimum(1, np.minimum(time, time[::-1]) / 0.02)
    found: Sound = 0.5 * fade * sound / np.abs(sound).max()
    return found


def read_wav(path: Path) -> Samples:
    """The samples of a file. Raises AudioError, and OSError if it cannot be read."""
    try:
        with wave.open(str(path)) as file:
            if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
                raise AudioError(f"{path} is not of 16 kHz, one channel and 16 bits; convert it, for example with sox")
            return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
    except (wave.Error, EOFError) as error:
        raise AudioError(f"{path} is not a WAV file: {error}") from error


def write_wav(path: Path, samples: Samples) -> None:
    """Write samples to a file."""
    with wave.open(str(path), "wb") as file:
        file.setframerate(RATE)
        file.setnchannels(1)
        file.setsampwidth(2)
        file.writeframes(samples.astype("<i2").tobytes())


if __name__ == "__main__":
    write_wav(Path(sys.argv[1]), recording())
