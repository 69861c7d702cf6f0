"""What holds a session back from its plan: approval, pause, rollback and maintenance windows."""

from datetime import timedelta

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import signals, with_stages
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.conditions import Condition
from partita_api.fields.approval import Approval
from partita_api.meta import APPROVED_ANNOTATION, PAUSED_ANNOTATION, ROLLBACK_ANNOTATION
from partita_api.session.plan_changes import PlanPreview

DETECTOR = session("traffic").model("detector").rate(150)
MANUAL = DETECTOR.planner(approval=Approval.MANUAL)
NIGHTS = DETECTOR.with_spec(maintenance_windows=({"start": "02:00", "duration_minutes": 60},))
KEY = "default/traffic"


def settled(desired: SessionBuilder = DETECTOR, gpus: int = 8) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build(), desired.build())
    made.run(15)
    return made


def change(made: SimulatedCluster, desired: SessionBuilder, seconds: float = 15) -> None:
    """Apply another spec; annotations stay, because kubectl keeps those that the manifest lacks."""
    built = desired.build()
    annotations = made.session("traffic").metadata.annotations
    made.add(built.model_copy(update={"metadata": built.metadata.model_copy(update={"annotations": annotations})}))
    made.run(seconds)


def annotate(made: SimulatedCluster, seconds: float = 5, **annotations: str | None) -> None:
    names = {"approved": APPROVED_ANNOTATION, "rollback": ROLLBACK_ANNOTATION, "paused": PAUSED_ANNOTATION}
    found = made.sessions[KEY]
    kept = {**found.metadata.annotations, **{names[name]: value for name, value in annotations.items()}}
    meta = found.metadata.model_copy(update={"annotations": {k: v for k, v in kept.items() if v is not None}})
    made.sessions[KEY] = found.model_copy(update={"metadata": meta})
    made.run(seconds)


def serving(made: SimulatedCluster) -> str:
    return made.engine.applied[KEY].plan.metadata.name


def held(made: SimulatedCluster) -> Condition:
    return next(c for c in made.session("traffic").status.conditions if c.type == "Held")


def pending(made: SimulatedCluster) -> str:
    name = made.session("traffic").status.pending_plan
    assert name is not None
    return name


def preview(made: SimulatedCluster) -> PlanPreview:
    found = made.session("traffic").status.preview
    assert found is not None
    return found


def rolled_back() -> tuple[SimulatedCluster, str, str]:
    """A cluster that has rolled back from its second plan to its first, and the names of both."""
    made = settled()
    first = serving(made)
    change(made, DETECTOR.rate(350))
    second = serving(made)
    annotate(made, 10, rollback=f"{first}@2")
    return made, first, second


def test_a_plan_that_waits_for_approval_has_a_preview() -> None:
    made = settled()
    first = serving(made)
    change(made, MANUAL.rate(350))
    found = preview(made)
    assert (found.plan, found.reason) == (pending(made), "AwaitingApproval")
    assert (found.current_cost_per_hour, found.cost_per_hour) == ("2", "4")
    assert (found.current_throughput, found.throughput) == ("200", "400")
    assert ("pool fast", "accelerators", "2", "4") in [(c.where, c.what, c.before, c.after) for c in found.changes]
    assert serving(made) == first
    assert f"partita.dev/approved-plan={found.plan}" in held(made).message


def test_an_approval_by_annotation_releases_its_plan() -> None:
    made = settled()
    change(made, MANUAL.rate(350))
    desired = pending(made)
    annotate(made, approved=desired)
    assert serving(made) == desired
    assert made.session("traffic").status.preview is None
    assert (held(made).status, held(made).reason) == ("False", "Settled")


def test_an_approval_of_another_plan_has_no_effect() -> None:
    made = settled()
    first = serving(made)
    change(made, MANUAL.rate(350))
    approved = pending(made)
    change(made, MANUAL.rate(450), seconds=15)
    annotate(made, 15, approved=approved)
    assert pending(made) != approved
    assert serving(made) == first
    assert not made.plans[pending(made)].spec.approved
    assert f"another plan, {approved}" in held(made).message


def test_a_paused_session_keeps_its_plan_and_replicas() -> None:
    made = settled()
    first = serving(made)
    annotate(made, paused="load test")
    asked = len(made.problems)
    assert (held(made).status, held(made).reason) == ("True", "Paused")
    assert "load test" in held(made).message
    assert made.condition("traffic", "Ready") == ("True", "Serving")

    made.engine.reported[KEY] = with_stages(signals(first, 500, 0.6, 0.0), {("detector", "p0", 0): (2, 0.0, 0.6)})
    change(made, DETECTOR.rate(350), seconds=90)
    assert serving(made) == first
    assert len(made.problems) == asked, "no plan is searched for"
    assert [t.replicas for t in made.engine.applied[KEY].targets] == [2], "nothing is scaled"
    assert made.condition("traffic", "Ready") == ("False", "Paused")

    made.engine.reported.clear()
    annotate(made, 15, paused=None)
    assert serving(made) != first
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_the_replicas_of_a_paused_session_are_repaired() -> None:
    made = settled()
    first = serving(made)
    annotate(made, paused="true")
    made.engine.applied.clear()
    made.profiles.clear()
    made.restart()
    made.run(10)
    assert serving(made) == first


