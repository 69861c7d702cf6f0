"""The clock of all deadlines and reservations."""

import time


def now_micros() -> int:
    """Microseconds; the event loop's clock, which differs from process to process and from node to node."""
    return time.monotonic_ns() // 1000
