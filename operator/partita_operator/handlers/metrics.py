"""Prometheus metrics of the reconcile loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from partita_api.inferencesession import Signals
from partita_operator.handlers.status_metrics import StatusCollector
from partita_operator.reconcile.capacity.cluster import Cluster


class Metrics:
    """The operator's metrics, in a separate registry."""

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

    def watch_leadership(self, leads: Callable[[], bool]) -> None:
        """Report whether this replica is the leader."""
        gauge = Gauge(
            "partita_leader", "Whether this replica is the leader. The others are on standby.", registry=self.registry
        )
        gauge.set_function(lambda: float(leads()))

    def show(self, cluster: Cluster) -> None:
        """Report the status of these objects."""
        self._statuses.show(cluster)

    def measured(self, session: str, signals: Signals | None) -> None:
        """Report the last measurements of a session, if there are any."""
        self._statuses.measured(session, signals)

    def searched(self, outcome: str) -> None:
        """Count a search for a plan by its outcome: `Planned`, or the reason why there is none."""
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
