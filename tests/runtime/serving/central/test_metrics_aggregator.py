"""The reports of several frontends, as the metrics of one session."""

from typing import Any

import pytest
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.serving.central.messages import MetricsReport, RequestsEnded
from partita_runtime.serving.central.metrics_aggregator import MetricsAggregator, Scheduled
from partita_runtime.serving.telemetry.signals import Outcome

SECOND = 1_000_000
PLANS = {name: plan_of(module("m").pipeline(1, stage("gpu"))).model_copy(update={"name": name}) for name in ("a", "b")}


def scheduled(frontend: str) -> Scheduled | None:
    """Frontends are named like their plan."""
    plan = PLANS.get(frontend)
    return None if plan is None else Scheduled(plan, frontend, SchedulingCore(plan).signals(0))


def report(plan: str | None, used_seconds: int = 0, **fields: Any) -> MetricsReport:
    said = {"next_plan": None, "message": "", "grpc_address": None, "http_address": None, **fields}
    return MetricsReport(
        frontend=plan or "none", plan=plan, used_micros=used_seconds * SECOND, window_micros=60 * SECOND, **said
    )


def test_counts_include_all_frontends_also_those_that_have_left() -> None:
    aggregator = MetricsAggregator("default/s", 0)
    aggregator.take(
        "one",
        report("a", arrived=3, ended=(RequestsEnded(Outcome.IN_TIME, 2000, 2), RequestsEnded(Outcome.LATE, 9000, 1))),
        SECOND,
    )
    aggregator.take(
        "other",
        report(
            "a", arrived=1, ended=(RequestsEnded(Outcome.OVERLOAD, 0, 1),), cut_off={"m": 4}, size_classes={"m-s8": 3}
        ),
        SECOND,
    )
    aggregator.leave("one")
    measured = aggregator.measured(scheduled, 2 * SECOND)
    signals = measured.signals
    assert (signals.offered_rate, signals.goodput, signals.bad_rate, signals.p50_ms) == (2.0, 1.0, 0.5, 2.0)
    assert measured.outcomes == {Outcome.IN_TIME: 2, Outcome.LATE: 1, Outcome.OVERLOAD: 1}
    assert measured.cut_off == {"m": 4}
    assert measured.size_classes == {"m-s8": 3}


@pytest.mark.parametrize(
    ("reports", "want"),
    [
        pytest.param([report("a", 9), report("a", 8)], ("a", None, ""), id="one plan"),
        pytest.param([report("a", 9), report("b", 1)], ("a", "b", ""), id="one has switched, the other has not"),
        pytest.param([report("b", 1), report("a", 9, next_plan="b")], ("a", "b", ""), id="one is about to switch"),
        pytest.param([report("b", 9), report("a", 1)], ("b", "a", ""), id="back to an earlier plan"),
        pytest.param(
            [report("a", 9), report(None, 99, next_plan="a", message="why")], ("a", "a", "why"), id="one starts"
        ),
        pytest.param([report(None, next_plan="a", message="why")], (None, "a", "why"), id="no frontend serves yet"),
        pytest.param([], (None, None, ""), id="no frontend"),
    ],
)
def test_the_reported_plan_is_the_oldest_used_one(
    reports: list[MetricsReport], want: tuple[str | None, str | None, str]
) -> None:
    aggregator = MetricsAggregator("default/s", 0)
    for number, one in enumerate(reports):
        aggregator.take(number, one, 100 * SECOND)
    signals = aggregator.measured(scheduled, 100 * SECOND).signals
    assert (signals.plan, signals.next_plan, signals.message) == want


def test_addresses_of_all_frontends_are_listed() -> None:
    aggregator = MetricsAggregator("default/s", 0)
    for number in (2, 1):
        aggregator.take(number, report("a", grpc_address=f"10.0.0.{number}:9000"), SECOND)
    signals = aggregator.measured(scheduled, SECOND).signals
    assert (signals.grpc_address, signals.http_address) == ("10.0.0.1:9000,10.0.0.2:9000", None)
