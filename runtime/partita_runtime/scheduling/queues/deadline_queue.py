"""Requests of one module that wait, by deadline."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, cast

from mypy_extensions import mypyc_attr

_DEADLINE: Final = attrgetter("deadline")


@mypyc_attr(acyclic=True)
class QueuedRequest:
    """A request in the core; in a queue they are ordered by deadline, then by id."""

    __slots__ = ("arrived", "batch_id", "deadline", "failures", "key", "module", "waits")

    def __init__(self, deadline: int, key: object, arrived: int, failures: int, module: str = "") -> None:
        self.deadline = deadline
        self.key = key
        """The request's id, an int. Compiled code would make another object of an int at each use of it; with tens of
        thousands of requests in flight, what counts is how many objects each of them has.
        """
        self.arrived = arrived
        self.failures = failures
        """Executions of it that have failed."""
        self.module = module
        self.waits = False
        """Whether it is in the queue of its module."""
        self.batch_id = -1
        """The batch that it was last put into."""

    @property
    def request_id(self) -> int:
        """The request's id."""
        return cast("int", self.key)

    def precedes(self, other: "QueuedRequest") -> bool:
        """Whether it comes before another one in a queue."""
        if self.deadline == other.deadline:
            return self.request_id < other.request_id
        return self.deadline < other.deadline


class DeadlineQueue:
    """Requests in order of deadline.

    A sorted list: requests mostly arrive in the order of their deadlines, so inserting is appending, and a batch is
    a slice of the front.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[QueuedRequest] = []
        """Earliest deadline first; only to be read."""

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Earliest deadline first."""
        return iter(self.waiting)

    def __getitem__(self, position: int) -> QueuedRequest:
        return self.waiting[position]

    def add(self, request: QueuedRequest) -> None:
        """Put a request in its place."""
        request.waits = True
        waiting = self.waiting
        if not waiting or waiting[-1].deadline < request.deadline or waiting[-1].precedes(request):
            waiting.append(request)
            return
        position = bisect_right(waiting, request.deadline, key=_DEADLINE)
        while position and request.precedes(waiting[position - 1]):
            position -= 1
        waiting.insert(position, request)

    def front(self, count: int) -> list[QueuedRequest]:
        """The `count` requests with the earliest deadlines, which stay."""
        return self.waiting[:count]

    def remove(self, request: QueuedRequest) -> None:
        """Take one request out, which must be there."""
        if not request.waits:
            raise KeyError(f"request {request.request_id} is not in the queue")
        position = bisect_right(self.waiting, request.deadline, key=_DEADLINE) - 1
        while self.waiting[position] is not request:
            position -= 1
        del self.waiting[position]
        request.waits = False

    def remove_all(self, requests: Sequence[QueuedRequest]) -> None:
        """Take requests out, which must be there; those with the earliest deadlines at once."""
        count = len(requests)
        if self.waiting[:count] == requests:
            del self.waiting[:count]
            for request in requests:
                request.waits = False
        else:
            for request in requests:
                self.remove(request)

    def take(self, count: int) -> list[QueuedRequest]:
        """Take the `count` requests with the earliest deadlines out."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        for request in taken:
            request.waits = False
        return taken
