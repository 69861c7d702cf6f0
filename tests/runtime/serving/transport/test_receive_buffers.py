"""The memory of large tensors is used again, and never while something refers to it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from partita_runtime.serving.transport.receive_buffers import SMALLEST_BYTES, ReceiveBuffers
from partita_runtime.serving.transport.wire import Array

BYTE = np.dtype(np.uint8)
FLOAT = np.dtype(np.float32)
LARGE = (4, SMALLEST_BYTES)


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again() -> None:
    buffers = ReceiveBuffers()
    first = buffers.empty(LARGE, BYTE)
    place = address(first)
    assert buffers.free_bytes == 0
    del first
    assert buffers.free_bytes >= 4 * SMALLEST_BYTES

    smaller = buffers.empty((2, SMALLEST_BYTES // 4), FLOAT)

    assert (address(smaller), smaller.shape, smaller.dtype) == (place, (2, SMALLEST_BYTES // 4), FLOAT)
    assert smaller.flags.c_contiguous
    assert smaller.flags.writeable
    assert buffers.free_bytes == 0


@pytest.mark.parametrize(
    "keep",
    [
        pytest.param(lambda array: array, id="array"),
        pytest.param(lambda array: array[1], id="sample"),
        pytest.param(lambda array: array.reshape(-1).view(np.uint8).data, id="bytes"),
        pytest.param(torch.from_numpy, id="torch"),
    ],
)
def test_memory_that_is_referred_to_stays(keep: Callable[[Array], object]) -> None:
    buffers = ReceiveBuffers()
    array = buffers.empty(LARGE, FLOAT)
    array[:] = 1
    kept = keep(array)
    del array

    other = buffers.empty(LARGE, FLOAT)
    other[:] = 2

    assert (np.asarray(kept).reshape(-1).view(FLOAT) == 1).all()
    del kept
    assert buffers.free_bytes > 0
    assert not np.shares_memory(other, buffers.empty(LARGE, FLOAT))


def test_memory_that_is_too_small_is_replaced() -> None:
    buffers = ReceiveBuffers()
    for factor in (1, 2, 4, 8):
        buffers.empty((factor * SMALLEST_BYTES,), BYTE)
    assert buffers.free_bytes == 8 * SMALLEST_BYTES


def test_memory_beyond_the_limit_is_not_kept() -> None:
    buffers = ReceiveBuffers(most_kept_bytes=4 * SMALLEST_BYTES)
    arrays = [buffers.empty((2 * SMALLEST_BYTES,), BYTE) for _ in range(4)]
    arrays.clear()
    assert buffers.free_bytes == 4 * SMALLEST_BYTES


def test_small_arrays_need_no_memory_that_is_kept() -> None:
    buffers = ReceiveBuffers()
    buffers.empty((SMALLEST_BYTES - 1,), BYTE)
    assert buffers.free_bytes == 0
