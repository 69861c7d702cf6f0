"""A session's metrics in Prometheus' text format. Names and labels are stable."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from partita_runtime.serving.telemetry.signals import Meter, Outcome, SessionSignals

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST


def metrics_text(signals: SessionSignals, meter: Meter) -> bytes:
    """Counters since the frontend started, and gauges over the signals' window."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_counters(signals, meter), *_gauges(signals), *_stage_gauges(signals)]))
    return generate_latest(registry)


def _counters(signals: SessionSignals, meter: Meter) -> Iterator[Metric]:
    requests = CounterMetricFamily("partita_requests", "Requests that ended, by outcome", labels=("session", "outcome"))
    for outcome in Outcome:
        requests.add_metric((signals.session, outcome.value), meter.outcomes[outcome])
    yield requests
    for name, text, labels, counts in (
        ("partita_fan_out_cut_off", "Sub-requests left out beyond fanOut.max, by module", ("module",), meter.cut_off),
        (
            "partita_optional_left_out",
            "Sub-requests of optional modules that failed and were left out, by module",
            ("module",),
            meter.left_out,
        ),
        (
            "partita_information_requests",
            "Requests of clients other than inference, by operation",
            ("operation",),
            meter.information,
        ),
        (
            "partita_size_class_samples",
            "Samples of models with size classes, by class",
            ("module",),
            meter.size_classes,
        ),
        ("partita_request_log_events", "Events of the request log, by what became of them", ("result",), meter.logged),
        ("partita_version_requests", "Requests for other versions, by result", ("version", "result"), meter.versions),
        (
            "partita_shadow_answers",
            "Answers to copies of requests, compared with the session's own",
            ("version", "result"),
            meter.shadows,
        ),
        (
            "partita_edge_answers",
            "Answers at edges with when or a fan-out, by whether they are sent on",
            ("from", "to", "decision"),
            meter.decided,
        ),
        ("partita_edge_sub_requests", "Sub-requests that these answers made", ("from", "to"), meter.sent),
    ):
        counter = CounterMetricFamily(name, text, labels=("session", *labels))
        for key, count in sorted(counts.items()):
            counter.add_metric((signals.session, *key.split("/", len(labels) - 1)), count)
        yield counter
    for name, text, total in (
        ("partita_held_requests", "Requests that were held until there were replicas", meter.held),
        ("partita_held_seconds", "Seconds for which requests were held, summed up", meter.held_micros / 1e6),
    ):
        held = CounterMetricFamily(name, text, labels=("session",))
        held.add_metric((signals.session,), total)
        yield held


def _gauges(signals: SessionSignals) -> Iterator[Metric]:
    for name, text, value in (
        ("partita_offered_rate", "Requests per second that arrived", signals.offered_rate),
        ("partita_goodput", "Requests per second that were answered within the SLO", signals.goodput),
        ("partita_bad_rate", "Share of requests that were dropped, late or failed", signals.bad_rate),
        ("partita_idle_fraction", "Share of accelerator time without work", signals.idle_fraction),
        ("partita_waiting_requests", "Requests that wait for replicas", signals.held),
        ("partita_idle_seconds", "Seconds since the last request", signals.idle_seconds),
    ):
        yield _gauge(name, text, (signals.session,), ("session",), value)
    latency = GaugeMetricFamily(
        "partita_request_latency_seconds", "Latency of answered requests", labels=("session", "quantile")
    )
    latency.add_metric((signals.session, "0.5"), signals.p50_ms / 1000)
    latency.add_metric((signals.session, "0.99"), signals.p99_ms / 1000)
    yield latency
    endpoints = GaugeMetricFamily(
        "partita_endpoint_latency_seconds",
        "Latency of the calls of an endpoint, with the time that they waited for a place",
        labels=("session", "module", "quantile"),
    )
    for endpoint in signals.endpoints:
        endpoints.add_metric((signals.session, endpoint.module, "0.5"), endpoint.p50_ms / 1000)
        endpoints.add_metric((signals.session, endpoint.module, "0.99"), endpoint.p99_ms / 1000)
    yield endpoints
    sizes = GaugeMetricFamily(
        "partita_batch_size", "Batches dispatched in the window, by size", labels=("session", "size")
    )
    for size, count in signals.batch_sizes.items():
        sizes.add_metric((signals.session, str(size)), count)
    yield sizes


def _stage_gauges(signals: SessionSignals) -> Iterator[Metric]:
    labels = ("session", "module", "pipeline", "stage", "pool")
    ready = GaugeMetricFamily("partita_ready_replicas", "Replicas that take batches", labels=labels)
    idle = GaugeMetricFamily(
        "partita_stage_idle_fraction", "Share of a stage's accelerator time without work", labels=labels
    )
    latency = GaugeMetricFamily(
        "partita_stage_latency_seconds", "Mean time of a batch, by the profile and as run", labels=(*labels, "kind")
    )
    bandwidth = GaugeMetricFamily(
        "partita_link_bandwidth_bits_per_second",
        "Estimated bandwidth of the network from the stage before",
        labels=labels,
    )
    link_latency = GaugeMetricFamily(
        "partita_link_latency_seconds", "Estimated latency of the network from the stage before", labels=labels
    )
    transfer = GaugeMetricFamily(
        "partita_transfer_seconds",
        "Mean time of a transfer from the stage before, by the declared bandwidth and as measured",
        labels=(*labels, "kind"),
    )
    for stage in signals.stages:
        values = (signals.session, stage.module, stage.pipeline, str(stage.stage), stage.pool)
        ready.add_metric(values, stage.ready)
        idle.add_metric(values, stage.idle_fraction)
        latency.add_metric((*values, "predicted"), stage.predicted_micros / 1e6)
        latency.add_metric((*values, "actual"), stage.actual_micros / 1e6)
        if stage.link_bits_per_second:
            bandwidth.add_metric(values, stage.link_bits_per_second)
            link_latency.add_metric(values, stage.link_latency_micros / 1e6)
            transfer.add_metric((*values, "declared"), stage.declared_transfer_micros / 1e6)
            transfer.add_metric((*values, "actual"), stage.actual_transfer_micros / 1e6)
    yield from (ready, idle, latency, bandwidth, link_latency, transfer)


def _gauge(name: str, text: str, values: tuple[str, ...], labels: tuple[str, ...], value: float) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=labels)
    gauge.add_metric(values, value)
    return gauge


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics
