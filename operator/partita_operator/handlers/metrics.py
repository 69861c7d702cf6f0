"""Prometheus metrics of the reconcile loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from partita_api.inferencesession import Signals
from partita_operator.handlers.certificate import expires
from partita_operator.handlers.status_metrics import StatusCollector
from partita_operator.kube.cache import Kind
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_planner.problem import NoPlanReason

PLANNED: Final = "Planned"
"""Outcome of a search that found a plan."""
_WAIT_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Metrics:
    """The operator's metrics, in a separate registry.

    Counters have all their labels from the start: Prometheus does not see the first increase of a new series.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._statuses = StatusCollector()
        self.registry.register(self._statuses)
        self._passes = Counter(
            "partita_reconcile", "Passes of the reconcile loop.", ["kind", "outcome"], registry=self.registry
        )
        self._seconds = Histogram("partita_reconcile_seconds", "Duration of a pass.", ["kind"], registry=self.registry)
        self._searches = Counter(
            "partita_plan_searches", "Searches for a plan, by how they ended.", ["outcome"], registry=self.registry
        )
        self._engine = Gauge(
            "partita_engine_up",
            "Whether the session's engine answered.",
            ["session"],
            registry=self.registry,
        )
        self._waits = Histogram(
            "partita_queue_wait_seconds",
            "Time that a key waited for a worker, by why it did: a change, or a planned evaluation.",
            ["cause"],
            buckets=_WAIT_BUCKETS,
            registry=self.registry,
        )
        self._reviews = Counter(
            "partita_admission_reviews",
            "Manifests that the admission webhook reviewed, by its answer.",
            ["outcome"],
            registry=self.registry,
        )
        for kind in (Kind.SESSION, Kind.POOL):
            for outcome in ("success", "error"):
                self._passes.labels(kind, outcome)
        for cause in ("change", "schedule"):
            self._waits.labels(cause)
        for outcome in (PLANNED, *NoPlanReason):
            self._searches.labels(outcome)
        for outcome in ("allowed", "refused", "error"):
            self._reviews.labels(outcome)

    @contextmanager
    def reconciling(self, kind: str) -> Iterator[None]:
        """Counts and times one pass; an exception counts as an error."""
        started = time.perf_counter()
        try:
            yield
        except Exception:
            self._passes.labels(kind, "error").inc()
            raise
        else:
            self._passes.labels(kind, "success").inc()
        finally:
            self._seconds.labels(kind).observe(time.perf_counter() - started)

    def watch_queue(self, length: Callable[[], float]) -> None:
        """Report the length of the work queue."""
        Gauge("partita_queue_length", "Keys that wait for a worker.", registry=self.registry).set_function(length)

    def waited(self, seconds: float, by_time: bool) -> None:
        """Count a key that waited this long for a worker, because of a change or because its time had come."""
        self._waits.labels("schedule" if by_time else "change").observe(seconds)

    def watch_leadership(self, leads: Callable[[], bool]) -> None:
        """Report whether this replica is the leader."""
        gauge = Gauge(
            "partita_leader", "Whether this replica is the leader. The others are on standby.", registry=self.registry
        )
        gauge.set_function(lambda: float(leads()))

    def watch_certificate(self, certificate: Path) -> None:
        """Report when the certificate of the admission webhook expires."""
        gauge = Gauge(
            "partita_admission_certificate_expiry_timestamp_seconds",
            "When the certificate of the admission webhook expires, in seconds since 1970.",
            registry=self.registry,
        )
        gauge.set_function(lambda: expires(certificate))

    def reviewed(self, outcome: str) -> None:
        """Count a manifest that the admission webhook reviewed: `allowed`, `refused` or `error`."""
        self._reviews.labels(outcome).inc()

    def show(self, cluster: Cluster) -> None:
        """Report the status of these objects."""
        self._statuses.show(cluster)

    def measured(self, session: str, signals: Signals | None) -> None:
        """Report the last measurements of a session, if there are any."""
        self._statuses.measured(session, signals)

    def searched(self, outcome: str) -> None:
        """Count a search for a plan by its outcome: PLANNED, or the reason why there is none."""
        self._searches.labels(outcome).inc()

    def engine_answered(self, session: str, up: bool) -> None:
        """Report whether the session's engine answered."""
        self._engine.labels(session).set(1.0 if up else 0.0)

    def forget(self, session: str) -> None:
        """Drop the metrics of a session that was deleted."""
        self._engine.remove(session)
        self._statuses.measured(session, None)

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        """Serve the metrics at /metrics of `port` on all addresses, from a separate thread."""
        server, thread = start_http_server(port, registry=self.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
