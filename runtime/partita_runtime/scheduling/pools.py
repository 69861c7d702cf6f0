"""Workers (vGPUs), the nodes that they are on, and the pools that they form."""

from collections.abc import Iterator
from heapq import heappop, heappush

from partita_runtime.scheduling.free_index import NEVER, FreeIndex
from partita_runtime.scheduling.timeline import Timeline


class Node:
    """One machine; its network has two directions, each used by one transfer at a time."""

    __slots__ = ("downlink", "name", "uplink", "workers")

    def __init__(self, name: str) -> None:
        self.name = name
        self.uplink = Timeline()
        self.downlink = Timeline()
        self.workers: list[Worker] = []


class Worker(Timeline):
    """One vGPU: it runs one batch at a time, for every pool that it is in."""

    __slots__ = ("busy_micros", "draining", "last_end", "name", "node", "pools", "since")

    def __init__(self, name: str, node: Node, since: int) -> None:
        super().__init__()
        self.name = name
        self.node = node
        self.since = since
        self.draining = False
        self.pools: dict[WorkerPool, int] = {}
        """Its number in each pool."""
        self.last_end = since
        """When its last execution ended."""
        self.busy_micros = 0
        """Time of all executions that ended."""

    def changed(self) -> None:
        free_at = self.tail
        for pool, number in self.pools.items():
            pool.free.set(number, free_at)

    def starts_after(self, ready: int, length: int, bound: int) -> bool:
        """Whether an execution surely starts at `bound` or later: a quick look, no search for gaps."""
        last = self.reservations[-1] if self.reservations else None
        return last is not None and last.end >= bound and last.start - ready < length

    def busy_until(self, now: int) -> int:
        """Time it worked since it joined, what runs now included (microseconds)."""
        running = sum(max(0, min(now, r.end) - max(r.start, self.last_end)) for r in self.reservations if r.start < now)
        return self.busy_micros + running


class WorkerPool:
    """The workers of one stage, numbered from 0: a new one gets the lowest number that is not in use.

    Low numbers are preferred, so that under low load the high ones stay idle and can be given back.
    """

    __slots__ = ("_unused", "_workers", "free")

    def __init__(self) -> None:
        self._workers: list[Worker | None] = []
        self._unused: list[int] = []
        self.free = FreeIndex()

    def __len__(self) -> int:
        return len(self._workers) - len(self._unused)

    def __iter__(self) -> Iterator[Worker]:
        """The workers, lowest number first."""
        return (worker for worker in self._workers if worker is not None)

    def join(self, worker: Worker) -> None:
        """Take a worker in, unless it is."""
        if self in worker.pools:
            return
        if self._unused:
            number = heappop(self._unused)
            self._workers[number] = worker
        else:
            number = len(self._workers)
            self._workers.append(worker)
        worker.pools[self] = number
        self.free.set(number, worker.tail)

    def leave(self, worker: Worker) -> None:
        """Give a worker no more batches."""
        number = worker.pools.pop(self)
        self._workers[number] = None
        heappush(self._unused, number)
        self.free.set(number, NEVER)

    def earliest_at_end(self, ready: int) -> tuple[Worker, int]:
        """The worker that can start soonest behind all of its reservations, and when; the lowest number among equals.

        The pool must not be empty.
        """
        number = self.free.first_free(ready)
        start = ready
        if number is None:
            number, start = self.free.earliest()
        worker = self._workers[number]
        assert worker is not None
        return worker, start

    def free_at(self, ready: int) -> Iterator[Worker]:
        """Workers without reservations from `ready` on, lowest number first."""
        number = self.free.first_free(ready)
        while number is not None:
            worker = self._workers[number]
            assert worker is not None
            yield worker
            number = self.free.first_free(ready, number + 1)

    def has_another_free(self, ready: int, besides: Worker | None) -> bool:
        """Whether some other worker than `besides` could start at `ready`."""
        return any(worker is not besides for worker in self.free_at(ready))
