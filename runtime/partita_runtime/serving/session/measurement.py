"""Measures a session: the signals of its autoscaling window, of one frontend or of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from partita_runtime.serving.central.coordinator_link import COORDINATOR_AWAY, CoordinatorFinder
from partita_runtime.serving.central.messages import MetricsReport
from partita_runtime.serving.central.metrics_reporter import MetricsReporter
from partita_runtime.serving.deploy.directory import Announcement
from partita_runtime.serving.session.epoch_executor import EpochExecutor
from partita_runtime.serving.session.epoch_switch import EpochSwitch
from partita_runtime.serving.session.waiting_room import WaitingRoom
from partita_runtime.serving.telemetry.signals import Meter, SessionSignals, Situation, Snapshot
from partita_runtime.serving.telemetry.window import Window
from partita_runtime.serving.transport.clock import now_micros

_MOST_WARNINGS: Final = 8


@dataclass
class FrontendAddresses:
    """Where a frontend answers besides Serve's proxy, as host:port; None for nowhere."""

    grpc: str | None = None
    http: str | None = None


class SessionMeasurement:
    """Measures this frontend and, if the session has several, reports to the coordinator and receives the sum."""

    def __init__(
        self,
        session_key: str,
        meter: Meter,
        waiting: WaitingRoom,
        epochs: EpochSwitch,
        addresses: FrontendAddresses,
        coordinator: CoordinatorFinder | None,
    ) -> None:
        self._session_key = session_key
        self._meter = meter
        self._waiting = waiting
        self._epochs = epochs
        self._addresses = addresses
        self._coordinator = coordinator
        self._reporter: MetricsReporter | None = None
        """Only in a session with several frontends."""
        self._window = Window(meter)
        self._last_request = now_micros()
        """When there was a request last; the beginning if there was none."""
        self._arrived = 0
        """Requests that had arrived at the last tick."""

    @property
    def total(self) -> Meter:
        """How the requests at all frontends ended, since the counting began."""
        if self._reporter is not None and self._reporter.measured is not None:
            return self._reporter.total
        return self._meter

    def signals(self, replicas: Sequence[Announcement], problem: str = "") -> SessionSignals:
        """The measurements of all frontends over the session's autoscaling window, with a `problem` of this one."""
        if self._reporter is not None and self._reporter.measured is not None:
            measured = self._reporter.measured.signals
        else:
            measured = self._own_signals()
        of_plan = [replica for replica in replicas if replica.plan == measured.plan]
        warnings = (*([problem] if problem else []), *_warnings(of_plan), *measured.warnings)
        can_make_place = all(r.can_make_place for r in of_plan if r.vgpu is None)
        more = {"can_make_place": can_make_place, "traffic": self.total.traffic}
        return measured.model_copy(update={"warnings": warnings[:_MOST_WARNINGS], **more})

    def tick(self) -> None:
        """To be called four times a second."""
        if self._waiting or self._meter.arrived != self._arrived or not all(e.idle for e in self._epochs.in_use):
            self._arrived, self._last_request = self._meter.arrived, now_micros()
        if self._window.is_due(now_micros()):
            current = self._epochs.current
            self._window.keep(self._snapshot(current), _window_micros(current))
        oldest = self._epochs.oldest
        self._report(oldest or (self._epochs.pending.executor if self._epochs.pending else None))

    def close(self) -> None:
        """Report no more."""
        if self._reporter is not None:
            self._reporter.close()

    def _own_signals(self) -> SessionSignals:
        executor = self._epochs.oldest
        own = {
            "grpc_address": self._addresses.grpc,
            "http_address": self._addresses.http,
            "held": self._waiting.asking(now_micros()),
            "idle_seconds": (now_micros() - self._last_request) / 1e6,
        }
        measured = self._window.signals(self._situation(), self._snapshot(executor), _window_micros(executor))
        return measured.model_copy(update=own)

    def _situation(self) -> Situation:
        oldest, current, pending = self._epochs.oldest, self._epochs.current, self._epochs.pending
        unscheduled = current is not None and not current.dispatcher.scheduled
        return Situation(
            session=self._session_key,
            plan=oldest.epoch.plan if oldest else None,
            next_plan=pending.executor.epoch.plan.name if pending else None,
            message=self._epochs.waits_for or (COORDINATOR_AWAY if unscheduled else ""),
        )

    def _report(self, executor: EpochExecutor | None) -> None:
        """Report to the coordinator if the session has several frontends."""
        shared = executor is not None and executor.epoch.session.frontend.replicas > 1
        if shared and self._reporter is None and self._coordinator is not None:
            self._reporter = MetricsReporter(self._coordinator, self._session_key, self._meter)
        elif not shared and self._reporter is not None:
            self._reporter.close()
            self._reporter = None
        if self._reporter is not None and executor is not None:
            situation, oldest = self._situation(), self._epochs.oldest
            self._reporter.tick(
                MetricsReport(
                    frontend=executor.dispatcher.id,
                    plan=oldest.epoch.plan.name if oldest else None,
                    used_micros=now_micros() - oldest.plan_since if oldest else 0,
                    next_plan=situation.next_plan,
                    message=situation.message,
                    grpc_address=self._addresses.grpc,
                    http_address=self._addresses.http,
                    window_micros=_window_micros(executor),
                    held=self._waiting.asking(now_micros()),
                    idle_micros=now_micros() - self._last_request,
                )
            )

    def _snapshot(self, executor: EpochExecutor | None) -> Snapshot:
        core = executor.dispatcher.signals() if executor else None
        source = executor.dispatcher.id if executor else ""
        calls = dict(self._meter.endpoint_calls)
        return Snapshot(now_micros(), self._meter.arrived, dict(self._meter.outcomes), core, source, calls)


def _warnings(replicas: Sequence[Announcement]) -> tuple[str, ...]:
    """The warnings of replicas, each once."""
    warnings = (
        f"{replica.module}/{replica.pipeline}/{replica.stage}: {warning}."
        for replica in replicas
        for warning in replica.warnings
    )
    return tuple(dict.fromkeys(warnings))


def _window_micros(executor: EpochExecutor | None) -> int:
    return executor.epoch.session.autoscaling.window_seconds * 1_000_000 if executor else 0
