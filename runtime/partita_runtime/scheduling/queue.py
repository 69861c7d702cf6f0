"""Requests of one module that wait, by deadline."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class QueuedRequest(NamedTuple):
    """A request in the queue; they are ordered by deadline, then by id."""

    deadline: int
    request_id: int
    arrived: int
    failures: int
    """Executions of it that have failed."""


class DeadlineQueue:
    """Requests in order of deadline.

    A sorted list: requests mostly arrive in the order of their deadlines, so inserting is appending, and a batch is
    a slice of the front.
    """

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: list[QueuedRequest] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[QueuedRequest]:
        """Earliest deadline first."""
        return iter(self._requests)

    def __getitem__(self, position: int) -> QueuedRequest:
        return self._requests[position]

    def add(self, request: QueuedRequest) -> None:
        """Put a request in its place."""
        if self._requests and request < self._requests[-1]:
            insort(self._requests, request)
        else:
            self._requests.append(request)

    def __contains__(self, request: QueuedRequest) -> bool:
        position = bisect_left(self._requests, request)
        return position < len(self._requests) and self._requests[position] == request

    def front(self, count: int) -> list[QueuedRequest]:
        """The `count` requests with the earliest deadlines, which stay."""
        return self._requests[:count]

    def remove(self, request: QueuedRequest) -> None:
        """Take one request out, which must be there."""
        if request not in self:
            raise KeyError(f"request {request.request_id} is not in the queue")
        del self._requests[bisect_left(self._requests, request)]

    def remove_all(self, requests: Sequence[QueuedRequest]) -> None:
        """Take requests out, which must be there; those with the earliest deadlines at once."""
        if self._requests[: len(requests)] == requests:
            del self._requests[: len(requests)]
        else:
            for request in requests:
                self.remove(request)

    def take(self, count: int) -> list[QueuedRequest]:
        """Take the `count` requests with the earliest deadlines out."""
        taken = self._requests[:count]
        del self._requests[:count]
        return taken
