"""Workers (one per vGPU), their nodes, and the pools that they form."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from partita_runtime.scheduling.workers.free_index import NEVER, FreeIndex
from partita_runtime.scheduling.workers.timeline import Timeline

_SINGLE_REQUESTS: Final = 9
"""The square of 3: for batches of one request, three standard deviations of idle workers are kept."""
_KEPT_ENDS: Final = 16


class NodeLink(Timeline):
    """One direction of a node's network."""

    __slots__ = ("ends",)

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []
        """When its last transfers ended, the latest one last."""

    def ended_since(self, time: int) -> int:
        """How many of its last transfers ended after this time."""
        count = 0
        for end in self.ends:
            if end > time:
                count += 1
        return count

    def transferred(self, now: int) -> None:
        """A transfer has ended."""
        self.ends.append(now)
        if len(self.ends) > _KEPT_ENDS:
            del self.ends[0]


class WorkerNode:
    """One node; its network has two directions, each used by one transfer at a time."""

    __slots__ = ("downlink", "name", "uplink", "workers")

    def __init__(self, name: str) -> None:
        self.name = name
        self.uplink = NodeLink()
        self.downlink = NodeLink()
        self.workers: list[Worker] = []


class Worker(Timeline):
    """One vGPU: it runs one batch at a time, for every pool that it belongs to."""

    __slots__ = (
        "busy_micros",
        "draining",
        "idle",
        "index",
        "last_end",
        "more_indexes",
        "name",
        "node",
        "number",
        "pools",
        "since",
    )

    def __init__(self, name: str, node: WorkerNode, since: int) -> None:
        super().__init__()
        self.name = name
        self.node = node
        self.since = since
        self.draining = False
        self.pools: dict[WorkerPool, int] = {}
        """Its number in each pool."""
        self.index: WorkerIndex | None = None
        """The first index that contains it; most workers are in one index only."""
        self.number = 0
        """Its number in `index`."""
        self.more_indexes: list[tuple[WorkerIndex, int]] = []
        """The other indexes that contain it, with its number in each."""
        self.idle = True
        """Whether it has no reservation."""
        self.last_end = since
        """When its last execution ended."""
        self.busy_micros = 0
        """Total time of the executions that ended."""

    def changed(self) -> None:
        index = self.index
        was_idle = self.idle
        self.idle = not self.reservations
        if index is not None:
            index.update(self, self.number, was_idle)
            if self.more_indexes:
                for index, number in self.more_indexes:
                    index.update(self, number, was_idle)

    def join_index(self, index: "WorkerIndex", number: int) -> None:
        """An index contains it from now on, with this number."""
        if self.index is None:
            self.index, self.number = index, number
        else:
            self.more_indexes.append((index, number))

    def leave_index(self, index: "WorkerIndex") -> None:
        """An index no longer contains it."""
        if self.index is not index:
            self.more_indexes = [entry for entry in self.more_indexes if entry[0] is not index]
        elif self.more_indexes:
            self.index, self.number = self.more_indexes.pop()
        else:
            self.index = None

    def indexes(self) -> "list[WorkerIndex]":
        """All indexes that contain it."""
        return [] if self.index is None else [self.index, *[index for index, _ in self.more_indexes]]

    def busy_until(self, now: int) -> int:
        """Busy time since it joined, including the running batch (microseconds)."""
        running = sum(max(0, min(now, r.end) - max(r.start, self.last_end)) for r in self.reservations if r.start < now)
        return self.busy_micros + running


