"""The messages between the frontend and what runs functions, and their frames (`frames`).

The frontend sends a list of the functions to load, and gets a LoadedFunction for each. Then it sends lists of numbered
calls, or None to cancel the call of that number, and gets a numbered CallOutcome for each. In the values of frames,
arrays are numbers of the arrays beside them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_runtime.function_server.frames import PREFIX, Array, Chunk, FrameError, encode, lengths

Rows = NDArray[Any] | list[NDArray[Any]]
"""Samples, or other rows: an array [n, ...], or a list of arrays that differ in shape."""

FunctionAnswer = Mapping[str, Rows | Mapping[str, Rows]]
"""What a function has returned, by name: rows, or for a model of several inputs rows for each."""


class LoadRequest(NamedTuple):
    """The first message: what to load, and how calls run."""

    entrypoints: Sequence[str]
    is_concurrent: bool
    """Whether all functions are asynchronous, and run at the same time; otherwise one after the other."""


class LoadedFunction(NamedTuple):
    """What was found at an entrypoint."""

    problem: str = ""
    """Why it cannot be loaded; empty if it can."""
    is_asynchronous: bool = False
    """Whether it is a coroutine function."""
    module: str | None = None
    """The module that defines it."""


class FunctionCall(NamedTuple):
    """A call of a function."""

    entrypoint: str
    kwargs: Mapping[str, Any]
    request: Mapping[str, Array]
    """The request's tensors by name."""
    upstream: Mapping[str, Sequence[Rows]]
    """The upstream answers by module."""


class CallOutcome(NamedTuple):
    """The result of a call."""

    answer: FunctionAnswer | None
    """What it returned by name, as `Rows`; None if the call failed."""
    problem: str = ""
    """Why it failed."""
    is_refusal: bool = False
    """Whether the function refuses what the client has sent."""


NumberedCall = tuple[int, FunctionCall | None]

HUNG_SECONDS: Final = 20.0
"""A call that takes longer fails."""


def load_frame(load: LoadRequest) -> list[Chunk]:
    """The frame of a LoadRequest."""
    return encode(load, ())


def loaded_frame(functions: Sequence[LoadedFunction]) -> list[Chunk]:
    """The frame of what was loaded."""
    return encode(functions, ())


def calls_frame(calls: Sequence[NumberedCall]) -> list[Chunk]:
    """The frame of calls. Raises FrameError for arrays that cannot be sent."""
    arrays: list[Array] = []
    value = [[number, None if call is None else _call_value(call, arrays)] for number, call in calls]
    return encode(value, arrays)


def outcome_frame(number: int, outcome: CallOutcome) -> list[Chunk]:
    """The frame of an outcome; of the problem, if the answer cannot be sent."""
    arrays: list[Array] = []
    try:
        answer = None if outcome.answer is None else _answer_value(outcome.answer, arrays)
        chunks = encode([number, answer, outcome.problem, outcome.is_refusal], arrays)
        lengths(bytes(chunks[0][: PREFIX.size]))
        return chunks
    except Exception as error:
        return encode([number, None, f"its answer cannot be sent: {error}", False], ())


def to_load(value: Any) -> LoadRequest:
    """The LoadRequest in a frame."""
    return LoadRequest(*value)


def to_loaded(value: Any, entrypoints: Sequence[str]) -> list[LoadedFunction]:
    """What was loaded, for each entrypoint. Raises FrameError."""
    try:
        found = [LoadedFunction(*each) for each in value]
    except TypeError as error:
        raise FrameError(f"not a list of functions: {error}") from None
    if len(found) != len(entrypoints) or not all(
        isinstance(each.problem, str) and isinstance(each.module, str | None) for each in found
    ):
        raise FrameError("not a list of functions")
    return found


def to_calls(value: Any, arrays: Sequence[Array]) -> list[NumberedCall]:
    """The calls in a frame. Raises FrameError."""
    return [(number, None if call is None else _to_call(call, arrays)) for number, call in value]


def to_outcome(value: Any, arrays: Sequence[Array]) -> tuple[int, CallOutcome]:
    """The outcome in a frame, with its number. Raises FrameError."""
    try:
        number, answer, problem, is_refusal = value
    except (TypeError, ValueError) as error:
        raise FrameError(f"not an outcome: {error}") from None
    if type(number) is not int or not isinstance(problem, str) or not isinstance(answer, dict | None):
        raise FrameError("not an outcome")
    if answer is None:
        return number, CallOutcome(None, problem, is_refusal is True)
    parts = {
        name: {part: _to_rows(rows, arrays) for part, rows in given.items()}
        if isinstance(given, dict)
        else _to_rows(given, arrays)
        for name, given in answer.items()
    }
    return number, CallOutcome(parts)


def _call_value(call: FunctionCall, arrays: list[Array]) -> list[object]:
    request = {name: _reference(array, arrays) for name, array in call.request.items()}
    upstream = {name: [_rows_value(rows, arrays) for rows in outputs] for name, outputs in call.upstream.items()}
    return [call.entrypoint, call.kwargs, request, upstream]


def _to_call(value: Any, arrays: Sequence[Array]) -> FunctionCall:
    entrypoint, kwargs, request, upstream = value
    return FunctionCall(
        entrypoint,
        kwargs,
        {name: _array_of(reference, arrays) for name, reference in request.items()},
        {name: [_to_rows(rows, arrays) for rows in outputs] for name, outputs in upstream.items()},
    )


def _answer_value(answer: FunctionAnswer, arrays: list[Array]) -> dict[str, object]:
    return {
        name: {part: _rows_value(rows, arrays) for part, rows in given.items()}
        if isinstance(given, Mapping)
        else _rows_value(given, arrays)
        for name, given in answer.items()
    }


def _rows_value(rows: Rows, arrays: list[Array]) -> int | list[int]:
    return [_reference(row, arrays) for row in rows] if isinstance(rows, list) else _reference(rows, arrays)


def _to_rows(value: Any, arrays: Sequence[Array]) -> Rows:
    return [_array_of(each, arrays) for each in value] if isinstance(value, list) else _array_of(value, arrays)


def _reference(array: Array, arrays: list[Array]) -> int:
    arrays.append(array)
    return len(arrays) - 1


def _array_of(reference: Any, arrays: Sequence[Array]) -> Array:
    if type(reference) is not int or not 0 <= reference < len(arrays):
        raise FrameError("a message names an array that it does not have")
    return arrays[reference]


def answer_arrays(answer: Mapping[str, Any]) -> FunctionAnswer:
    """What a function has returned: arrays of numbers, or of objects of type bytes. Raises TypeError for others."""
    return {
        name: {part: _rows(f"{name}.{part}", rows) for part, rows in value.items()}
        if isinstance(value, Mapping)
        else _rows(name, value)
        for name, value in answer.items()
    }


def _rows(name: str, value: Any) -> Rows:
    if isinstance(value, list | tuple) and all(isinstance(row, np.ndarray) for row in value):
        arrays = [_array(name, row) for row in value]
        if len({array.shape for array in arrays}) > 1:
            return arrays
    return _array(name, value)


def _array(name: str, value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype.kind in "SU" and array is not value:
        array = np.array(value, np.object_)  # texts of numpy lose the zeros at their end
    if array.dtype.kind not in "OSTU":
        return array
    elements = np.empty(array.size, np.object_)
    elements[:] = [_as_bytes(name, element) for element in array.flat]
    return elements.reshape(array.shape)


def _as_bytes(name: str, element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes):
        return bytes(element)
    raise TypeError(f"{name!r} has an element of type {type(element).__name__}; return numbers, str or bytes")
