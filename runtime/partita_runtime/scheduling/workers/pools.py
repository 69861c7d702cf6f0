"""Workers (vGPUs), the nodes that they are on, and the pools that they form."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from partita_runtime.scheduling.reservations.timeline import Timeline
from partita_runtime.scheduling.workers.free_index import NEVER, FreeIndex

_SINGLES: Final = 9
"""The square of the three standard deviations that single requests are given."""


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

    __slots__ = (
        "busy_micros",
        "draining",
        "idle",
        "last_end",
        "more_places",
        "name",
        "node",
        "number",
        "pools",
        "row",
        "since",
    )

    def __init__(self, name: str, node: Node, since: int) -> None:
        super().__init__()
        self.name = name
        self.node = node
        self.since = since
        self.draining = False
        self.pools: dict[WorkerPool, int] = {}
        """Its number in each pool."""
        self.row: Row | None = None
        """A row that it is in; mostly there is no other."""
        self.number = 0
        """Its number there."""
        self.more_places: list[tuple[Row, int]] = []
        """The other rows that it is in, and its number in each."""
        self.idle = True
        """Whether nothing is reserved on it."""
        self.last_end = since
        """When its last execution ended."""
        self.busy_micros = 0
        """Time of all executions that ended."""

    def changed(self) -> None:
        row = self.row
        was_idle = self.idle
        self.idle = not self.reservations
        if row is not None:
            row.note(self, self.number, was_idle)
            if self.more_places:
                for row, number in self.more_places:
                    row.note(self, number, was_idle)

    def enter(self, row: "Row", number: int) -> None:
        """It is in a row with this number from now on."""
        if self.row is None:
            self.row, self.number = row, number
        else:
            self.more_places.append((row, number))

    def quit(self, row: "Row") -> None:
        """It is in a row no longer."""
        if self.row is not row:
            self.more_places = [place for place in self.more_places if place[0] is not row]
        elif self.more_places:
            self.row, self.number = self.more_places.pop()
        else:
            self.row = None

    def rows(self) -> "list[Row]":
        """All rows that it is in."""
        return [] if self.row is None else [self.row, *[row for row, _ in self.more_places]]

    def busy_until(self, now: int) -> int:
        """Time it worked since it joined, what runs now included (microseconds)."""
        running = sum(max(0, min(now, r.end) - max(r.start, self.last_end)) for r in self.reservations if r.start < now)
        return self.busy_micros + running


class Row:
    """Workers by their numbers, and when they become free; pools with the same workers in the same order share it."""

    __slots__ = ("free", "gaps", "idle", "size", "users", "workers")

    def __init__(self, workers: "list[Worker | None]") -> None:
        self.workers = workers
        self.users = 1
        """Pools that have it."""
        there = [worker for worker in workers if worker is not None]
        self.size = len(there)
        self.idle = len([worker for worker in there if worker.idle])
        """Workers on which nothing is reserved."""
        self.free = FreeIndex([NEVER if worker is None else worker.tail for worker in workers])
        """By the end of a worker's last reservation."""
        self.gaps: FreeIndex | None = None
        """By the negative start of a worker's last reservation, once somebody has asked."""
        for number, worker in enumerate(workers):
            if worker is not None:
                worker.enter(self, number)

    def dissolve(self) -> None:
        """No pool has it any more."""
        for worker in self.workers:
            if worker is not None:
                worker.quit(self)

    def note(self, worker: Worker, number: int, was_idle: bool) -> None:
        """What is reserved on the worker with this number has changed."""
        if worker.idle != was_idle:
            self.idle += 1 if worker.idle else -1
        self.free.set(number, worker.tail)
        if self.gaps is not None:
            self.gaps.set(number, -worker.last_start)

    def is_short(self, batch: int) -> bool:
        """Whether fewer workers are idle than batches of this size may ask for at once.

        Of N workers about sqrt(N) more than usual are asked for now and then, and up to three times as many where the
        batches are single requests, which come as they like.
        """
        idle = self.idle * self.idle
        return idle < self.size or idle * batch * batch < _SINGLES * self.size

    def has_become_short(self) -> bool:
        """Whether that is so since the last worker that became busy, for single requests or for any batch."""
        idle, before = self.idle * self.idle, (self.idle + 1) * (self.idle + 1)
        return idle < self.size <= before or idle < _SINGLES * self.size <= before

    def worker(self, number: int) -> Worker:
        """The worker with a number."""
        worker = self.workers[number]
        assert worker is not None
        return worker

    def soonest(self, ready: int) -> int:
        """The worker that can start soonest behind all of its reservations; the lowest number among equals."""
        number = self.free.first_free(ready)
        return number if number >= 0 else self.free.earliest()

    def next_with_room(self, number: int, before: int, last_from: int) -> int:
        """The first worker, from a number on, on which an execution may start before a time; -1 if there is none.

        Its last reservation ends before that time, or starts at `last_from` or later, so that there may be a gap.
        """
        if self.gaps is None:
            self.gaps = FreeIndex([NEVER if worker is None else -worker.last_start for worker in self.workers])
        free = self.free.first_free(before - 1, number)
        roomy = self.gaps.first_free(-last_from, number)
        if free < 0 or roomy < 0:
            return free if roomy < 0 else roomy
        return free if free < roomy else roomy


class WorkerPool:
    """The workers of one stage, numbered from 0: a new one gets the lowest number that is not in use.

    Low numbers are preferred, so that under low load the high ones stay idle and can be given back.
    """

    __slots__ = ("_row", "_unused", "_workers", "changes", "size")

    def __init__(self) -> None:
        self._workers: list[Worker | None] = []
        self._unused: list[int] = []
        self._row: Row | None = None
        """None after a change, until it is needed."""
        self.size = 0
        self.changes = 0
        """How often a worker came or went."""

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Worker]:
        """The workers, lowest number first."""
        return iter([worker for worker in self._workers if worker is not None])

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
        self.size += 1
        self._forget_row()

    def leave(self, worker: Worker) -> None:
        """Give a worker no more batches."""
        number = worker.pools.pop(self)
        self._workers[number] = None
        heappush(self._unused, number)
        self.size -= 1
        self._forget_row()

    def row(self) -> Row:
        """The workers as they are now; the pool must not be empty."""
        if self._row is None:
            self._row = self._shared_row()
            if self._row is None:
                self._row = Row([*self._workers])
            else:
                self._row.users += 1
        return self._row

    def earliest_at_end(self, ready: int) -> tuple[Worker, int]:
        """The worker that can start soonest behind all of its reservations, and when; the lowest number among equals.

        The pool must not be empty.
        """
        row = self.row()
        worker = row.worker(row.soonest(ready))
        return worker, max(ready, worker.tail)

    def has_another_free(self, ready: int, besides: Worker) -> bool:
        """Whether some other worker than `besides` could start at `ready`."""
        row = self.row()
        number = row.free.first_free(ready)
        if number >= 0 and row.workers[number] is besides:
            number = row.free.first_free(ready, number + 1)
        return number >= 0

    def _forget_row(self) -> None:
        self.changes += 1
        if self._row is not None:
            self._row.users -= 1
            if not self._row.users:
                self._row.dissolve()
            self._row = None

    def _shared_row(self) -> Row | None:
        """The row of another pool that has the same workers, as those of several models on the same vGPUs do."""
        for worker in self._workers:
            if worker is not None:
                for row in worker.rows():
                    if row.workers == self._workers:
                        return row
                break
        return None
