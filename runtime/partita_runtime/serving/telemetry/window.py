"""The snapshots of a session's autoscaling window. Pure."""

from collections import deque
from typing import Final

from partita_runtime.serving.telemetry.signals import Meter, SessionSignals, Situation, Snapshot, session_signals

_SNAPSHOT_MICROS: Final = 1_000_000


class Window:
    """Snapshots of a session's counters, one each second, as far back as its window."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._snapshots: deque[Snapshot] = deque()

    def is_due(self, now: int) -> bool:
        """Whether the next snapshot is due."""
        return not self._snapshots or now - self._snapshots[-1].at >= _SNAPSHOT_MICROS

    def keep(self, snapshot: Snapshot, micros: int) -> None:
        """Keep a snapshot, and only as many earlier ones as a window of `micros` needs."""
        self._snapshots.append(snapshot)
        while len(self._snapshots) > 1 and self._snapshots[1].at <= snapshot.at - micros:
            self._snapshots.popleft()
        self._meter.forget(self._snapshots[0].at)

    def signals(self, situation: Situation, now: Snapshot, micros: int) -> SessionSignals:
        """The signals of the window that ends with a snapshot."""
        oldest = self._snapshots[0] if self._snapshots else now
        before = next((s for s in reversed(self._snapshots) if s.at <= now.at - micros), oldest)
        return session_signals(situation, before, now, self._meter.latencies)
