"""Metrics of sessions and pools; the reference page and the dashboard match them."""

import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.builders import pool, session

from partita_api.conditions import Condition
from partita_api.gpupool import GPUPoolStatus
from partita_api.inferencesession import InferenceSessionStatus, PlanSummary, Signals
from partita_devtools.machine.certificates import create_authority, issue_server_certificate
from partita_operator.handlers.metrics import PLANNED, Metrics
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_runtime.autoscaling.traffic import EdgeDecision, decision_key, edge_key
from partita_runtime.serving.telemetry.metrics import metrics_text
from partita_runtime.serving.telemetry.signals import EndpointSignals, Meter, SessionSignals, SessionStageSignals

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
DASHBOARD = ROOT / "charts" / "partita" / "dashboards" / "partita.json"
KEY = "default/traffic"

CONDITIONS = tuple(
    Condition(
        type=kind,
        status=status,
        reason="R",
        message="",
        observed_generation=1,
        last_transition_time="2026-01-01T00:00:00Z",
    )
    for kind, status in (("Ready", "True"), ("SLOMet", "Unknown"))
)
TRAFFIC = (
    session("traffic")
    .model("detector")
    .slo(250)
    .build()
    .model_copy(
        update={
            "status": InferenceSessionStatus(
                current_plan=PlanSummary(name="p", cost_per_hour="1.5", throughput="120"),
                signals=Signals(offered_rate="100", goodput="99", bad_rate="0.01", p50_ms="40", p99_ms="95"),
                conditions=CONDITIONS,
            )
        }
    )
)
FAST = (
    pool("fast")
    .build()
    .model_copy(
        update={
            "status": GPUPoolStatus(
                capacity=8, allocated="2.5", free="5.5", idle_fraction="0.4", conditions=CONDITIONS[:1]
            )
        }
    )
)
UNUSED = pool("unused").build()


def operator_metrics() -> Metrics:
    """All metrics of the operator."""
    metrics = Metrics()
    metrics.watch_queue(lambda: 0)
    metrics.watch_leadership(lambda: True)
    metrics.show(Cluster(pools={"fast": FAST, "unused": UNUSED}, sessions={KEY: TRAFFIC}))
    metrics.searched(PLANNED)
    metrics.waited(0.02, by_time=False)
    metrics.reviewed("allowed")
    metrics.watch_certificate(Path("missing.crt"))
    metrics.engine_answered(KEY, True)
    with metrics.reconciling("InferenceSession"):
        pass
    return metrics


def frontend_metrics() -> Iterator[Metric]:
    """All metrics of a frontend."""
    stage = SessionStageSignals(
        module="detector",
        pipeline="p0",
        stage=0,
        pool="fast",
        planned=1,
        ready=1,
        idle_fraction=0.5,
        bad_rate=0,
        predicted_micros=1,
        actual_micros=1,
        link_bits_per_second=1,
    )
    signals = SessionSignals(
        session=KEY,
        window_seconds=10,
        plan="p",
        next_plan=None,
        message="",
        offered_rate=1,
        goodput=1,
        bad_rate=0,
        idle_fraction=0.5,
        p50_ms=1,
        p99_ms=1,
        batch_sizes={4: 1},
        outcomes={},
        stages=(stage,),
        endpoints=(EndpointSignals(module="plates", p50_ms=1, p99_ms=2),),
    )
    meter = Meter()
    meter.cut_off["crop"] = 1
    meter.left_out["plates"] = 1
    meter.information["index"] = 1
    meter.size_classes["read-s8"] = 1
    meter.versions["2/answered"] = 1
    meter.decided[decision_key("detector", "plates", EdgeDecision.TAKEN)] = 1
    meter.sent[edge_key("detector", "plates")] = 2
    meter.shadows["3/equal"] = 1
    meter.logged["sent"] = 1
    return text_string_to_metric_families(metrics_text(signals, meter).decode())


