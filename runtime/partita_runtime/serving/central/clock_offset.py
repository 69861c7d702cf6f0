"""How far a peer's clock is from ours, as far as messages can tell. Pure."""

from typing import Final

_SPAN_MICROS: Final = 10_000_000
"""Clocks are slewed by up to 500 millionths: 5 ms in this time."""


class ClockOffset:
    """What to add to a peer's times: our clock's lead over it, and the shortest way that one of its messages took.

    So a moment that it speaks of is never taken to be earlier than it was.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._least: int | None = None
        self._since = 0

    @property
    def micros(self) -> int:
        """The offset; 0 as long as nothing was received."""
        known = [least for least in (self._before, self._least) if least is not None]
        return min(known, default=0)

    def observe(self, sent: int, received: int) -> None:
        """A message was sent at a time on the peer's clock, and received at one on ours (microseconds)."""
        if self._least is None or received - self._since > _SPAN_MICROS:
            self._before, self._least, self._since = self._least, received - sent, received
        else:
            self._least = min(self._least, received - sent)
