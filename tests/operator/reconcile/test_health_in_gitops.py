"""The health of conditions in GitOps tools: kstatus (Flux) and Argo CD's Lua.

The cluster in memory checks after every pass that kstatus agrees with the conditions, so all other tests do, too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builders import pool, session
from tests.operator.gitops.kstatus import kstatus
from tests.operator.mig_manager_double import MigManagerDouble
from tests.operator.reconcile.pool.cut_nodes import Nodes, approved
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.fields.approval import Approval
from partita_api.inferencesession import InferenceSession
from partita_api.meta import PAUSED_ANNOTATION

HEALTH = Path(__file__).resolve().parents[3] / "examples/gitops/argocd/health.lua"
TRAFFIC = session("traffic").model("detector").rate(300)

Story = Callable[[SimulatedCluster], None]


def argo(document: dict[str, Any]) -> tuple[str, str]:
    """Health and message by Argo CD's Lua code, in Lua 5.1 without most libraries."""
    lua51 = pytest.importorskip("lupa.lua51", reason="a Lua interpreter is missing: pip install lupa")
    lua = lua51.LuaRuntime(unpack_returned_tuples=True)
    environment = {"obj": lua.table_from(document, recursive=True), "ipairs": lua.globals().ipairs}
    run = lua.eval("function(source, environment) return setfenv(loadstring(source), environment)() end")
    found = run(HEALTH.read_text(), lua.table_from(environment))
    return found.status, found.message


def document(found: Any) -> dict[str, Any]:
    shown: dict[str, Any] = found.model_dump(mode="json", by_alias=True, exclude_none=True)
    return shown


def of_session(made: SimulatedCluster) -> dict[str, Any]:
    return document(made.session("traffic"))


def come(made: SimulatedCluster, built: InferenceSession = TRAFFIC.build(), seconds: int = 20) -> None:  # noqa: B008
    made.add(built)
    made.run(seconds)


def unseen(made: SimulatedCluster) -> None:
    made.add(TRAFFIC.build())


def serving(made: SimulatedCluster) -> None:
    come(made)


def changed(made: SimulatedCluster) -> None:
    come(made)
    made.add(TRAFFIC.rate(400).build())


def coming_up(made: SimulatedCluster) -> None:
    made.engine.most_ready = 0
    come(made)


def gaining_replicas(made: SimulatedCluster) -> None:
    made.engine.most_ready = 1
    come(made)


def impossible(made: SimulatedCluster) -> None:
    come(made, TRAFFIC.slo(5).build())


def outranked(made: SimulatedCluster) -> None:
    come(made)
    come(made, session("urgent").model("detector").rate(700).with_spec(priority=1).build())


def awaiting_approval(made: SimulatedCluster) -> None:
    come(made, TRAFFIC.planner(approval=Approval.MANUAL).build())


def paused(made: SimulatedCluster) -> None:
    come(made)
    built = TRAFFIC.build()
    annotated = built.metadata.model_copy(update={"annotations": {PAUSED_ANNOTATION: "load test"}})
    come(made, built.model_copy(update={"metadata": annotated}))


def without_engine(made: SimulatedCluster) -> None:
    come(made)
    made.engine.away = "The Ray dashboard does not answer."
    made.run(10)


def going(made: SimulatedCluster) -> None:
    come(made)
    made.engine.removals_needed = 10
    made.delete("default/traffic")
    made.look_once()


@pytest.mark.parametrize(
    ("story", "want_kstatus", "want_argo", "want_message"),
    [
        pytest.param(unseen, "InProgress", "Progressing", "has not processed it yet", id="new"),
        pytest.param(changed, "InProgress", "Progressing", "has not processed it yet", id="changed"),
        pytest.param(coming_up, "InProgress", "Progressing", "0 of 3 replicas", id="coming up"),
        pytest.param(gaining_replicas, "InProgress", "Healthy", "1 of 3 replicas", id="serves, gains replicas"),
        pytest.param(serving, "Current", "Healthy", "3 of 3 replicas", id="serving"),
        pytest.param(impossible, "Failed", "Degraded", "raise slo.latencyMs", id="no plan"),
        pytest.param(outranked, "Failed", "Degraded", "default/urgent (priority 1)", id="outranked"),
        pytest.param(awaiting_approval, "InProgress", "Suspended", "kubectl annotate", id="awaiting approval"),
        pytest.param(paused, "Current", "Suspended", "load test", id="paused"),
        pytest.param(without_engine, "InProgress", "Progressing", "does not answer", id="engine away"),
        pytest.param(going, "Terminating", "Progressing", "Partita removes", id="being deleted"),
    ],
)
def test_sessions(story: Story, want_kstatus: str, want_argo: str, want_message: str) -> None:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(8).build())
    story(made)
    shown = of_session(made)
    health, message = argo(shown)
    assert (kstatus(shown), health) == (want_kstatus, want_argo)
    assert want_message in message


