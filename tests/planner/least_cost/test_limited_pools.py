"""Least cost if the pools have too few GPUs for the cheapest plan."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import linear_profiles, pool, problem, profile, session
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_api.inferencesession import Objective
from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.template_search import AllocationProblem, Found, NothingFound, search
from partita_planner.least_cost import cover_columns as covers
from partita_planner.least_cost.cheapest_deployments import least_cost
from partita_planner.least_cost.limited_pools import least_cost_within_pools
from partita_planner.problem import PlanningProblem
from partita_planner.solver.deadline import Deadline
from partita_planner.strategies import STRATEGIES
from partita_planner.task.task import Task

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENDLESS = Deadline.after(60, lambda: 0.0)


def asked(problem: PlanningProblem) -> Task:
    """The task of the strategy partita."""
    return STRATEGIES["partita"].restrict(Task.of(problem))


def cheapest(problem: PlanningProblem, deadline: Deadline = ENDLESS) -> Found | NothingFound:
    task = asked(problem)
    demands = task.demands(task.problem.rate, ENDLESS)
    if not all(d.templates for d in demands):
        return NothingFound(proven=True)
    return least_cost_within_pools(demands, task.resources, task.graph, task.objective, 0.0, deadline)


def priced(problem: PlanningProblem, cost_model: str) -> PlanningProblem:
    objective = Objective.model_validate({"type": "Cost", "costModel": cost_model})
    return replace(problem, spec=problem.spec.model_copy(update={"objective": objective}))


def fork(fast: int, slow: int, rate: int = 200) -> PlanningProblem:
    """A detector and two classifiers side by side; the slow pool is cheap for its speed."""
    desired = (
        session("traffic")
        .slo(150)
        .rate(rate)
        .model("detector")
        .function("crop", 5)
        .model("car")
        .model("person")
        .edge("detector", "crop")
        .edge("crop", "car", mean="1.5")
        .edge("crop", "person", mean="0.5")
        .planner(headroom_percent=10, max_stages=1)
    )
    pools = [pool("fast").gpus(fast).price("2").mps(2), pool("slow").gpus(slow).price("0.5").mps(2)]
    profiles = [p.divisors(1, 2) for p in linear_profiles(("detector", "car", "person"), {"fast": 1.0, "slow": 2.0})]
    return problem(desired, pools, profiles)


@pytest.mark.parametrize("cost_model", ["Allocated", "Occupancy"])
@FEW
@given(drawn=small_problems())
def test_nothing_within_the_pools_costs_less(drawn: PlanningProblem, cost_model: str) -> None:
    problem = priced(drawn, cost_model)
    want = oracle.least_cost(problem, occupancy=cost_model == "Occupancy")

    found = cheapest(problem)

    if want == inf:
        assert found == NothingFound(proven=True)
        return
    assert isinstance(found, Found)
    assert found.value == pytest.approx(want, rel=1e-6)
    assert found.bound == pytest.approx(want, rel=1e-5)
    assert found.deployments.missing_gpus(asked(problem).resources.pools) == {}


@pytest.mark.parametrize("cost_model", ["Allocated", "Occupancy"])
@pytest.mark.parametrize(
    ("fast", "slow"),
    [pytest.param(2, 20, id="few fast ones"), pytest.param(8, 1, id="one slow one"), pytest.param(4, 2, id="of both")],
)
def test_same_as_one_formulation_of_everything(fast: int, slow: int, cost_model: str) -> None:
    """The joint MILP is slower, and shares no code with the columns."""
    task = asked(priced(fork(fast, slow), cost_model))
    joint = search(
        AllocationProblem(task.demands(task.problem.rate, ENDLESS), task.resources, task.objective, task.graph), ENDLESS
    )
    assert isinstance(joint, Found)

    found = cheapest(task.problem)

    assert isinstance(found, Found)
    assert found.value == pytest.approx(joint.value, rel=1e-5)
    assert found.bound == pytest.approx(found.value, rel=1e-5)
    latency = {name: max(d.template.latency_micros for d in group) for name, group in found.deployments.items()}
    assert task.graph.longest(latency) <= task.graph.slo_micros


def test_a_plan_may_take_every_gpu() -> None:
    """The relaxation would have half of either pool's column, at the price of all GPUs."""
    pools = [pool("fast").gpus(1).price("1.7"), pool("slow").gpus(1).price("1.7")]
    profiles = [profile("m").on(p.name).batches(1).measured({1: [[4600.0]]}) for p in pools]
    desired = session("s").model("m").slo(10).rate(200).planner(headroom_percent=10, margin_percent=0)

    found = cheapest(problem(desired, pools, profiles))

    assert isinstance(found, Found)
    assert found.value == pytest.approx(3.4)


def test_too_few_gpus_are_proven_to_be_too_few() -> None:
    assert cheapest(fork(1, 1, rate=400)) == NothingFound(proven=True)


def test_a_search_that_gives_up_says_how_far_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    optimum = cheapest(fork(8, 1))
    monkeypatch.setattr(covers, "MAX_VISITS", 0)
    monkeypatch.setattr(covers, "MAX_COLUMNS", 0)

    found = cheapest(fork(8, 1))

    assert isinstance(optimum, Found)
    assert isinstance(found, Found)
    assert found.bound <= optimum.value * (1 + 1e-9)
    assert optimum.value <= found.value * (1 + 1e-9)


def test_out_of_time_nothing_is_claimed() -> None:
    over = Deadline.after(0, lambda: 0.0)

    assert cheapest(fork(8, 1), over) == NothingFound(proven=False)


def test_pools_too_large_for_columns_are_left_to_the_joint_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covers, "MAX_BUNDLES", 1)
    task = asked(fork(8, 1))

    found = least_cost(
        task.demands(task.problem.rate, ENDLESS), task.resources, task.graph, AllocationObjective.ALLOCATED, ENDLESS
    )

    assert cheapest(fork(8, 1)) == NothingFound(proven=False)
    assert isinstance(found, Found)
    assert found.bound == pytest.approx(found.value, rel=1e-5)
