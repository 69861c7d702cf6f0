"""The virtual clock: what happens when."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

NEVER: Final = 1 << 62
"""A time that does not come."""

ScheduledCall = tuple[int, int, Callable[..., None], tuple[Any, ...]]
"""When, in which order among equal times, what, and with which arguments."""


class VirtualClock:
    """Calls in order of their time, equal times in order of scheduling (microseconds)."""

    __slots__ = ("_order", "calls", "now")

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[ScheduledCall] = []
        """Heap of what is to come, for whoever needs to know when that is."""
        self._order = count()

    def at(self, time: int, call: Callable[..., None], *arguments: Any) -> None:
        """ScheduledCall at a time, which is not in the past."""
        heappush(self.calls, (time, next(self._order), call, arguments))

    def run_until(self, time: int) -> None:
        """Go to a time, and make all calls that are due by then."""
        while self.calls and self.calls[0][0] <= time:
            self.now, _, call, arguments = heappop(self.calls)
            call(*arguments)
        self.now = time
