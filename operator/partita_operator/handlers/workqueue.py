"""A queue of keys to process: each key is in the queue at most once and has at most one worker.

It works like client-go's: a key that is added while a worker processes it is queued again when the worker is done. A
key that failed is queued again after a pause that doubles with every failure in a row.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 60.0


class WorkQueue(Generic[K]):
    """Keys to process now or later. For use in one event loop."""

    def __init__(self, first_backoff_s: float = FIRST_BACKOFF_S, max_backoff_s: float = MAX_BACKOFF_S) -> None:
        self._waiting: deque[K] = deque()
        self._queued: set[K] = set()
        self._in_work: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._arrived = asyncio.Event()
        self._first_backoff_s = first_backoff_s
        self._max_backoff_s = max_backoff_s

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Process the key as soon as a worker is free; drops a later time that was planned."""
        self._cancel_timer(key)
        if key in self._queued:
            return
        self._queued.add(key)
        if key not in self._in_work:
            self._waiting.append(key)
            self._arrived.set()

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
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def forget(self, key: K) -> None:
        """Drop the key's planned time and its failures."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def run(self, work: Callable[[K], Awaitable[float | None]], workers: int) -> None:
        """Process keys with `workers` workers until cancelled.

        `work` returns the seconds until the key is processed again; None: when it is added again. If `work` raises, the
        key is queued after its backoff. `work` reports its errors.
        """
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
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()
        key = self._waiting.popleft()
        self._queued.discard(key)
        self._in_work.add(key)
        return key

    def _done(self, key: K) -> None:
        self._in_work.discard(key)
        if key in self._queued:
            self._waiting.append(key)
            self._arrived.set()

    def _backoff(self, key: K) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(self._max_backoff_s, self._first_backoff_s * 2.0 ** min(failures, 30))

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
