"""A search for throughput starts from the current plan: the result is no worse, and no replica moves without gain."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import pool, problem, profile, session
from tests.planner.problems.planned import planned
from tests.planner.problems.small_problems import small_problems

from partita_api.pipelineplan import PipelinePlanSpec, ProfileRef
from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_planner.solver.deadline import Deadline
from partita_planner.strategies import STRATEGIES
from partita_planner.task.current_plan import current_deployments
from partita_planner.task.optimum import best_plan
from partita_planner.task.task import Task, TaskSolution

UNHURRIED = Deadline.after(60, lambda: 0.0)
TOO_LATE = Deadline.after(0, lambda: 0.0)


def two_alike(current_plan: PipelinePlanSpec | None = None, gpus: int = 3) -> PlanningProblem:
    """A chain of two equal models on two equal pools."""
    asked = session("s").slo(100).rate(100).chain("m0", "m1").with_spec(objective={"type": "Throughput"})
    pools = [pool(name).gpus(gpus).mps(2) for name in ("a", "b")]
    profiles = [
        profile(model).on(p.name).blocks(2).linear(2000, 6000).batches(1, 2, 4).divisors(1, 2)
        for model in ("m0", "m1")
        for p in pools
    ]
    return problem(asked, pools, profiles, current_plan=current_plan)


def task_of(asked: PlanningProblem) -> Task:
    return STRATEGIES["partita"].restrict(Task.of(asked))


def mirrored(spec: PipelinePlanSpec) -> PipelinePlanSpec:
    """The same plan with the pools' roles exchanged."""
    other = {"a": "b", "b": "a"}
    modules = tuple(
        m.model_copy(
            update={
                "pipelines": tuple(
                    p.model_copy(
                        update={"stages": tuple(s.model_copy(update={"pool": other[s.pool]}) for s in p.stages)}
                    )
                    for p in m.pipelines
                )
            }
        )
        for m in spec.modules
    )
    keys = {pair: made.key for pair, made in two_alike().profiles.items()}
    profiles = tuple(
        ProfileRef(module=ref.module, pool=other[ref.pool], key=keys[ref.module, other[ref.pool]])
        for ref in spec.profiles
    )
    return spec.model_copy(update={"modules": modules, "profiles": profiles})


def test_of_two_plans_that_are_as_good_the_one_in_force_stays() -> None:
    first = planned(two_alike())
    for current_plan in (first, mirrored(first)):
        task = task_of(two_alike(current_plan))
        found = best_plan(task, UNHURRIED)

        assert isinstance(found, TaskSolution)
        assert found.deployments == current_deployments(task, found.rate)


def test_out_of_time_the_plan_in_force_is_the_solution() -> None:
    current_plan = planned(two_alike())

    found = best_plan(task_of(two_alike(current_plan)), TOO_LATE)

    assert isinstance(found, TaskSolution)
    assert found.value == pytest.approx(float(current_plan.solution.value), rel=1e-5)
    assert found.bound >= float(current_plan.solution.bound) * (1 - 1e-5)
    assert plan(two_alike(current_plan), clock=lambda: 0.0) == Planned(current_plan)


def test_more_gpus_are_used() -> None:
    found = planned(two_alike(planned(two_alike()), gpus=5))

    assert float(found.throughput) > float(planned(two_alike()).throughput) * 1.3


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(two_alike(gpus=1), id="GPUs are gone"),
        pytest.param(replace(two_alike(), profiles={}), id="profiles are gone"),
    ],
)
def test_a_plan_that_does_not_hold_is_no_beginning(changed: PlanningProblem) -> None:
    asked = replace(changed, current_plan=planned(two_alike()))

    assert current_deployments(task_of(asked), asked.rate) is None


def test_what_a_strategy_may_not_use_is_no_beginning() -> None:
    task = task_of(two_alike(planned(two_alike())))
    used = current_deployments(task, 100.0)
    assert used is not None

    most = max(len(d.template.stages) for group in used.values() for d in group)
    assert current_deployments(replace(task, max_stages=most - 1), 100.0) is None


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=small_problems(most_models=2, objective="Throughput"))
def test_the_plan_in_force_is_never_worsened(asked: PlanningProblem) -> None:
    outcome = plan(asked, explain_seconds=0.0)
    if not isinstance(outcome, Planned):
        return
    task = task_of(replace(asked, current_plan=outcome.plan))
    value = float(outcome.plan.solution.value)

    for deadline in (TOO_LATE, UNHURRIED):
        found = best_plan(task, deadline)
        assert isinstance(found, TaskSolution)
        assert found.value >= value * (1 - 1e-5)