def test_a_session_that_is_paused_from_the_start_is_not_rolled_out() -> None:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(8).build(), DETECTOR.build())
    annotate(made, 15, paused="not yet")
    assert not made.engine.applied
    assert made.condition("traffic", "Ready") == ("False", "Paused")
    annotate(made, 15, paused="false")
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_a_rollback_holds_an_earlier_plan() -> None:
    made, first, second = rolled_back()
    made.run(60)
    asked = len(made.problems)
    assert serving(made) == first
    assert made.engine.applied[KEY].session.spec.rate.requests_per_second == 150, "with the spec that it was made from"
    assert (held(made).status, held(made).reason) == ("True", "RolledBack")
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    assert made.session("traffic").status.history[0] == second
    made.restart()
    made.run(30)
    assert serving(made) == first
    assert len(made.problems) == asked


def test_after_an_undone_rollback_the_newer_plan_serves() -> None:
    made, _, second = rolled_back()
    asked = len(made.problems)
    annotate(made, 10, rollback=None)
    assert serving(made) == second
    assert len(made.problems) == asked, "without another search"


def test_a_rollback_ends_with_a_change_of_the_spec() -> None:
    made, first, second = rolled_back()
    change(made, DETECTOR.rate(450))
    third = serving(made)
    assert third not in (first, second)
    assert (held(made).status, held(made).reason) == ("False", "Settled")
    assert "The rollback ended" in held(made).message


def test_a_rollback_waits_for_the_end_of_a_pause() -> None:
    made = settled()
    first = serving(made)
    change(made, DETECTOR.rate(350))
    second = serving(made)
    annotate(made, paused="true", rollback=f"{first}@2")
    assert serving(made) == second
    annotate(made, 10, paused=None)
    assert serving(made) == first


@pytest.mark.parametrize(
    ("asked", "want"),
    [
        pytest.param("traffic-00000000@2", "Plan traffic-00000000 does not exist", id="no such plan"),
        pytest.param("traffic", "not PLAN@GENERATION", id="without a generation"),
        pytest.param("a b@c", "not PLAN@GENERATION", id="nonsense"),
    ],
)
def test_an_impossible_rollback_gives_the_reason_and_changes_nothing(asked: str, want: str) -> None:
    made = settled()
    change(made, DETECTOR.rate(350))
    before = serving(made)
    annotate(made, 10, rollback=asked)
    assert (held(made).status, held(made).reason) == ("False", "RollbackRefused")
    assert want in held(made).message
    assert serving(made) == before
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_a_rollback_needs_its_accelerators() -> None:
    made = settled(DETECTOR.rate(550))
    first = serving(made)
    change(made, DETECTOR.rate(150))
    made.add(session("other").model("detector").rate(500).build())
    made.run(15)
    annotate(made, 10, rollback=f"{first}@2")
    assert held(made).reason == "RollbackRefused"
    assert "other sessions hold 3 of pool fast" in held(made).message


def test_outside_of_its_windows_a_session_keeps_its_plan() -> None:
    made = settled(NIGHTS)
    first = serving(made)
    change(made, NIGHTS.rate(350))
    assert serving(made) == first
    assert preview(made).not_before == "2026-01-01T02:00:00Z"
    assert (held(made).status, held(made).reason) == ("True", "OutsideWindow")
    assert "2026-01-01T02:00:00Z" in held(made).message
    waiting = pending(made)
    assert made.condition("traffic", "Ready") == ("False", "OutsideWindow")
    plan_ready = next(c for c in made.plans[waiting].status.conditions if c.type == "Ready")
    assert plan_ready.reason == "OutsideWindow"

    made.now += timedelta(hours=2)
    made.run(5)
    assert serving(made) == waiting
    assert made.session("traffic").status.preview is None


def test_a_migration_continues_when_its_window_closes() -> None:
    made = settled(NIGHTS)
    made.now += timedelta(hours=2, minutes=30)
    made.engine.most_ready = 0
    change(made, NIGHTS.rate(350))
    desired = serving(made)
    assert made.session("traffic").status.pending_plan == desired
    made.now += timedelta(hours=1)
    made.run(5)
    made.engine.most_ready = 1000
    made.run(5)
    assert serving(made) == desired
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_a_repair_does_not_wait_for_a_window() -> None:
    wide = NIGHTS.rate(550)
    made = SimulatedCluster()
    made.add(pool("fast").gpus(6).build(), pool("slow").gpus(8).build(), wide.build())
    made.run(15)
    first = serving(made)
    made.add(pool("fast").gpus(2).build())
    made.run(15)
    assert serving(made) != first
    assert set(made.engine.applied[KEY].pools) == {"slow"}


def test_the_first_roll_out_does_not_wait_for_a_window() -> None:
    made = settled(NIGHTS)
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_an_approved_plan_still_waits_for_its_window() -> None:
    made = settled(NIGHTS)
    first = serving(made)
    change(made, NIGHTS.planner(approval=Approval.MANUAL).rate(350))
    annotate(made, approved=pending(made))
    assert serving(made) == first
    assert held(made).reason == "OutsideWindow"


def test_each_hold_has_one_event() -> None:
    made = settled()
    annotate(made, 10, paused="load test")
    annotate(made, 10, paused=None)
    told = [event.reason for key, event in made.events if key == KEY]
    assert told.count("Paused") == 1
