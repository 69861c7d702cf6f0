"""How long tests wait for what must happen in the end."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 300.0
"""Far more than anything takes on a slow and busy machine. A wait ends as soon as its condition holds."""


def eventually(condition: Callable[[], bool], within_s: float = PATIENCE_SECONDS) -> None:
    """Wait until the condition holds; fail at the deadline."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {within_s:.0f} s"
        time.sleep(0.05)
