"""Frames: a JSON value and arrays, as bytes. Nothing is unpickled, and all lengths are checked.

A frame is a prefix (lengths of header and body), a JSON header, and the bytes of the arrays that the header lists, in
its order, little-endian, each padded to 16 bytes. Arrays have numbers, or objects of type bytes: their lengths as
32-bit integers, then their contents.
"""

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MAX_HEADER_BYTES: Final = 4 << 20
MAX_BODY_BYTES: Final = 1 << 30
"""Most bytes that a frontend takes from a function."""

PREFIX: Final = struct.Struct("<IQ")
_ALIGNMENT: Final = 16
_BYTES: Final = "bytes"
_INTEGERS: Final = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
NUMBERS: Final = ("bool", *_INTEGERS, "float16", "float32", "float64")
"""Element types that are sent, by numpy's names."""

Array = NDArray[Any]
Chunk = bytes | memoryview


class FrameError(Exception):
    """Bytes are not a valid frame or message, or a message cannot be sent."""


def encode(value: object, arrays: Sequence[Array]) -> list[Chunk]:
    """The frame as chunks to write in order; arrays of numbers are not copied. Raises FrameError for other arrays."""
    listed: list[list[object]] = []
    body: list[Chunk] = []
    total = 0
    for array in arrays:
        dtype, content = _content(array)
        size = len(content)
        listed.append([dtype, array.shape, size])
        body += [content, bytes(-size % _ALIGNMENT)]
        total += size + -size % _ALIGNMENT
    header = json.dumps([value, listed], separators=(",", ":")).encode()
    return [PREFIX.pack(len(header), total) + header, *(chunk for chunk in body if chunk)]


def lengths(prefix: bytes) -> tuple[int, int]:
    """The lengths of header and body. Raises FrameError if they are too large for an answer."""
    header, body = PREFIX.unpack(prefix)
    if header > MAX_HEADER_BYTES or body > MAX_BODY_BYTES:
        raise FrameError(
            f"a header of {header} or arrays of {body} bytes are above {MAX_HEADER_BYTES} or {MAX_BODY_BYTES}"
        )
    return header, body


def decode(header: bytes | bytearray, body: bytes | bytearray) -> tuple[Any, list[Array]]:
    """The value and the arrays, which share the memory of `body` and can be written to if it can. Raises FrameError."""
    try:
        value, listed = json.loads(header)
        arrays, start = [], 0
        for dtype, shape, size in listed:
            arrays.append(_array(dtype, shape, size, memoryview(body)[start : start + size]))
            start += size + -size % _ALIGNMENT
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FrameError(f"not a frame: {error}") from None
    if start != len(body):
        raise FrameError(f"not a frame: its arrays take {start} bytes, and there are {len(body)}")
    return value, arrays


def _content(array: Array) -> tuple[str, memoryview]:
    if array.dtype == np.object_:
        lengths = np.fromiter(map(len, array.flat), "<u4", array.size)
        return _BYTES, memoryview(lengths.tobytes() + b"".join(array.flat))
    name = array.dtype.newbyteorder("=").name
    if name not in NUMBERS:
        raise FrameError(f"arrays of {name} cannot be sent; convert them to one of {', '.join(NUMBERS)}")
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return name, ordered.reshape(-1).view(np.uint8).data


def _array(dtype: str, shape: list[int], size: int, content: memoryview) -> Array:
    if len(content) != size or size < 0 or not all(type(length) is int and length >= 0 for length in shape):
        raise ValueError("the shape or the size of an array is wrong")
    count = math.prod(shape)
    if dtype == _BYTES:
        return _texts(count, content).reshape(shape)
    if dtype not in NUMBERS or count * np.dtype(dtype).itemsize != size:
        raise ValueError("an array has another size or element type than it should")
    return np.frombuffer(content, np.dtype(dtype).newbyteorder("<")).reshape(shape)


def _texts(count: int, content: memoryview) -> Array:
    if 4 * count > len(content):
        raise ValueError("texts are shorter than their lengths")
    ends = 4 * count + np.cumsum(np.frombuffer(content[: 4 * count], "<u4"), dtype=np.int64)
    if (int(ends[-1]) if count else 0) != len(content):
        raise ValueError("texts have another length than they should")
    array, start = np.empty(count, np.object_), 4 * count
    for index, end in enumerate(ends.tolist()):
        array[index] = bytes(content[start:end])
        start = end
    return array
