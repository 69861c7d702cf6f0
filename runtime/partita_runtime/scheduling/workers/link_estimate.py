"""The latency and the bandwidth of the network between two stages: as declared, then as measured."""

from typing import Final

_MEMORY: Final = 8
"""The first transfers are averaged; later ones correct the estimate by an eighth of its error."""
_DEVIATION_GAIN: Final = 1 / 4
_CAUTION: Final = 1 / 8
_DOUBT: Final = 1 / 16
_FURTHEST: Final = 16.0
_MOST_LATENCY_MICROS: Final = 1e6
_STEP: Final = 0.005
_STEP_UP: Final = 0.0005
"""Transfers that are longer than reserved add up, so the estimate rises in smaller steps than it falls."""
_SMALL_BYTES: Final = 65536.0
"""A transfer of this size tells as much of the latency as of the bandwidth."""


class LinkEstimate:
    """How long transfers over a link take: its latency, and a time for each byte.

    It starts at the declared bandwidth, without latency. Each transfer corrects it, as executions correct a profile
    (`LatencyCorrection`). An error counts for at most the predicted time: one outlier does not stop the service. Large
    transfers correct the bandwidth, small ones the latency (normalized least mean squares). While transfers match the
    declaration, nothing changes and the spread is 0.
    """

    __slots__ = (
        "_deviation",
        "_latency",
        "_per_byte",
        "actual_micros",
        "declared",
        "declared_micros",
        "latency_micros",
        "micros_per_byte",
        "spread",
        "transfers",
    )

    def __init__(self, declared: float) -> None:
        """`declared` are the microseconds for each byte; 0 if no bandwidth is declared, and transfers take no time."""
        self.declared = declared
        self._latency = 0.0
        self._per_byte = declared
        self._deviation = 0.0
        self.latency_micros = 0.0
        """From 0 to a second."""
        self.micros_per_byte = declared
        """From 1/16 to 16 times the declared ones."""
        self.spread = 0.0
        """Deviation from the estimate, as a share of it."""
        self.transfers = 0
        self.declared_micros = 0
        """Sum of the times of all transfers with the declared bandwidth."""
        self.actual_micros = 0

    def micros(self, size: int) -> int:
        """The expected time of a transfer of `size` bytes (microseconds)."""
        return round(self.latency_micros + size * self.micros_per_byte)

    def observe(self, size: int, least: int, most: int) -> bool:
        """Add a transfer (bytes) that took from `least` to `most` (microseconds); returns whether the estimate changed.

        The two differ if it may have shared the network. Then an estimate between them only rises slowly.
        """
        if not self.declared:
            return False
        predicted = round(self._latency + size * self._per_byte)
        actual = min(max(predicted, least), most)
        actual += round(_CAUTION * (most - actual))
        self.transfers += 1
        self.declared_micros += round(size * self.declared)
        self.actual_micros += actual
        error = min(actual - predicted, max(1, predicted))
        if error:
            self._share(size, error / min(_MEMORY, self.transfers))
        self._deviation += _DEVIATION_GAIN * (abs(error) / max(1, predicted) - self._deviation)
        return self._settle(size)

    def doubt(self, spread_only: bool = False) -> bool:
        """Move one step back towards the declaration; returns whether the estimate may have changed.

        Used when the estimate alone prevents transfers, so nothing more can be observed.
        """
        if not spread_only:
            self._latency -= _DOUBT * self._latency
            self._per_byte += _DOUBT * (self.declared - self._per_byte)
        self._deviation -= _DEVIATION_GAIN * self._deviation
        self._publish()
        return self.transfers > 0

    def _share(self, size: int, micros: float) -> None:
        """Correct the time of a transfer of this size by `micros`: the latency and the time for each byte."""
        weight = micros / (_SMALL_BYTES**2 + size**2)
        self._latency = min(_MOST_LATENCY_MICROS, max(0.0, self._latency + weight * _SMALL_BYTES**2))
        per_byte = self._per_byte + weight * size
        self._per_byte = min(self.declared * _FURTHEST, max(self.declared / _FURTHEST, per_byte))

    def _settle(self, size: int) -> bool:
        before = max(1.0, self.latency_micros + size * self.micros_per_byte)
        change = (self._latency + size * self._per_byte - before) / before
        if change < _STEP_UP and abs(change) + abs(self._deviation - self.spread) < _STEP:
            return False
        self._publish()
        return True

    def _publish(self) -> None:
        self.latency_micros, self.micros_per_byte = self._latency, self._per_byte
        self.spread = self._deviation
