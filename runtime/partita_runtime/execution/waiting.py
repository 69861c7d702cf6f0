"""Waiting without using the CPU."""

import time


def wait_until(deadline_nanos: int) -> None:
    """Sleep until `time.perf_counter_ns()` has reached `deadline_nanos`, late by the timer slack (about 0.06 ms)."""
    while (left := deadline_nanos - time.perf_counter_ns()) > 0:
        time.sleep(left / 1e9)