class WorkerIndex:
    """Workers by their numbers, and when they become free; pools with the same workers in the same order share it."""

    __slots__ = ("free", "gaps", "idle", "size", "users", "workers")

    def __init__(self, workers: "list[Worker | None]") -> None:
        self.workers = workers
        self.users = 1
        """Pools that use it."""
        present = [worker for worker in workers if worker is not None]
        self.size = len(present)
        self.idle = len([worker for worker in present if worker.idle])
        """Workers without reservations."""
        self.free = FreeIndex([NEVER if worker is None else worker.tail for worker in workers])
        """By the end of a worker's last reservation."""
        self.gaps: FreeIndex | None = None
        """By the negative start of a worker's last reservation; built when it is first needed."""
        for number, worker in enumerate(workers):
            if worker is not None:
                worker.join_index(self, number)

    def dissolve(self) -> None:
        """No pool uses it any more: remove it from its workers."""
        for worker in self.workers:
            if worker is not None:
                worker.leave_index(self)

    def update(self, worker: Worker, number: int, was_idle: bool) -> None:
        """The reservations of the worker with this number have changed."""
        if worker.idle != was_idle:
            self.idle += 1 if worker.idle else -1
        self.free.set(number, worker.tail)
        if self.gaps is not None:
            self.gaps.set(number, -worker.last_start)

    def is_short(self, batch: int) -> bool:
        """Whether fewer workers are idle than batches of this size may need at once.

        The number of busy workers fluctuates by about sqrt(N) of N workers, and by up to three times as much for
        batches of single requests, which arrive independently.
        """
        idle = self.idle * self.idle
        return idle < self.size or idle * batch * batch < _SINGLE_REQUESTS * self.size

    def has_become_short(self) -> bool:
        """Whether the last worker that became busy made it short, for single requests or for any batch."""
        idle, before = self.idle * self.idle, (self.idle + 1) * (self.idle + 1)
        return idle < self.size <= before or idle < _SINGLE_REQUESTS * self.size <= before

    def worker(self, number: int) -> Worker:
        """The worker with a number."""
        worker = self.workers[number]
        assert worker is not None
        return worker

    def soonest(self, ready: int) -> int:
        """The worker that can start soonest after all of its reservations; the lowest number among equals."""
        number = self.free.first_free(ready)
        return number if number >= 0 else self.free.earliest()

    def next_with_gap(self, number: int, before: int, last_from: int) -> int:
        """The first worker, from a number on, on which an execution may start before a time; -1 if there is none.

        Its last reservation ends before that time, or starts at `last_from` or later, so there may be a gap before it.
        """
        if self.gaps is None:
            self.gaps = FreeIndex([NEVER if worker is None else -worker.last_start for worker in self.workers])
        free = self.free.first_free(before - 1, number)
        with_gap = self.gaps.first_free(-last_from, number)
        if free < 0 or with_gap < 0:
            return free if with_gap < 0 else with_gap
        return free if free < with_gap else with_gap


class WorkerPool:
    """The workers of one stage, numbered from 0: a new worker gets the lowest number that is not in use.

    Low numbers are preferred: under low load the workers with high numbers stay idle and can be removed.
    """

    __slots__ = ("_index", "_unused", "_workers", "changes", "size")

    def __init__(self) -> None:
        self._workers: list[Worker | None] = []
        self._unused: list[int] = []
        self._index: WorkerIndex | None = None
        """None after a change, until it is needed."""
        self.size = 0
        self.changes = 0
        """How often a worker joined or left."""

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Worker]:
        """The workers, lowest number first."""
        return iter([worker for worker in self._workers if worker is not None])

    def join(self, worker: Worker) -> None:
        """Add a worker, unless the pool has it."""
        if self in worker.pools:
            return
        if self._unused:
            number = heappop(self._unused)
            self._workers[number] = worker
        else:
            number = len(self._workers)
            self._workers.append(worker)
        worker.pools[self] = number
        self.size += 1
        self._drop_index()

    def leave(self, worker: Worker) -> None:
        """Remove a worker: it gets no more batches."""
        number = worker.pools.pop(self)
        self._workers[number] = None
        heappush(self._unused, number)
        self.size -= 1
        self._drop_index()

    def index(self) -> WorkerIndex:
        """The index of the present workers; the pool must not be empty."""
        if self._index is None:
            self._index = self._shared_index()
            if self._index is None:
                self._index = WorkerIndex([*self._workers])
            else:
                self._index.users += 1
        return self._index

    def has_another_free(self, ready: int, besides: Worker) -> bool:
        """Whether a worker other than `besides` can start at `ready`."""
        index = self.index()
        number = index.free.first_free(ready)
        if number >= 0 and index.workers[number] is besides:
            number = index.free.first_free(ready, number + 1)
        return number >= 0

    def _drop_index(self) -> None:
        self.changes += 1
        if self._index is not None:
            self._index.users -= 1
            if not self._index.users:
                self._index.dissolve()
            self._index = None

    def _shared_index(self) -> WorkerIndex | None:
        """The index of another pool with the same workers, such as that of another model on the same vGPUs."""
        for worker in self._workers:
            if worker is not None:
                for index in worker.indexes():
                    if index.workers == self._workers:
                        return index
                break
        return None
