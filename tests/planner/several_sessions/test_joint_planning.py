"""Several sessions planned together: the distribution of scarce GPUs, and the proven bound."""

from dataclasses import replace

import pytest
from tests.builders import pool, problem, profile, session

from partita_api.session.autoscaling import AvailabilityGoal, Loss
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem
from partita_planner.several_sessions.joint_planning import JointOutcome, JointPlanningError, plan_jointly


def asked(name: str, dear: float, cheap: float, cheap_gpus: int = 1, kind: str = "Cost") -> PlanningProblem:
    """A model that takes so many milliseconds on either pool, at 50 requests/s within 20 ms."""
    profiles = [
        profile(name).on(where).linear(1000 * millis, 0).batches(1)
        for where, millis in (("dear", dear), ("cheap", cheap))
    ]
    desired = session(name).slo(20).rate(50).model(name).planner(max_stages=1).with_spec(objective={"type": kind})
    pools = [pool("dear").gpus(4).price("3").watts(300), pool("cheap").gpus(cheap_gpus).price("1").watts(100)]
    return problem(desired, pools, profiles)


def together(*problems: PlanningProblem) -> JointOutcome:
    return plan_jointly(problems, 60, lambda one: plan(one, explain_seconds=0))


def gpus(found: JointOutcome) -> list[dict[str, int]]:
    return [outcome.plan.gpus() for outcome in found.outcomes if isinstance(outcome, Planned)]


def test_sessions_that_fit_side_by_side_cost_what_each_does_alone() -> None:
    found = together(asked("a", 10, 20, cheap_gpus=2), asked("b", 10, 20, cheap_gpus=2))

    assert gpus(found) == [{"cheap": 1}, {"cheap": 1}]
    assert (found.value, found.bound) == (2, 2)


@pytest.mark.parametrize("turned", [False, True])
def test_scarce_gpus_go_where_they_save_most(turned: bool) -> None:
    """One cheap GPU: without it a needs one of the expensive pool, and b, at 100 requests/s, two."""
    problems = [asked("a", 10, 20), replace(asked("b", 20, 10), rate=100.0)]

    found = together(*(reversed(problems) if turned else problems))

    assert gpus(found) == ([{"cheap": 1}, {"dear": 1}] if turned else [{"dear": 1}, {"cheap": 1}])
    assert (found.value, found.bound) == (3 + 1, 1 + 1)


def test_sessions_with_availability_are_not_planned_together_for_throughput() -> None:
    problems = [asked(name, 10, 20, kind="Throughput") for name in ("a", "b")]
    goal = AvailabilityGoal(survive_loss=Loss.REPLICA)
    problems[1] = replace(problems[1], spec=problems[1].spec.model_copy(update={"availability": goal}))

    with pytest.raises(JointPlanningError, match=r"availability \(b\).*plan them one by one"):
        together(*problems)


def test_none_is_planned_if_one_cannot_be() -> None:
    found = together(asked("a", 10, 20), asked("b", 30, 30))

    first, second = found.outcomes
    assert isinstance(first, NoPlan)
    assert isinstance(second, NoPlan)
    assert "no plan for b" in first.message
    assert second.reason is NoPlanReason.SLO_TOO_TIGHT
    assert (found.value, found.bound) == (None, None)


def test_too_few_gpus_for_all_of_them() -> None:
    sessions = [replace(asked(name, 10, 20), rate=350.0) for name in ("a", "b")]

    found = together(*sessions)

    assert all(isinstance(o, NoPlan) and "too few accelerators for all of them" in o.message for o in found.outcomes)


def test_throughput_is_shared_by_weight() -> None:
    found = together(asked("a", 10, 10, kind="Throughput"), asked("b", 10, 10, kind="Throughput"))

    assert found.value == pytest.approx(200)
    assert found.bound == pytest.approx(200, rel=0.3)


@pytest.mark.parametrize(
    ("problems", "want"),
    [
        pytest.param([], "give at least one", id="none"),
        pytest.param(
            [asked("a", 10, 20), asked("b", 10, 20, kind="Throughput")],
            "a: Cost by costModel Allocated, b: Throughput",
            id="cost and throughput",
        ),
        pytest.param(
            [asked("a", 10, 20), asked("b", 10, 20, kind="Power")], "give them one, or plan", id="cost and power"
        ),
    ],
)
def test_sessions_that_cannot_be_planned_together(problems: list[PlanningProblem], want: str) -> None:
    with pytest.raises(JointPlanningError, match=want):
        together(*problems)
