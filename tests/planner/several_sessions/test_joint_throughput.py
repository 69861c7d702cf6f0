"""Several sessions that share pools, planned together."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import PoolBuilder, pool, problem, profile, session
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem
from partita_planner.several_sessions.joint_throughput import (
    JointSolution,
    most_throughput_jointly,
    plan_joint_throughput,
)
from partita_planner.solver.deadline import Deadline
from partita_planner.task.task import Task
from partita_planner.validation import validate

FAST = pool("fast").gpus(6)


def unhurried() -> float:
    """A clock on which planning takes no time, however slow the machine is."""
    return 0.0


def one_model(name: str, micros: int, weight: int = 1, shared: PoolBuilder = FAST) -> PlanningProblem:
    """A session of one model that takes `micros` for a sample, whatever the batch."""
    desired = session(name).slo(100).model(name).with_spec(objective={"type": "Throughput", "weight": weight})
    return problem(desired, [shared], [profile(name).linear(micros, 0).batches(1)])


def test_gpus_go_where_the_least_served_session_needs_them() -> None:
    """100 and 50 a second for one GPU: two GPUs of six for the one, four for the other."""
    first, second = plan_joint_throughput([one_model("a", 10_000), one_model("b", 20_000)], 20, unhurried)

    assert isinstance(first, Planned)
    assert isinstance(second, Planned)
    assert [float(p.plan.throughput) for p in (first, second)] == [200, 200]
    assert [p.plan.gpus() for p in (first, second)] == [{"fast": 2}, {"fast": 4}]


def test_weights_are_kept() -> None:
    first, second = plan_joint_throughput([one_model("a", 10_000, weight=2), one_model("b", 10_000)], 20, unhurried)

    assert isinstance(first, Planned)
    assert isinstance(second, Planned)
    assert [float(p.plan.throughput) for p in (first, second)] == [400, 200]


def test_session_of_several_models_keeps_its_slo() -> None:
    desired = session("chain").slo(60).rate(50).chain("c", "d").with_spec(objective={"type": "Throughput"})
    chain = problem(desired, [FAST], [profile(name).linear(2000, 6000) for name in ("c", "d")])
    alone = one_model("a", 10_000)

    outcomes = plan_joint_throughput([chain, alone], 20, unhurried)

    for outcome, asked in zip(outcomes, (chain, alone), strict=True):
        assert isinstance(outcome, Planned), outcome
        assert validate(outcome.plan, asked) == ()
    assert sum(o.plan.gpus()["fast"] for o in outcomes if isinstance(o, Planned)) <= 6


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    asked=small_problems(most_models=1, objective="Throughput"),
    other=small_problems(most_models=1, objective="Throughput"),
    weight=st.integers(1, 3),
)
def test_level_is_the_optimum(asked: PlanningProblem, other: PlanningProblem, weight: int) -> None:
    """Batches of one are collected at once, so that brute force needs no rate."""
    problems = [unbatched(asked, asked, 1), unbatched(other, asked, weight)]
    tasks = [Task.of(p) for p in problems]
    latency_headroom = {p.name: p.gpus for p in asked.pools}
    raw = {
        str(i): [
            t for t in oracle.every_template(p, p.spec.modules[0].name, 1.0) if t.latency <= tasks[i].graph.slo_micros
        ]
        for i, p in enumerate(problems)
    }
    want = oracle.most_throughput(raw, {"0": 1.0, "1": float(weight)}, latency_headroom)

    found = most_throughput_jointly(tasks, Deadline.after(20, lambda: 0.0))

    assert (found.level if isinstance(found, JointSolution) else 0.0) == pytest.approx(want, rel=2e-4)


def unbatched(asked: PlanningProblem, shared: PlanningProblem, weight: int) -> PlanningProblem:
    """The problem with batches of one and a weight, on the pools of `shared`."""
    planner = asked.spec.planner.model_copy(update={"max_batch_size": 1})
    objective = asked.spec.objective.model_copy(update={"weight": weight})
    spec = asked.spec.model_copy(update={"planner": planner, "objective": objective})
    return replace(asked, spec=spec, pools=shared.pools)


def test_too_few_gpus_for_all_give_no_plan_to_any() -> None:
    scarce = pool("fast").gpus(1)

    outcomes = plan_joint_throughput(
        [one_model("a", 10_000, shared=scarce), one_model("b", 10_000, shared=scarce)], 20, unhurried
    )

    assert [o.reason for o in outcomes if isinstance(o, NoPlan)] == [NoPlanReason.INSUFFICIENT_CAPACITY] * 2


def test_sessions_must_agree_on_the_pools() -> None:
    with pytest.raises(ValueError, match="disagree on pool 'fast'"):
        plan_joint_throughput(
            [one_model("a", 10_000), one_model("b", 10_000, shared=pool("fast").gpus(5))], 20, unhurried
        )


def test_sessions_that_minimise_cost_are_refused() -> None:
    cheap = problem(session("s").slo(100).model("m"), [FAST], [profile("m")])

    with pytest.raises(ValueError, match="must all maximise throughput"):
        plan_joint_throughput([one_model("a", 10_000), cheap], 20, unhurried)
