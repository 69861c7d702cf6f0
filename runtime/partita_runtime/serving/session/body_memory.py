"""How much memory all request bodies that are being read, or held, may take together, whichever server reads them."""

from types import TracebackType
from typing import Self

from partita_runtime.serving.protocol.inference import RequestError


class NoRoomError(RequestError):
    """There is no room for more of a body now."""

    def __init__(self, most: int) -> None:
        super().__init__(
            503,
            f"request bodies of more than {most} bytes in all (max_reading_bytes) are being read or held at once; "
            "try again",
            1,
        )


class BodyMemory:
    """What the bodies take that have come in part, or whose requests are held until there are replicas.

    Otherwise one that comes whole with its head is no part of it.
    """

    def __init__(self, most: int) -> None:
        """`most` is in bytes."""
        self._most = most
        self.taken = 0
        """Bytes that have been read and are waiting for the rest of their bodies, or for replicas."""

    def reading(self) -> "BodyReading":
        """For one more body; it must be ended."""
        return BodyReading(self)

    def take(self, size: int) -> None:
        """Raises NoRoomError if there is none for so many bytes more."""
        if self.taken + size > self._most:
            raise NoRoomError(self._most)
        self.taken += size

    def give(self, size: int) -> None:
        """So many bytes are not waiting any more."""
        self.taken -= size


class BodyReading:
    """One body that is being read."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._size = 0

    def grew(self, size: int) -> None:
        """So many bytes have come. Raises NoRoomError if there is none for them."""
        self._memory.take(size)
        self._size += size

    def end(self) -> None:
        """It is whole, or given up; harmless the second time."""
        self._memory.give(self._size)
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
