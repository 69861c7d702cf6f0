"""Reports a frontend's metrics to the coordinator, and receives the metrics of the whole session."""

from collections import Counter, deque
from collections.abc import Mapping

from partita_runtime.serving.central.coordinator_link import COORDINATOR_AWAY, CoordinatorFinder, CoordinatorLink
from partita_runtime.serving.central.messages import (
    CoordinatorMessage,
    HeldTotals,
    MetricsReport,
    RegisterReporter,
    RequestsEnded,
    SessionMetrics,
)
from partita_runtime.serving.telemetry.signals import MAX_LATENCIES, Meter
from partita_runtime.serving.transport.wire import WireError


class MetricsReporter:
    """Reports what this frontend counts; use it on the event loop that it is made on."""

    def __init__(self, finder: CoordinatorFinder, session_key: str, meter: Meter) -> None:
        self.measured: SessionMetrics | None = None
        """What was measured at all frontends; None until the coordinator has sent it."""
        self._session_key = session_key
        self._meter = meter
        self._ended = meter.unreported = deque(maxlen=MAX_LATENCIES)
        self._arrived = meter.arrived
        self._labelled = _copied(meter.labelled)
        self._were_held = HeldTotals(meter.held, meter.held_micros)
        self._link = CoordinatorLink(finder, self)

    @property
    def total(self) -> Meter:
        """How the requests at all frontends ended, since the coordinator began to count."""
        if self.measured is None:
            return self._meter
        total = Meter(
            outcomes=Counter(self.measured.outcomes),
            requests=Counter(self.measured.requests),
            request_micros=Counter(self.measured.request_micros),
            held=self.measured.were_held.samples,
            held_micros=self.measured.were_held.micros,
        )
        for name, counter in total.labelled.items():
            counter.update(getattr(self.measured, name))
        return total

    def tick(self, report: MetricsReport) -> None:
        """Send `report` with the counters added; to be called four times a second."""
        self._link.tick()
        held = HeldTotals(self._meter.held, self._meter.held_micros)
        counters = {
            "arrived": self._meter.arrived - self._arrived,
            "ended": tuple([RequestsEnded(*ended) for ended in self._ended]),
            **{name: counter - self._labelled[name] for name, counter in self._meter.labelled.items()},
            "were_held": HeldTotals(held.samples - self._were_held.samples, held.micros - self._were_held.micros),
        }
        if self._link.send(report.model_copy(update=counters)):
            self._arrived = self._meter.arrived
            self._labelled = _copied(self._meter.labelled)
            self._were_held = held
            self._ended.clear()

    def close(self) -> None:
        """Report no more."""
        self._meter.unreported = None
        self._link.close()

    def introduction(self) -> RegisterReporter:
        """Registers for this session (`coordinator_link.CoordinatorListener`)."""
        return RegisterReporter(session=self._session_key)

    def heard(self, message: CoordinatorMessage) -> None:
        """Takes the metrics of the whole session."""
        if not isinstance(message, SessionMetrics):
            raise WireError(f"a {message.kind} message is not expected here")
        self.measured = message

    def away(self) -> None:
        """Keeps the last metrics until the coordinator is back, with a message that it is away."""
        if self.measured is not None:
            signals = self.measured.signals.model_copy(update={"message": COORDINATOR_AWAY})
            self.measured = self.measured.model_copy(update={"signals": signals})


def _copied(counters: Mapping[str, Counter[str]]) -> Mapping[str, Counter[str]]:
    return {name: Counter(counter) for name, counter in counters.items()}
