"""Says, while a solver runs, how long it may still run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from partita_operator.cli.output import report

EVERY_S: Final = 5.0


@contextmanager
def counting_down(what: str, limit_s: float) -> Iterator[None]:
    """Report every few seconds how long the block has run, and how much of its limit is left."""
    began, ended = time.monotonic(), Event()

    def tell() -> None:
        while not ended.wait(EVERY_S):
            elapsed_s = time.monotonic() - began
            left_s = limit_s - elapsed_s
            rest = f"at most {left_s:.0f} s left" if left_s >= 1 else "its limit has passed; it ends soon"
            report(f"{elapsed_s:5.0f} s  {what}; {rest}")

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