def rows(metrics: Iterator[Metric]) -> set[str]:
    """The metrics as rows of the reference's tables."""
    made = set()
    for metric in metrics:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        labels = {label for sample in metric.samples for label in sample.labels if label != "le"}
        text = metric.documentation.rstrip(".")
        made.add(f"| `{name}` | {metric.type} | {', '.join(sorted(labels)) or '-'} | {text} |")
    return made


def described(heading: str) -> set[str]:
    """The table's rows below a heading of the reference page."""
    section = REFERENCE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return {line for line in section.splitlines() if line.startswith("| `")}


def test_the_reference_lists_every_metric() -> None:
    assert described("Operator") == rows(operator_metrics().registry.collect())
    assert described("Frontends") == rows(frontend_metrics())


def test_the_dashboard_uses_only_existing_metrics() -> None:
    known = {row.split("`")[1] for row in described("Operator") | described("Frontends")}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = {name for panel in panels for t in panel["targets"] for name in re.findall(r"partita_\w+", t["expr"])}
    assert asked
    assert asked <= known


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        ("partita_session_offered_rate", {"session": KEY}, 100),
        ("partita_session_latency_seconds", {"session": KEY, "quantile": "0.99"}, 0.095),
        ("partita_session_slo_seconds", {"session": KEY}, 0.25),
        ("partita_session_cost_per_hour", {"session": KEY}, 1.5),
        ("partita_session_condition", {"session": KEY, "condition": "Ready"}, 1),
        ("partita_session_condition", {"session": KEY, "condition": "SLOMet"}, 0),
        ("partita_session_reason", {"session": KEY, "condition": "Ready", "reason": "R"}, 1),
        ("partita_session_slo_attainment", {"session": KEY}, 0.99),
        ("partita_pool_condition", {"pool": "fast", "condition": "Ready"}, 1),
        ("partita_pool_reason", {"pool": "fast", "condition": "Ready", "reason": "R"}, 1),
        ("partita_reconcile_total", {"kind": "GPUPool", "outcome": "error"}, 0),
        ("partita_plan_searches_total", {"outcome": "TimeLimit"}, 0),
        ("partita_pool_allocated", {"pool": "fast"}, 2.5),
        ("partita_pool_idle_fraction", {"pool": "fast"}, 0.4),
        ("partita_pool_idle_fraction", {"pool": "unused"}, None),
    ],
)
def test_values_of_the_status_are_shown(name: str, labels: dict[str, str], want: float | None) -> None:
    registry: CollectorRegistry = operator_metrics().registry
    assert registry.get_sample_value(name, labels) == want


def test_the_last_measurement_overrides_the_status() -> None:
    metrics = operator_metrics()
    metrics.measured(KEY, Signals(offered_rate="104.5", p99_ms="97"))
    offered, p99 = (("offered_rate", {}), ("latency_seconds", {"quantile": "0.99"}))
    for (name, labels), want in ((offered, 104.5), (p99, 0.097)):
        assert metrics.registry.get_sample_value(f"partita_session_{name}", {"session": KEY, **labels}) == want


def test_deleted_objects_are_not_shown() -> None:
    metrics = operator_metrics()
    metrics.measured(KEY, Signals(offered_rate="104.5"))
    metrics.show(Cluster())
    assert metrics.registry.get_sample_value("partita_session_offered_rate", {"session": KEY}) is None


def test_the_expiry_of_the_webhook_s_certificate_is_reported(tmp_path: Path) -> None:
    name, metrics = "partita_admission_certificate_expiry_timestamp_seconds", Metrics()
    metrics.watch_certificate(tmp_path / "tls.crt")
    absent = metrics.registry.get_sample_value(name)
    assert absent is not None
    assert math.isnan(absent)

    made = issue_server_certificate(create_authority(tmp_path), tmp_path, "tls").certificate
    want = x509.load_pem_x509_certificate(made.read_bytes()).not_valid_after_utc.timestamp()
    made.write_bytes(made.read_bytes() + (tmp_path / "ca.crt").read_bytes())
    assert metrics.registry.get_sample_value(name) == want > time.time()
