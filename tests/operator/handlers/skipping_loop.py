"""An event loop whose clock jumps to the next timer: pauses between attempts take no time in a test."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _LeapingSelector(selectors.DefaultSelector):
    """Does not wait; adds the requested time to the clock."""

    leapt = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.leapt += timeout
        return ready


class _LeapingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaping = _LeapingSelector()
        super().__init__(self._leaping)

    def time(self) -> float:
        return super().time() + self._leaping.leapt


def run(steps: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits only for timers."""
    with asyncio.Runner(loop_factory=_LeapingLoop) as runner:
        return runner.run(steps)
