"""How far a peer's clock is from ours, estimated from its messages. Pure."""

from typing import Final

_SPAN_MICROS: Final = 10_000_000
"""Clocks are slewed by up to 500 ppm: 5 ms in this time."""


class ClockOffset:
    """What to add to a peer's times: our clock's lead over the peer's, plus the shortest delay of its messages.

    A time that was translated is never earlier than it really was.
    """

    def __init__(self) -> None:
        self._before: int | None = None
        self._least: int | None = None
        self._since = 0

    @property
    def micros(self) -> int:
        """The offset; 0 until a message has arrived."""
        known = [least for least in (self._before, self._least) if least is not None]
        return min(known, default=0)

    def observe(self, sent: int, received: int) -> None:
        """A message was sent at `sent` on the peer's clock and received at `received` on ours (microseconds)."""
        if self._least is None or received - self._since > _SPAN_MICROS:
            self._before, self._least, self._since = self._least, received - sent, received
        else:
            self._least = min(self._least, received - sent)
