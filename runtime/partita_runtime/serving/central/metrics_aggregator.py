"""The measurements of a session whose requests come to several frontends, gathered at its rank. Pure."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.central.messages import Measured, Part
from partita_runtime.serving.telemetry.signals import Meter, Situation, Snapshot
from partita_runtime.serving.telemetry.window import Window

_LATENCIES: Final = 20_000
"""Most answers that percentiles are of: they are looked at between scheduling decisions."""


class Scheduled(NamedTuple):
    """How the frontend with some seat is scheduled."""

    plan: SchedulingPlan
    source: str
    """Which core it is."""
    signals: CoreSignals


class Gathering:
    """What all frontends of a session have said of themselves. `now` is on the rank's clock (microseconds)."""

    def __init__(self, session_key: str, now: int) -> None:
        self._session_key = session_key
        self._meter = Meter(latencies=deque(maxlen=_LATENCIES))
        self._window = Window(self._meter)
        self._window.keep(Snapshot(now, 0, {}, None), 0)
        self._parts: dict[Hashable, tuple[int, Part]] = {}
        """By frontend: since when it has used its plan, and what it said last."""

    def take(self, frontend: Hashable, part: Part, now: int) -> None:
        """A frontend says what it is at, and what it has counted since it last did."""
        self._parts[frontend] = (now - part.used_micros, part)
        self._meter.arrived += part.arrived
        self._meter.cut_off.update(part.cut_off)
        self._meter.held += part.were_held[0]
        self._meter.held_micros += part.were_held[1]
        for outcome, latency, samples in part.ended:
            self._meter.ended(outcome, latency, now, samples)

    def leave(self, frontend: Hashable) -> None:
        """A frontend is gone; what it counted stays."""
        self._parts.pop(frontend, None)

    def measured(self, scheduled: Callable[[str], Scheduled | None], now: int) -> Measured:
        """What was measured of all of them; `scheduled` answers by seat.

        The plan is the one that a frontend has used for longest, so that its replicas stay as long as any uses them.
        """
        parts = [part for _, part in sorted(self._parts.values(), key=lambda since_part: since_part[0])]
        used = [part for part in parts if part.plan is not None]
        shown = scheduled(used[0].seat) if used else None
        situation = Situation(
            session=self._session_key,
            plan=shown.plan if shown else None,
            next_plan=_next_plan(parts, used),
            message=next((part.message for part in parts if part.message), ""),
        )
        snapshot = Snapshot(
            now,
            self._meter.arrived,
            dict(self._meter.outcomes),
            shown.signals if shown else None,
            shown.source if shown else "",
        )
        micros = max((part.window_micros for part in parts), default=0)
        signals = self._window.signals(situation, snapshot, micros)
        if self._window.is_due(now):
            self._window.keep(snapshot, micros)
        said = {
            "grpc_address": _listed(part.grpc_address for part in parts),
            "http_address": _listed(part.http_address for part in parts),
            "held": sum(part.held for part in parts),
            "idle_seconds": min((part.idle_micros for part in parts), default=0) / 1e6,
        }
        return Measured(
            signals=signals.model_copy(update=said),
            outcomes=dict(self._meter.outcomes),
            cut_off=dict(self._meter.cut_off),
            were_held=(self._meter.held, self._meter.held_micros),
        )


def _next_plan(parts: list[Part], used: list[Part]) -> str | None:
    coming = [part.next_plan for part in parts if part.next_plan is not None]
    coming += [part.plan for part in used if part.plan is not None and part.plan != used[0].plan]
    return coming[0] if coming else None


def _listed(addresses: Iterable[str | None]) -> str | None:
    return ",".join(sorted(address for address in addresses if address)) or None
