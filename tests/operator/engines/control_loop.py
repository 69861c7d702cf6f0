"""The loop of a controller that a test double plays."""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(make_pass: Callable[[], None], report: Callable[[str], None], *, every_seconds: float) -> Iterator[None]:
    """Call `make_pass` again and again in a `with` block. `report` gets the error of each, empty if none."""
    stop = threading.Event()

    def play() -> None:
        while not stop.wait(every_seconds):
            try:
                make_pass()
                report("")
            except Exception:  # a controller continues; if this lasts, the test fails by its deadline
                report(traceback.format_exc())

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)
