"""`partita top`: what it shows of a cluster's objects."""

import io
from typing import Any

from rich.console import Console
from tests.builders import pool, session

from partita_api.conditions import Condition
from partita_api.gpupool import GPUPoolStatus
from partita_api.inferencesession import InferenceSessionStatus, PlanSummary, Signals
from partita_operator.cli.cluster.top import report, tables
from partita_operator.reconcile.capacity.cluster import Cluster

READY = Condition(
    type="Ready",
    status="True",
    reason="Serving",
    message="",
    observed_generation=1,
    last_transition_time="2026-01-01T00:00:00Z",
)
STATUS = InferenceSessionStatus(
    current_plan=PlanSummary(name="traffic-01", cost_per_hour="1.25", throughput="120"),
    signals=Signals(
        offered_rate="100.25", goodput="99", bad_rate="0.012", idle_fraction="0.4", p50_ms="41", p99_ms="260"
    ),
    conditions=(READY,),
)
SERVED = session("traffic").slo(250).model("detector").build().model_copy(update={"status": STATUS})
NEW = session("new").slo(100).model("detector").build()
USED = GPUPoolStatus(capacity=8, allocated="2.5", free="5.5", idle_fraction="0.4", sessions=("default/traffic",))
POOLS = {"slow": pool("slow").build(), "fast": pool("fast").build().model_copy(update={"status": USED})}
CLUSTER = Cluster(pools=POOLS, sessions={s.key: s for s in (SERVED, NEW)})


def printed(seen: dict[str, Any], problem: str = "") -> list[list[str]]:
    """The cells of the printed tables, line by line."""
    console = Console(file=io.StringIO(), width=200)
    console.print(tables(seen, problem))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return [[cell.strip() for cell in line.strip("│┃ ").replace("┃", "│").split("│")] for line in lines]


def test_json_has_all_values() -> None:
    seen = report(CLUSTER)
    assert [pool["pool"] for pool in seen["pools"]] == ["fast", "slow"]
    assert seen["pools"][0] == {
        "pool": "fast",
        "capacity": 8,
        "present": 8,
        "pending": 0,
        "allocated": 2.5,
        "free": 5.5,
        "idleFraction": 0.4,
        "sessions": ["default/traffic"],
    }
    new, served = seen["sessions"]
    assert (new["session"], new["ready"], new["plan"], new["p99Ms"]) == ("default/new", "Unknown", None, None)
    assert (served["plan"], served["offeredRate"], served["p99Ms"], served["sloMs"]) == ("traffic-01", 100.25, 260, 250)


def test_the_default_output_has_tables() -> None:
    shown = printed(report(CLUSTER))
    assert ["fast", "8", "8", "2.5", "5.5", "40.0%", "default/traffic"] in shown
    want = ["default/traffic", "True", "traffic-01", "100.2", "99", "1.2%", "41", "260", "250", "40.0%", "1.25"]
    assert want in shown
    assert ["default/new", "Unknown", "", "-", "-", "-", "-", "-", "100", "-", "-"] in shown


def test_a_namespace_shows_its_sessions_and_all_pools() -> None:
    seen = report(CLUSTER, "elsewhere")
    assert (len(seen["pools"]), seen["sessions"]) == (2, [])


def test_an_error_is_shown_below_the_last_answer() -> None:
    shown = printed(report(CLUSTER), "The API server does not answer")
    assert ["The API server does not answer"] in shown
    assert any(line[0] == "fast" for line in shown)
