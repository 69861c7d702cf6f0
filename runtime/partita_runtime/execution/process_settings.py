"""Settings of the whole process that make execution times repeatable on a CPU."""

import ctypes
import sys

import torch

# From glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc accepts no more
_KEPT_BYTES = 1 << 30


def settle_process(threads: int) -> None:
    """Compute with `threads` threads, and keep freed memory for the next batch.

    By default, glibc may return large buffers to the kernel and fault them in again at the next batch, depending on
    earlier allocations: the same block then takes 1 ms or 3 ms. Without glibc, memory settings stay unchanged.
    """
    torch.set_num_threads(threads)
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
            mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
