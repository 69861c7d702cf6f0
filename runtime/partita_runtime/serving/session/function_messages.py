"""The messages between the frontend and the processes of functions: a length and a pickle.

They never come from a network: the socket is one end of a pair that the frontend made. Arrays in them have numbers, or
objects of type bytes, whatever clients send and functions return.
"""

import pickle
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any] | list[NDArray[Any]]
"""Samples, or other rows: an array [n, ...], or a list of arrays that differ in shape."""

FunctionAnswer = Mapping[str, Rows | Mapping[str, Rows]]
"""What a function has returned, by name: rows, or for a model of several inputs rows for each."""


class FunctionCall(NamedTuple):
    """A call of a function."""

    entrypoint: str
    kwargs: Mapping[str, Any]
    request: Mapping[str, Any]
    """The request's tensors by name."""
    upstream: Mapping[str, Sequence[Rows]]
    """The upstream answers by module."""


class CallOutcome(NamedTuple):
    """The result of a call."""

    answer: Mapping[str, Any] | None
    """What it returned by name, as `Rows`; None if the call failed."""
    problem: str = ""
    """Why it failed, as text: not all exceptions can be pickled."""
    is_refusal: bool = False
    """Whether the function refuses what the client has sent."""


class LoadedFunction(NamedTuple):
    """What a process says of a function at its start."""

    problem: str = ""
    """Why it cannot be loaded; empty if it can."""
    is_asynchronous: bool = False
    """Whether it is a coroutine function."""


HUNG_SECONDS: Final = 20.0
"""A call that takes longer fails."""
IN_ORDER: Final = "in-order"
CONCURRENT: Final = "concurrent"
"""How a process runs its calls."""
LENGTH: Final = struct.Struct("<Q")


def frame(message: object) -> bytes:
    """A message with its length. Raises the errors of pickle for a message that cannot be pickled."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


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
