"""The memory of all request bodies that are being read or held, by any server of the session."""

from types import TracebackType
from typing import Self


class BodyMemoryError(Exception):
    """There is not enough memory for more of a request's body now; the message says so to the client."""

    def __init__(self, most: int) -> None:
        super().__init__(f"request bodies of more than {most} bytes in all are being read or held at once. Try again.")


class BodyMemory:
    """Counts the bytes of bodies that have arrived in part, and of requests that are held until there are replicas.

    A body that arrives together with its head is not counted.
    """

    def __init__(self, most: int) -> None:
        """`most` is in bytes."""
        self._most = most
        self.taken = 0
        """Bytes of bodies that wait for the rest of them, or for replicas."""

    def reading(self) -> "BodyReading":
        """Begin with one more body; end it when it is complete or given up."""
        return BodyReading(self)

    def take(self, size: int) -> None:
        """Count `size` more bytes. Raises BodyMemoryError if they are too many."""
        if self.taken + size > self._most:
            raise BodyMemoryError(self._most)
        self.taken += size

    def give(self, size: int) -> None:
        """Count `size` bytes less."""
        self.taken -= size


class BodyReading:
    """One body that is being read or held."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._size = 0

    def grew(self, size: int) -> None:
        """`size` more bytes have arrived. Raises BodyMemoryError if they are too many."""
        self._memory.take(size)
        self._size += size

    def end(self) -> None:
        """The body is complete, or given up. Harmless the second time."""
        self._memory.give(self._size)
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
