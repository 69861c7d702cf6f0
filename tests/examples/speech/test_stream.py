"""The CPU steps of the example `speech`: windows of chunks, starts and ends of speech, the state between chunks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from silero_vad import VADIterator
from speech.audio import recording
from speech.functions import ChunkError, windows
from speech.state import CONTEXT, LENGTH, WINDOW, Segments, StreamState
from speech.stream import CHUNK, write_requests
from torch import zeros

SAMPLES, IN_SPEECH, QUIET_SINCE = LENGTH - 3, LENGTH - 2, LENGTH - 1
HIDDEN, CELL = CONTEXT, CONTEXT + 128


class Told:
    """A model of the package that says these probabilities."""

    def __init__(self, probabilities: list[float]) -> None:
        self._left = [*probabilities]

    def __call__(self, _samples: object, _rate: int) -> "Told":
        return self

    def item(self) -> float:
        return self._left.pop(0)

    def reset_states(self) -> None:
        """It has none."""


def state(**numbers: float) -> np.ndarray:
    """The packed state after ten windows, with some numbers replaced: `n5` is the sixth."""
    recurrent = np.linspace(-0.9, 0.9, 256, dtype=np.float32).reshape(2, 128)
    packed = StreamState(np.full(CONTEXT, 0.5, np.float32), recurrent, Segments(10 * WINDOW, True, 9 * WINDOW)).packed()
    for name, number in numbers.items():
        packed[int(name[1:])] = number
    return packed


@given(st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.35, 0.5, 0.0, 1.0])), max_size=60))
def test_speech_starts_and_ends_where_the_package_says(probabilities: list[float]) -> None:
    iterator = VADIterator(Told(probabilities))
    want = [iterator(zeros(WINDOW)) for _ in probabilities]
    segments, found = Segments(), []

    for probability in probabilities:
        segments, changed = segments.after(probability)
        found.append(None if changed is None else {"start" if segments.in_speech else "end": changed})

    assert found == want


def test_windows_of_chunks_are_those_of_the_whole_stream() -> None:
    samples = recording()[: 3 * CHUNK]
    packed, found = np.zeros(LENGTH), []

    for chunk in samples.reshape(3, CHUNK):
        given = windows({"chunk": chunk, "state": packed}, {})
        packed = given["speech"]
        found += [*given["detector"]["windows"][0]]

    sound = np.concatenate([np.zeros(CONTEXT), samples / 32768])
    want = [sound[start : start + CONTEXT + WINDOW] for start in range(0, len(samples), WINDOW)]
    np.testing.assert_allclose(found, want, atol=1e-7)


def test_a_state_stays_what_it_is() -> None:
    np.testing.assert_array_equal(StreamState.unpacked(state()).packed(), state())
    np.testing.assert_array_equal(StreamState.unpacked(np.zeros(LENGTH)).packed(), np.zeros(LENGTH))


def test_the_last_samples_of_a_day_are_counted_exactly() -> None:
    day = StreamState.unpacked(state())
    day = replace(day, segments=Segments(86_400 * 16_000, True, 86_400 * 16_000 - WINDOW))

    assert StreamState.unpacked(day.packed()).segments == day.segments


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param(state(n0=float("nan")), id="no number"),
        pytest.param(state(n200=float("inf")), id="infinite"),
        pytest.param(state(n0=1.5), id="too loud"),
        pytest.param(state(**{f"n{HIDDEN}": 1.5}), id="a hidden number above 1"),
        pytest.param(state(**{f"n{CELL}": 12}), id="a cell that ten windows cannot fill"),
        pytest.param(state(**{f"n{CELL}": 1e300}), id="too large for the detector"),
        pytest.param(state(**{f"n{SAMPLES}": 10 * WINDOW + 1}), id="a part of a window"),
        pytest.param(state(**{f"n{SAMPLES}": 0.5}), id="half a sample"),
        pytest.param(state(**{f"n{SAMPLES}": 2.0**60}), id="longer than a number can count"),
        pytest.param(state(**{f"n{SAMPLES}": -WINDOW}), id="before the start"),
        pytest.param(state(**{f"n{IN_SPEECH}": 2}), id="neither speech nor silence"),
        pytest.param(state(**{f"n{QUIET_SINCE}": 11 * WINDOW}), id="quiet from later on"),
    ],
)
def test_what_is_no_state_is_refused(numbers: np.ndarray) -> None:
    with pytest.raises(ChunkError, match="state must be that of the answer for the chunk before, or 0 for the first"):
        windows({"chunk": np.zeros(CHUNK, np.int16), "state": numbers}, {})


def test_first_chunks_are_requests_for_load(tmp_path: Path) -> None:
    write_requests(tmp_path / "requests.npz", count=3)

    with np.load(tmp_path / "requests.npz") as stored:
        chunks, states = stored["chunk"], stored["state"]
    assert chunks.dtype == np.int16
    assert len({chunk.tobytes() for chunk in chunks}) == len(states) == 3
    assert all(windows({"chunk": c, "state": s}, {})["detector"] for c, s in zip(chunks, states, strict=True))
