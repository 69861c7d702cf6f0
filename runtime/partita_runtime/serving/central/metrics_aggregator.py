"""Aggregates the metrics that the frontends of a session report to its coordinator. Pure."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, NamedTuple

from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.serving.central.messages import HeldTotals, MetricsReport, SessionMetrics
from partita_runtime.serving.telemetry.signals import Meter, Situation, Snapshot
from partita_runtime.serving.telemetry.window import Window

_LATENCIES: Final = 20_000
"""Most answers that percentiles are computed of: the coordinator computes them between scheduling decisions."""


class Scheduled(NamedTuple):
    """How a frontend is scheduled."""

    plan: SchedulingPlan
    source: str
    """Id of the core that schedules it."""
    signals: CoreSignals


class _LastReport(NamedTuple):
    used_since: int
    """Since when the frontend has used its plan."""
    report: MetricsReport


class MetricsAggregator:
    """What all frontends of a session have reported. `now` is on the coordinator's clock (microseconds)."""

    def __init__(self, session_key: str, now: int) -> None:
        self._session_key = session_key
        self._meter = Meter(latencies=deque(maxlen=_LATENCIES))
        self._window = Window(self._meter)
        self._window.keep(Snapshot(now, 0, {}, None), 0)
        self._reports: dict[Hashable, _LastReport] = {}

    def take(self, frontend: Hashable, report: MetricsReport, now: int) -> None:
        """Add what a frontend has counted since its last report."""
        self._reports[frontend] = _LastReport(now - report.used_micros, report)
        self._meter.arrived += report.arrived
        for name, counter in self._meter.labelled.items():
            counter.update(getattr(report, name))
        self._meter.held += report.were_held.samples
        self._meter.held_micros += report.were_held.micros
        for ended in report.ended:
            self._meter.ended(ended.outcome, ended.latency, now, ended.samples)

    def leave(self, frontend: Hashable) -> None:
        """A frontend is gone; what it counted stays."""
        self._reports.pop(frontend, None)

    def measured(self, scheduled: Callable[[str], Scheduled | None], now: int) -> SessionMetrics:
        """The metrics of all frontends; `scheduled` says how a frontend, by its id, is scheduled.

        The plan is the one that a frontend has used for longest: its replicas stay for as long as any frontend uses
        them.
        """
        reports = [last.report for last in sorted(self._reports.values(), key=lambda last: last.used_since)]
        used = [report for report in reports if report.plan is not None]
        current = scheduled(used[0].frontend) if used else None
        situation = Situation(
            session=self._session_key,
            plan=current.plan if current else None,
            next_plan=_next_plan(reports, used),
            message=next((report.message for report in reports if report.message), ""),
        )
        snapshot = Snapshot(
            now,
            self._meter.arrived,
            dict(self._meter.outcomes),
            current.signals if current else None,
            current.source if current else "",
            dict(self._meter.endpoint_calls),
        )
        micros = max((report.window_micros for report in reports), default=0)
        signals = self._window.signals(situation, snapshot, micros)
        if self._window.is_due(now):
            self._window.keep(snapshot, micros)
        reported = {
            "grpc_address": _listed(report.grpc_address for report in reports),
            "http_address": _listed(report.http_address for report in reports),
            "held": sum(report.held for report in reports),
            "idle_seconds": min((report.idle_micros for report in reports), default=0) / 1e6,
        }
        labelled: dict[str, Any] = {name: dict(counter) for name, counter in self._meter.labelled.items()}
        return SessionMetrics(
            signals=signals.model_copy(update=reported),
            outcomes=dict(self._meter.outcomes),
            **labelled,
            requests=dict(self._meter.requests),
            request_micros=dict(self._meter.request_micros),
            were_held=HeldTotals(self._meter.held, self._meter.held_micros),
        )


def _next_plan(reports: list[MetricsReport], used: list[MetricsReport]) -> str | None:
    pending = [report.next_plan for report in reports if report.next_plan is not None]
    pending += [report.plan for report in used if report.plan is not None and report.plan != used[0].plan]
    return pending[0] if pending else None


def _listed(addresses: Iterable[str | None]) -> str | None:
    return ",".join(sorted(address for address in addresses if address)) or None
