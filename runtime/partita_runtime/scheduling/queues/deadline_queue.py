"""The waiting requests of one module, by deadline."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, cast

from mypy_extensions import mypyc_attr

_DEADLINE: Final = attrgetter("deadline")


@mypyc_attr(acyclic=True)
class QueuedRequest:
    """A request in the core; a queue orders requests by deadline, then by id."""

    __slots__ = ("arrived", "batch_id", "call", "deadline", "failures", "key", "module", "waits")

    def __init__(
        self, deadline: int, key: object, arrived: int, failures: int, module: str = "", call: object = None
    ) -> None:
        self.deadline = deadline
        self.key = key
        """The request's id, an int, typed as object: compiled code would create a new int object at each use. With
        tens of thousands of requests in flight, the number of objects per request decides the speed.
        """
        self.arrived = arrived
        self.failures = failures
        """Failed executions of this request."""
        self.module = module
        self.call = call
        """The number of its call, an int; None if it is a call of its own."""
        self.waits = False
        """Whether it is in the queue of its module."""
        self.batch_id = -1
        """The last batch that contained it; -1 if none did."""

    @property
    def request_id(self) -> int:
        """The request's id."""
        return cast("int", self.key)

    def precedes(self, other: "QueuedRequest") -> bool:
        """Whether it comes before another request in a queue."""
        if self.deadline == other.deadline:
            return self.request_id < other.request_id
        return self.deadline < other.deadline


class DeadlineQueue:
    """Requests in order of deadline.

    A sorted list: requests mostly arrive in the order of their deadlines, so an insertion is mostly an append, and
    a batch is a slice of the front.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[QueuedRequest] = []
        """Earliest deadline first; read only."""

    def __len__(self) -> int:
        return len(self.waiting)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Earliest deadline first."""
        return iter(self.waiting)

    def __getitem__(self, position: int) -> QueuedRequest:
        return self.waiting[position]

    def add(self, request: QueuedRequest) -> None:
        """Insert a request by its deadline."""
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
        """The `count` requests with the earliest deadlines, without removing them."""
        return self.waiting[:count]

    def remove(self, request: QueuedRequest) -> None:
        """Remove one request; raises KeyError if it is not in the queue."""
        if not request.waits:
            raise KeyError(f"request {request.request_id} is not in the queue")
        position = bisect_right(self.waiting, request.deadline, key=_DEADLINE) - 1
        while self.waiting[position] is not request:
            position -= 1
        del self.waiting[position]
        request.waits = False

    def remove_all(self, requests: Sequence[QueuedRequest]) -> None:
        """Remove requests, all of which must be in the queue; fast for a slice of the front."""
        count = len(requests)
        if self.waiting[:count] == requests:
            del self.waiting[:count]
            for request in requests:
                request.waits = False
        else:
            for request in requests:
                self.remove(request)

    def take(self, count: int) -> list[QueuedRequest]:
        """Remove and return the `count` requests with the earliest deadlines."""
        taken = self.waiting[:count]
        del self.waiting[:count]
        for request in taken:
            request.waits = False
        return taken
