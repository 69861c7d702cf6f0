"""The virtual clock: what happens when."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any


class VirtualClock:
    """Calls in order of their time, equal times in order of scheduling (microseconds)."""

    __slots__ = ("_calls", "_order", "now")

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()

    def at(self, time: int, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a time, which is not in the past."""
        heappush(self._calls, (time, next(self._order), call, arguments))

    @property
    def next_time(self) -> int | None:
        """Time of the next call; None if there is none."""
        return self._calls[0][0] if self._calls else None

    def run_until(self, time: int) -> None:
        """Go to a time, and make all calls that are due by then."""
        while self._calls and self._calls[0][0] <= time:
            self.now, _, call, arguments = heappop(self._calls)
            call(*arguments)
        self.now = time
