"""Priorities: which session gets scarce accelerators, which one gives way, and the messages."""

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders import pool, session
from tests.operator.doubles import signals, with_stages
from tests.operator.reconcile.simulated import SimulatedCluster
from tests.runtime.autoscaling.load_model import plan_of

from partita_api.fields.approval import Approval
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, Objective, ObjectiveType
from partita_api.meta import PAUSED_ANNOTATION
from partita_api.session.autoscaling import Autoscaling
from partita_operator.ports import StageTarget
from partita_operator.reconcile.capacity.accounting import available, users
from partita_operator.reconcile.capacity.priorities import within
from partita_runtime.autoscaling.replicas import planned_targets

GREEDY = {"objective": Objective(type=ObjectiveType.THROUGHPUT)}


def one(name: str, gpus: int, priority: int = 0, **spec: Any) -> InferenceSession:
    """A session that needs this number of accelerators."""
    return session(name).model("detector").rate(100 * gpus).with_spec(priority=priority, **spec).build()


def cluster(gpus: int, *sessions: InferenceSession, slow: int = 0) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build(), *([pool("slow").gpus(slow).build()] if slow else []))
    come(made, *sessions)
    return made


def come(made: SimulatedCluster, *sessions: InferenceSession, seconds: int = 15) -> None:
    for built in sessions:
        made.add(built)
        made.run(seconds)


def go(made: SimulatedCluster, name: str) -> None:
    made.delete(f"default/{name}")
    made.run(10)


def served(made: SimulatedCluster) -> dict[str, dict[str, int]]:
    """Replicas by session and pool."""
    found: dict[str, dict[str, int]] = {}
    for key, spec in made.engine.applied.items():
        on = {
            (m.name, p.name, i): s.pool
            for m in spec.plan.spec.modules
            for p in m.pipelines
            for i, s in enumerate(p.stages)
        }
        by_pool = found.setdefault(key.split("/")[1], {})
        for t in spec.targets:
            where = on[t.module, t.pipeline, t.stage]
            by_pool[where] = by_pool.get(where, 0) + t.replicas
    return found


def ready(made: SimulatedCluster, name: str) -> tuple[str, str, str]:
    found = next(c for c in made.session(name).status.conditions if c.type == "Ready")
    return str(found.status), found.reason, found.message


@pytest.mark.parametrize(
    ("gpus", "coming", "want"),
    [
        pytest.param(8, one("urgent", 4, 10), {"plain": 4, "urgent": 4}, id="enough for both: none gives way"),
        pytest.param(8, one("urgent", 6, 10), {"plain": 2, "urgent": 6}, id="the lower one runs with fewer replicas"),
        pytest.param(8, one("urgent", 8, 10), {"urgent": 8}, id="the lower one waits"),
        pytest.param(8, one("equal", 6), {"plain": 4}, id="of one priority: the older one keeps all"),
        pytest.param(8, one("humble", 6, -10), {"plain": 4}, id="the lower one takes nothing"),
        pytest.param(8, one("urgent", 9, 10), {"plain": 4}, id="nothing is taken if there is no plan"),
        pytest.param(8, one("urgent", 1, 10, **GREEDY), {"urgent": 8}, id="maximum throughput takes the pool"),
    ],
)
def test_which_session_gets_the_accelerators(gpus: int, coming: InferenceSession, want: Mapping[str, int]) -> None:
    made = cluster(gpus, one("plain", 4), coming)
    assert {name: pools["fast"] for name, pools in served(made).items()} == want
    held = {key.split("/")[1]: n for key, n in users("fast", made.cluster()).items()}
    assert held == want
    assert sum(held.values()) <= gpus


def test_a_degraded_session_names_the_sessions_that_took_accelerators() -> None:
    made = cluster(8, one("plain", 4), one("urgent", 6, 10))
    status, reason, message = ready(made, "plain")
    assert (status, reason) == ("False", "Outranked")
    assert "default/urgent (priority 10) has 6 of pool fast" in message
    assert "gets 2 of 4 accelerators of pool fast, and serves with 2 of 4 replicas." in message
    assert "Raise spec.priority" in message
    assert made.condition("plain", "Stalled") == ("True", "Outranked")
    assert [e.reason for key, e in made.events if key == "default/plain"].count("Outranked") == 1
    assert made.condition("urgent", "Ready") == ("True", "Serving")


