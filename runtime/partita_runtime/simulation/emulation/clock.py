"""The virtual clock of a simulation."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

NEVER: Final = 1 << 62
"""A time after all others."""

ScheduledCall = tuple[int, int, Callable[..., None], tuple[Any, ...]]
"""(time, order among equal times, function, arguments)"""


class VirtualClock:
    """Makes calls in order of their times (microseconds); equal times in order of scheduling."""

    __slots__ = ("_calls", "_order", "now")

    def __init__(self) -> None:
        self.now = 0
        self._calls: list[ScheduledCall] = []
        """Heap."""
        self._order = count()

    def at(self, time: int, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call at a time that is not in the past."""
        heappush(self._calls, (time, next(self._order), call, arguments))

    def next_time(self) -> int:
        """The time of the next call; NEVER if there is none."""
        calls = self._calls
        return calls[0][0] if calls else NEVER

    def run_until(self, time: int) -> None:
        """Advance to a time, and make all calls that are due by then."""
        while self._calls and self._calls[0][0] <= time:
            self.now, _, call, arguments = heappop(self._calls)
            call(*arguments)
        self.now = time
