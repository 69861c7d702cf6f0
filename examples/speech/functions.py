"""The CPU steps of the application: windows of a chunk of sound, and where speech starts and ends."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from partita_runtime.functions import RequestRefusedError
from speech.state import CONTEXT, WINDOW, Array, StateError, StreamState

Upstream = Mapping[str, Sequence[Sequence[Array]]]

_LARGEST: Final = 32_768
"""Of samples of 16 bits."""


class ChunkError(RequestRefusedError):
    """A chunk that cannot be the next one of a stream; the message says what is expected."""


def windows(request: Mapping[str, Array], _upstream: Upstream) -> dict[str, Any]:
    """Cut a chunk into windows for `detector`; `speech` gets the state of the stream, with the end of this chunk.

    `request["chunk"]` are samples of 16 bits, `request["state"]` is that of the answer for the chunk before, or all 0.
    Raises ChunkError.
    """
    try:
        state = StreamState.unpacked(request["state"])
    except StateError:
        raise ChunkError("state must be that of the answer for the chunk before, or 0 for the first chunk") from None
    samples = np.concatenate([state.context, request["chunk"].astype(np.float32) / _LARGEST])
    cut = np.lib.stride_tricks.sliding_window_view(samples, CONTEXT + WINDOW)[::WINDOW]
    after = replace(state, context=samples[-CONTEXT:])
    return {"detector": {"windows": cut[None], "state": state.recurrent[None]}, "speech": after.packed()}


def speech(_request: Mapping[str, Array], upstream: Upstream) -> dict[str, Any]:
    """Where speech starts and ends.

    `starts` and `ends` are samples from the beginning of the stream, `probabilities` are those of the windows, `state`
    is for the next chunk.
    """
    (probabilities,), (recurrent,) = upstream["detector"]
    before = StreamState.unpacked(upstream["windows"][0][0])
    segments, starts, ends = before.segments, [], []
    for probability in probabilities:
        segments, changed = segments.after(float(probability))
        if changed is not None:
            (starts if segments.in_speech else ends).append(changed)
    return {
        "starts": np.array(starts, np.int64),
        "ends": np.array(ends, np.int64),
        "probabilities": probabilities,
        "state": replace(before, recurrent=recurrent, segments=segments).packed(),
    }
