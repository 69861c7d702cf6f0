"""Every strategy ends at its deadline, with the best plan so far.

The clock advances by a second whenever it is read, so time runs out in the middle of every kind of step.
"""

from collections.abc import Callable

import pytest
from tests.builders import pool, problem, profile, session

from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.template_search import Found
from partita_planner.least_cost.cheapest_deployments import least_cost
from partita_planner.planning import plan
from partita_planner.problem import NoPlanReason, Planned, PlanningProblem
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.strategies import STRATEGIES
from partita_planner.task.task import Task, TaskSolution
from partita_planner.validation import validate

READS = 100
"""How often the clock may be read after the deadline: every remaining step checks it."""
MOMENTS = (0, 10, 30, 100, 1000)
ENOUGH = 1000
"""Reads of the clock after which every strategy has a plan."""


def ticking() -> Callable[[], float]:
    """A clock that is a second later whenever it is read."""
    moments = iter(range(10**9))
    return lambda: float(next(moments))


def asked(strategy: str, kind: str = "Cost", cost_model: str = "Allocated", seconds: int = 30) -> PlanningProblem:
    """A chain of two models of four blocks on two pools with three vGPU sizes."""
    built = (
        session("s")
        .slo(200)
        .rate(300)
        .chain("m0", "m1")
        .planner(strategy=strategy, max_stages=3, time_limit_seconds=seconds)
        .with_spec(objective={"type": kind, "costModel": cost_model})
    )
    pools = [pool("a").gpus(12).mps(4).price("2"), pool("b").gpus(12).mps(4)]
    made = []
    for model in ("m0", "m1"):
        for name, times in {"a": (4.0, 3.0, 1.0, 2.5), "b": (2.0, 6.0, 1.5, 1.0)}.items():
            rows = {v: [[700 * v**0.8 * t, 1100 * v**0.8 * t] for t in times] for v in (1, 2, 4)}
            made.append(profile(model).on(name).batches(1, 2).measured(rows))
    return problem(built, pools, made)


CASES = [
    *(
        ("partita", kind, cost)
        for kind, cost in (("Cost", "Allocated"), ("Cost", "Occupancy"), ("Throughput", "Allocated"))
    ),
    *((name, "Throughput", "Allocated") for name in ("ppipe", "dart-r", "no-partitioning")),
    *(
        (name, "Cost", "Allocated")
        for name in ("harpagon", "piccolo", "nexus", "scrooge", "inferline", "clipper", "optimal")
    ),
]


@pytest.mark.parametrize(("strategy", "kind", "cost_model"), CASES)
def test_ends_when_time_is_up(strategy: str, kind: str, cost_model: str) -> None:
    chosen = STRATEGIES[strategy]
    task = chosen.restrict(Task.of(asked(strategy, kind, cost_model)))
    for seconds in MOMENTS:
        clock = ticking()
        deadline = Deadline.after(seconds, clock)

        found = chosen.solve(task, deadline)

        assert clock() <= deadline.at + READS
        if not isinstance(found, TaskSolution):
            assert not found.proven
            assert seconds < ENOUGH


@pytest.mark.parametrize(("strategy", "kind", "cost_model"), CASES)
def test_plans_that_were_cut_short_hold(strategy: str, kind: str, cost_model: str) -> None:
    for seconds in (30, 100, 300, 3600):
        problem = asked(strategy, kind, cost_model, seconds)

        outcome = plan(problem, clock=ticking(), explain_seconds=0.0)

        if isinstance(outcome, Planned):
            assert validate(outcome.plan, problem) == ()
        else:
            assert outcome.reason is NoPlanReason.TIME_LIMIT
    assert isinstance(outcome, Planned)


def test_without_time_for_frontiers_there_is_a_plan_of_one_template_for_each_module() -> None:
    """The clock advances only while frontiers are computed, until their time is used up."""
    task = STRATEGIES["partita"].restrict(Task.of(asked("partita")))
    demands = task.demands(task.problem.rate, NEVER)
    moments = iter([0.0, 0.0])
    deadline = Deadline(lambda: next(moments, 59.0), 60.0)

    found = least_cost(demands, task.resources, task.graph, AllocationObjective.ALLOCATED, deadline)

    assert isinstance(found, Found)
    assert found.deployments.missing_gpus(task.resources.pools) == {}
    assert found.bound <= found.value
