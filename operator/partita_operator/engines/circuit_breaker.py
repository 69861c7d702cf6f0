"""When to ask a server again that was silent. Pure: callers pass the time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

FIRST_PAUSE_SECONDS: Final = 5.0
LONGEST_PAUSE_SECONDS: Final = 60.0


class CircuitBreaker:
    """Lets requests through until the server is silent; then one at a time, each after a pause.

    The pause doubles with each further silence. The first complete answer ends it. So a silent server holds one
    worker of the operator for a small part of the time, not all of them.
    """

    def __init__(
        self,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        longest_pause_seconds: float = LONGEST_PAUSE_SECONDS,
    ) -> None:
        self._first = first_pause_seconds
        self._longest = longest_pause_seconds
        self._silences = 0
        """In a row."""
        self._until = 0.0
        """When the pause ends."""
        self._running = 0
        """Requests without an end."""

    def seconds_left(self, now: float) -> float:
        """Seconds until the next request may be made; 0 if one may be made now."""
        if self._silences == 0:
            return 0.0
        return max(self._until - now, self._first if self._running else 0.0)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Surrounds each request."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def failed(self, now: float) -> None:
        """The server was silent. Requests that were made together count once."""
        if now < self._until:
            return
        pause = min(self._longest, self._first * 2.0 ** min(self._silences, 10))
        self._silences += 1
        self._until = now + pause

    def succeeded(self) -> None:
        """The server has answered."""
        self._silences, self._until = 0, 0.0