def test_a_waiting_session_reports_that_and_is_stopped() -> None:
    made = cluster(8, one("plain", 4), one("urgent", 8, 10))
    status, reason, message = ready(made, "plain")
    assert (status, reason) == ("False", "Outranked")
    assert "and waits until one replica of each stage fits." in message


def test_a_new_session_of_lower_priority_names_the_holders_of_the_accelerators() -> None:
    made = cluster(8, one("urgent", 6, 10), one("plain", 4))
    status, reason, message = ready(made, "plain")
    assert (status, reason) == ("False", "Outranked")
    assert "default/urgent (priority 10) has 6 of pool fast" in message
    assert "detector needs 4 GPUs" in message
    assert "plain" not in served(made)


def test_a_session_moves_to_another_pool_instead_of_running_with_less() -> None:
    made = cluster(8, one("plain", 6), slow=8)
    assert served(made) == {"plain": {"fast": 6}}
    come(made, one("urgent", 4, 10, pools=("fast",)))
    assert served(made) == {"plain": {"slow": 6}, "urgent": {"fast": 4}}
    assert ready(made, "plain")[:2] == ("True", "Serving")
    assert "Outranked" not in {e.reason for _, e in made.events}, "it never had less"


def test_free_accelerators_are_used_first() -> None:
    made = cluster(8, one("plain", 6), slow=8)
    come(made, one("urgent", 4, 10))
    assert served(made) == {"plain": {"fast": 6}, "urgent": {"slow": 4}}


@pytest.mark.parametrize("gpus", [6, 8], ids=["degraded", "waiting"])
def test_the_accelerators_are_returned(gpus: int) -> None:
    made = cluster(8, one("plain", 4))
    before = made.engine.applied["default/plain"]
    come(made, one("urgent", gpus, 10))
    go(made, "urgent")
    after = made.engine.applied["default/plain"]
    assert (after.plan.metadata.name, after.targets) == (before.plan.metadata.name, before.targets)
    assert ready(made, "plain")[:2] == ("True", "Serving")


def test_plans_do_not_oscillate() -> None:
    """When the state is stable, there are no more solves, plans or moves."""
    made = cluster(8, one("first", 3), one("second", 3), one("urgent", 4, 10), one("humble", 2, -5))
    made.run(30)
    assert served(made) == {"first": {"fast": 3}, "second": {"fast": 1}, "urgent": {"fast": 4}}
    asked, planned, told = len(made.problems), list(made.made_plans), list(made.events)
    outcome = made.outcome()
    made.run(600, every=5)
    assert (len(made.problems), made.made_plans, made.events) == (asked, planned, told)
    assert made.outcome() == outcome


def test_the_final_state_is_the_same_after_a_restart() -> None:
    made = cluster(8, one("first", 3), one("second", 3), one("urgent", 4, 10))
    want = made.outcome()
    made.restart()
    made.run(30)
    assert made.outcome() == want


def test_a_plan_that_waits_for_approval_takes_nothing_yet() -> None:
    made = cluster(8, one("plain", 4))
    manual = session("urgent").planner(approval=Approval.MANUAL).model("detector").rate(600)
    come(made, manual.with_spec(priority=10).build())
    assert served(made) == {"plain": {"fast": 4}}
    assert ready(made, "plain")[:2] == ("True", "Serving")
    made.approve(made.session("urgent").status.pending_plan or "")
    made.run(15)
    assert served(made) == {"plain": {"fast": 2}, "urgent": {"fast": 6}}


