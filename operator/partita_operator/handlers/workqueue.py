"""A queue of keys to process: each key is in the queue at most once and has at most one worker.

It works like client-go's: a key that is added while a worker processes it is queued again when the worker is done. A
key that failed is queued again after a pause that doubles with every failure in a row.

Keys with news come before keys whose time has come: under load, work that leads somewhere is done before anything is
looked at once more. Among each of these, the order is that of the ranks, and then of arrival.

Keys belong to groups, such as namespaces. One group never has all workers, so keys whose work takes long delay only
keys of their own group.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from heapq import heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 60.0


class _Entry(NamedTuple, Generic[K]):
    """A key that waits. The order of entries is that of their fields; numbers are unique."""

    by_time: bool
    """Whether only its time has come."""
    rank: float
    number: int
    key: K


class WorkQueue(Generic[K]):
    """Keys to process now or later. For use in one event loop."""

    def __init__(
        self,
        first_backoff_s: float = FIRST_BACKOFF_S,
        max_backoff_s: float = MAX_BACKOFF_S,
        rank: Callable[[K], float] = lambda _: 0,
        group: Callable[[K], Hashable] = lambda key: key,
        on_taken: Callable[[float, bool], None] = lambda _seconds, _by_time: None,
    ) -> None:
        """Keys of a lower `rank` are processed earlier. All keys of one `group` share three quarters of the workers.

        `on_taken` receives the seconds that a key waited, and whether only its time had come.
        """
        self._waiting: list[_Entry[K]] = []
        """A heap. May have older entries of a key."""
        self._held_back: dict[Hashable, list[_Entry[K]]] = {}
        """Heaps of the entries whose group has its share of the workers, by group."""
        self._group = group
        self._workers_of: Counter[Hashable] = Counter()
        self._share = 1
        """Most workers of one group."""
        self._numbers = itertools.count()
        self._rank = rank
        self._on_taken = on_taken
        self._since: dict[K, float] = {}
        """When each waiting key began to wait for a worker."""
        self._queued: dict[K, bool] = {}
        """Whether only its time has come; False: it was added."""
        self._in_work: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._arrived = asyncio.Event()
        self._first_backoff_s = first_backoff_s
        self._max_backoff_s = max_backoff_s

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._queued.keys() - self._in_work)

    def add(self, key: K) -> None:
        """Process the key as soon as a worker is free; drops a later time that was planned."""
        self._cancel_timer(key)
        self._enqueue(key, by_time=False)

    def add_after(self, key: K, seconds: float) -> None:
        """Process the key in `seconds`, unless an earlier time is planned."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        planned = self._timers.get(key)
        if key in self._queued or (planned is not None and planned.when() <= loop.time() + seconds):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self._time_has_come, key)

    def forget(self, key: K) -> None:
        """Drop the key's planned time and its failures."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def run(self, work: Callable[[K], Awaitable[float | None]], workers: int) -> None:
        """Process keys with `workers` workers until cancelled.

        `work` returns the seconds until the key is processed again; None: when it is added again. If `work` raises, the
        key is queued after its backoff. `work` reports its errors.
        """
        self._share = max(1, workers * 3 // 4)
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(work))

    async def _work(self, work: Callable[[K], Awaitable[float | None]]) -> None:
        while True:
            key = await self._take()
            again: float | None = None
            try:
                again = await work(key)
                self._failures.pop(key, None)
            except Exception:
                again = self._backoff(key)
            finally:
                self._done(key)
            if again is not None:
                self.add_after(key, again)

    async def _take(self) -> K:
        while True:
            while self._waiting:
                entry = heappop(self._waiting)
                group = self._group(entry.key)
                if not self._is_current(entry):
                    continue
                if self._workers_of[group] >= self._share:
                    heappush(self._held_back.setdefault(group, []), entry)
                    continue
                del self._queued[entry.key]
                self._in_work.add(entry.key)
                self._workers_of[group] += 1
                self._on_taken(asyncio.get_running_loop().time() - self._since.pop(entry.key), entry.by_time)
                return entry.key
            self._arrived.clear()
            await self._arrived.wait()

    def _is_current(self, entry: "_Entry[K]") -> bool:
        return entry.key not in self._in_work and self._queued.get(entry.key) is entry.by_time

    def _done(self, key: K) -> None:
        self._in_work.discard(key)
        if key in self._queued:
            self._push(key)
        group = self._group(key)
        self._workers_of[group] -= 1
        if not self._workers_of[group]:
            del self._workers_of[group]
        self._let_next_of(group)

    def _let_next_of(self, group: Hashable) -> None:
        """A worker of the group is free again: its first entry waits with those of other groups."""
        held_back = self._held_back.get(group, [])
        while held_back:
            entry = heappop(held_back)
            if self._is_current(entry):
                heappush(self._waiting, entry)
                self._arrived.set()
                break
        if not held_back:
            self._held_back.pop(group, None)

    def _time_has_come(self, key: K) -> None:
        self._timers.pop(key, None)
        self._enqueue(key, by_time=True)

    def _enqueue(self, key: K, *, by_time: bool) -> None:
        if not self._queued.get(key, True) or (by_time and key in self._queued):
            return
        if not by_time:
            self._since.pop(key, None)  # the news began to wait now, whenever the time of the key came
        self._queued[key] = by_time
        if key not in self._in_work:
            self._push(key)

    def _push(self, key: K) -> None:
        self._since.setdefault(key, asyncio.get_running_loop().time())
        heappush(self._waiting, _Entry(self._queued[key], self._rank(key), next(self._numbers), key))
        self._arrived.set()

    def _backoff(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._max_backoff_s, self._first_backoff_s * 2.0 ** min(failures, 30))

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
