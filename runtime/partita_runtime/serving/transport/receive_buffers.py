"""Memory for large tensors that arrive. It is used again, because the system must clear the pages of new memory."""

import math
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SMALLEST_BYTES: Final = 1 << 20
"""`malloc` uses the memory of smaller tensors again by itself."""
MOST_KEPT_BYTES: Final = 256 << 20
"""Most memory that is kept while nothing uses it."""


class ReceiveBuffers:
    """Makes arrays on one thread. Their memory is free again once nothing refers to them, in any thread."""

    def __init__(self, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most = most_kept_bytes
        self._free: list[memoryview] = []

    @property
    def free_bytes(self) -> int:
        """Memory that nothing uses."""
        return sum(map(len, self._free))

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """As `np.empty`: an array with arbitrary elements."""
        size = math.prod(shape) * dtype.itemsize
        if size < SMALLEST_BYTES:
            return np.empty(shape, dtype)
        memory = self._taken(size)
        # numpy keeps this array alive for all of its views, because its own base is not an array.
        owner = np.frombuffer(memory, np.uint8, size)
        weakref.finalize(owner, self._give_back, memory).atexit = False
        return owner.view(dtype).reshape(shape)

    def _taken(self, size: int) -> memoryview:
        """The smallest free memory of at least this size, or new memory in place of the largest that is free."""
        self._free.sort(key=len)
        fitting = next((i for i, memory in enumerate(self._free) if len(memory) >= size), None)
        if fitting is not None:
            return self._free.pop(fitting)
        if self._free:
            self._free.pop()
        # More than is needed, so that larger tensors fit later; pages that are not written are not allocated.
        return np.empty(1 << (size - 1).bit_length(), np.uint8).data

    def _give_back(self, memory: memoryview) -> None:
        """Called by the thread that has dropped the last reference."""
        if self.free_bytes + len(memory) <= self._most:
            self._free.append(memory)