def test_the_autoscaler_takes_nothing_from_those_of_lower_priority() -> None:
    made = cluster(8, one("plain", 4), one("urgent", 2, 10, autoscaling=Autoscaling(cool_down_seconds=0)))
    plan = made.engine.applied["default/urgent"].plan.metadata.name
    made.engine.reported["default/urgent"] = with_stages(
        signals(plan, 1000, 0.8, 0.0), {("detector", "p0", 0): (2, 0.0, 0.8)}
    )
    made.run(20)
    assert served(made) == {"plain": {"fast": 4}, "urgent": {"fast": 4}}


def test_a_paused_session_also_gives_way() -> None:
    built = one("plain", 4)
    paused = built.model_copy(
        update={"metadata": built.metadata.model_copy(update={"annotations": {PAUSED_ANNOTATION: "load test"}})}
    )
    made = cluster(8, built, paused, one("urgent", 6, 10))
    assert served(made) == {"plain": {"fast": 2}, "urgent": {"fast": 6}}
    assert ready(made, "plain")[1] == "Outranked"
    assert made.condition("plain", "Held") == ("True", "Paused")


def test_throughput_is_shared_by_those_of_one_priority_only() -> None:
    made = cluster(9, one("low", 1, **GREEDY), one("urgent", 4, 10))
    come(made, one("other", 1, **GREEDY), seconds=60)
    assert served(made) == {"low": {"fast": 2}, "other": {"fast": 3}, "urgent": {"fast": 4}}
    assert available(made.session("urgent"), made.cluster(), taking=True) == {"fast": 9}


def test_a_changed_priority_changes_who_is_served() -> None:
    made = cluster(8, one("first", 6), one("second", 6))
    assert set(served(made)) == {"first"}
    come(made, one("second", 6, 1), seconds=30)
    assert served(made) == {"first": {"fast": 2}, "second": {"fast": 6}}
    come(made, one("first", 6, 2), seconds=30)
    assert served(made) == {"first": {"fast": 6}, "second": {"fast": 2}}


def targets(*counts: int) -> tuple[StageTarget, ...]:
    """Replicas of the plan below: detector p0 (fast, slow), detector p1 (slow), classifier p0 (cheap)."""
    where = [("detector", "p0", 0), ("detector", "p0", 1), ("detector", "p1", 0), ("classifier", "p0", 0)]
    return tuple(StageTarget(*stage, replicas=n) for stage, n in zip(where, counts, strict=True))


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param({}, (4, 8, 2, 3), id="no limit"),
        pytest.param({"fast": 4, "slow": 10}, (4, 8, 2, 3), id="exactly enough"),
        pytest.param({"fast": 2}, (2, 4, 2, 3), id="the stages of a pipeline shrink in proportion"),
        pytest.param({"fast": 1}, (1, 2, 2, 3), id="one is left"),
        pytest.param({"fast": 0}, None, id="less than one of each stage"),
        pytest.param({"slow": 6}, (2, 4, 1, 3), id="all pipelines of the pool shrink"),
        pytest.param({"slow": 2}, (1, 1, 1, 3), id="one of each"),
        pytest.param({"slow": 1}, None, id="one of each is too much"),
        pytest.param({"cheap": 2, "fast": 3}, (3, 6, 2, 2), id="several pools are short"),
        pytest.param({"elsewhere": 0}, (4, 8, 2, 3), id="a pool that is not used"),
    ],
)
def test_replicas_of_a_plan_within_limits(limits: Mapping[str, int], want: tuple[int, ...] | None) -> None:
    plan = plan_of(
        {
            "detector": {"p0": [("fast", 1, 4, 10_000), ("slow", 1, 8, 20_000)], "p1": [("slow", 1, 2, 20_000)]},
            "classifier": {"p0": [("cheap", 1, 3, 10_000)]},
        }
    )
    assert planned_targets(plan) == targets(4, 8, 2, 3)
    got = within(plan, planned_targets(plan), limits)
    assert got == (targets(*want) if want is not None else None)


@pytest.mark.parametrize("priority", [-1001, 1001])
def test_priorities_are_bounded(priority: int) -> None:
    spec = one("plain", 1).spec.model_dump()
    with pytest.raises(ValidationError, match="priority"):
        InferenceSessionSpec.model_validate({**spec, "priority": priority})