@pytest.mark.parametrize(
    ("gpus", "want"),
    [pytest.param(8, ("Current", "Healthy"), id="ready"), pytest.param(0, ("Failed", "Degraded"), id="empty")],
)
def test_pools(gpus: int, want: tuple[str, str]) -> None:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build())
    made.run(3)
    shown = document(made.pools["fast"])
    assert (kstatus(shown), argo(shown)[0]) == want


@pytest.mark.parametrize(
    ("nodes", "passes", "want", "want_message"),
    [
        pytest.param(Nodes(), 30, ("InProgress", "Suspended"), "waits for approval", id="waits for approval"),
        pytest.param(approved(), 16, ("InProgress", "Progressing"), "", id="being cut"),
        pytest.param(approved(), 60, ("Current", "Healthy"), "42 accelerators", id="cut"),
        pytest.param(
            approved(mig_manager=MigManagerDouble(fails={"b"})), 60, ("Failed", "Degraded"), "failed on b", id="failed"
        ),
    ],
)
def test_pools_of_slices(nodes: Nodes, passes: int, want: tuple[str, str], want_message: str) -> None:
    nodes.run(passes)
    shown = document(nodes.pool)
    health, message = argo(shown)
    assert (kstatus(shown), health) == want
    assert want_message in message


def of_plans(made: SimulatedCluster) -> dict[str, tuple[str, str]]:
    """What kstatus and Argo CD say of every plan, by the reason of its Ready condition."""
    shown = [document(plan) for plan in made.plans.values()]
    reasons = [next(c["reason"] for c in d["status"]["conditions"] if c["type"] == "Ready") for d in shown]
    return {reason: (kstatus(d), argo(d)[0]) for reason, d in zip(reasons, shown, strict=True)}


def rerated(made: SimulatedCluster) -> None:
    come(made)
    come(made, TRAFFIC.rate(400).build())


def with_window(made: SimulatedCluster) -> None:
    closed = ({"days": ("Sun",), "start": "00:00", "durationMinutes": 10},)
    come(made, TRAFFIC.with_spec(maintenance_windows=closed).build())
    come(made, TRAFFIC.rate(400).with_spec(maintenance_windows=closed).build())


@pytest.mark.parametrize(
    ("story", "want"),
    [
        pytest.param(serving, {"Serving": ("Current", "Healthy")}, id="serving"),
        pytest.param(gaining_replicas, {"Serving": ("InProgress", "Healthy")}, id="gains replicas"),
        pytest.param(coming_up, {"RollingOut": ("InProgress", "Progressing")}, id="coming up"),
        pytest.param(without_engine, {"EngineUnavailable": ("InProgress", "Progressing")}, id="engine away"),
        pytest.param(awaiting_approval, {"AwaitingApproval": ("InProgress", "Suspended")}, id="awaiting approval"),
        pytest.param(
            rerated,
            {"Serving": ("Current", "Healthy"), "Superseded": ("Current", "Healthy")},
            id="kept for a rollback",
        ),
        pytest.param(
            with_window,
            {"Serving": ("Current", "Healthy"), "OutsideWindow": ("InProgress", "Suspended")},
            id="waits for its window",
        ),
        pytest.param(
            outranked, {"Outranked": ("Failed", "Degraded"), "Serving": ("Current", "Healthy")}, id="outranked"
        ),
    ],
)
def test_plans(story: Story, want: dict[str, tuple[str, str]]) -> None:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(8).build())
    story(made)
    assert of_plans(made) == want
