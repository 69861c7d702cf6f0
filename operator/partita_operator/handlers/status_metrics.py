"""The status of sessions and pools as Prometheus metrics.

Measurements of a session come from its last pass. Its status follows only larger changes.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from partita_api.conditions import Condition
from partita_api.inferencesession import Signals
from partita_operator.reconcile.capacity.cluster import Cluster

_SIGNALS: Final = (
    ("offered_rate", "Requests per second that arrived, over the autoscaling window."),
    ("goodput", "Requests per second that were answered within the SLO."),
    ("bad_rate", "Share of requests that were dropped, late or failed."),
    ("idle_fraction", "Share of the session's accelerator time without work."),
)
_QUANTILES: Final = (("0.5", "p50_ms"), ("0.99", "p99_ms"))
_POOL_FIELDS: Final = (
    ("capacity", "Accelerators that Partita may use."),
    ("present", "Accelerators that ready nodes offer."),
    ("pending", "Accelerators that plans use and that are not present yet."),
    ("allocated", "Accelerators that current plans use."),
    ("free", "Accelerators that are not in use."),
)


class StatusCollector(Collector):
    """Collects metrics from the last known objects. A scrape may come from any thread."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None
        self._measured: dict[str, Signals] = {}

    def show(self, cluster: Cluster) -> None:
        """Set the present objects."""
        self._cluster = cluster

    def measured(self, session: str, signals: Signals | None) -> None:
        """Set the last measurements of a session; None removes them."""
        if signals is None:
            self._measured.pop(session, None)
        else:
            self._measured[session] = signals

    def collect(self) -> Iterator[Metric]:
        """Every metric, with one sample for each session or pool that has a value."""
        cluster = self._cluster
        yield from _of_sessions(cluster, dict(self._measured))
        yield from _of_pools(cluster)
        yield _unreadable(cluster)


def _unreadable(cluster: Cluster | None) -> Metric:
    names = cluster.unreadable if cluster is not None else {}
    sessions = sum("/" in name for name in names)
    gauge = GaugeMetricFamily("partita_unreadable_objects", "Objects whose spec is invalid.", labels=("kind",))
    gauge.add_metric(("InferenceSession",), sessions)
    gauge.add_metric(("GPUPool",), len(names) - sessions)
    return gauge


def _of_sessions(cluster: Cluster | None, measured: Mapping[str, Signals]) -> Iterator[Metric]:
    sessions = {} if cluster is None else cluster.sessions
    reported = {key: measured.get(key, session.status.signals) for key, session in sessions.items()}
    signals = {key: found for key, found in reported.items() if found is not None}
    for field, text in _SIGNALS:
        gauge = GaugeMetricFamily(f"partita_session_{field}", text, labels=("session",))
        for key, found in signals.items():
            gauge.add_metric((key,), float(getattr(found, field)))
        yield gauge
    latency = GaugeMetricFamily(
        "partita_session_latency_seconds", "Latency of answered requests.", labels=("session", "quantile")
    )
    slo = GaugeMetricFamily("partita_session_slo_seconds", "The latency SLO.", labels=("session",))
    attainment = GaugeMetricFamily(
        "partita_session_slo_attainment", "Share of requests that must be answered in time.", labels=("session",)
    )
    cost = GaugeMetricFamily(
        "partita_session_cost_per_hour", "Price of the vGPUs that the current plan allocates.", labels=("session",)
    )
    throughput = GaugeMetricFamily(
        "partita_session_planned_throughput",
        "Requests per second that the current plan can serve.",
        labels=("session",),
    )
    scaled_to_zero = GaugeMetricFamily(
        "partita_session_scaled_to_zero",
        "Whether the session has scaled to zero, because there were no requests.",
        labels=("session",),
    )
    for key, session in sessions.items():
        scaled_to_zero.add_metric((key,), float(session.status.scale_to_zero_time is not None))
        slo.add_metric((key,), session.spec.slo.latency_ms / 1000)
        attainment.add_metric((key,), session.spec.slo.attainment.fraction)
        if key in signals:
            for quantile, field in _QUANTILES:
                latency.add_metric((key, quantile), float(getattr(signals[key], field)) / 1000)
        if session.status.current_plan is not None:
            cost.add_metric((key,), float(session.status.current_plan.cost_per_hour))
            throughput.add_metric((key,), float(session.status.current_plan.throughput))
    yield from (latency, slo, attainment, cost, throughput, scaled_to_zero)
    yield from _of_conditions("session", {key: session.status.conditions for key, session in sessions.items()})


def _of_pools(cluster: Cluster | None) -> Iterator[Metric]:
    pools = {} if cluster is None else cluster.pools
    for field, text in _POOL_FIELDS:
        gauge = GaugeMetricFamily(f"partita_pool_{field}", text, labels=("pool",))
        for name, pool in pools.items():
            gauge.add_metric((name,), float(getattr(pool.status, field)))
        yield gauge
    yield from _of_conditions("pool", {name: pool.status.conditions for name, pool in pools.items()})
    idle = GaugeMetricFamily(
        "partita_pool_idle_fraction", "Share of the allocated accelerators' time without work.", labels=("pool",)
    )
    for name, pool in pools.items():
        if pool.status.idle_fraction is not None:
            idle.add_metric((name,), float(pool.status.idle_fraction))
    yield idle


def _of_conditions(what: str, conditions: Mapping[str, Iterable[Condition]]) -> Iterator[Metric]:
    """The conditions of sessions or pools, and the reason that each gives now."""
    states = GaugeMetricFamily(f"partita_{what}_condition", "Whether a condition is True.", labels=(what, "condition"))
    reasons = GaugeMetricFamily(
        f"partita_{what}_reason", "1 for the present reason of a condition.", labels=(what, "condition", "reason")
    )
    for key, found in conditions.items():
        for condition in found:
            states.add_metric((key, condition.type), float(condition.status == "True"))
            reasons.add_metric((key, condition.type, condition.reason), 1.0)
    yield from (states, reasons)
