"""Plans against brute force on random small problems."""

from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found
from partita_planner.allocation.throughput import most_throughput
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, PlanningProblem
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.task.task import Task

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(problem=small_problems())
def test_cost_is_least(problem: PlanningProblem) -> None:
    want = oracle.least_cost(problem)

    outcome = plan(problem)

    if isinstance(outcome, NoPlan):
        assert want == inf, outcome.message
        assert outcome.reason in (NoPlanReason.SLO_TOO_TIGHT, NoPlanReason.INSUFFICIENT_CAPACITY)
    else:
        assert float(outcome.plan.cost.allocated_per_hour) == pytest.approx(want, rel=1e-4, abs=1e-5)
        assert float(outcome.plan.solution.bound) == pytest.approx(want, rel=1e-3, abs=1e-4)


@FEW
@given(problem=small_problems(most_models=2, objective="Throughput"))
def test_throughput_is_most(problem: PlanningProblem) -> None:
    """Modules with an SLO each, at given collection times."""
    task = Task.of(problem)
    limits = {m: task.limits(problem.rate, task.graph.slo_micros) for m in task.classes}
    demands = [
        ModuleDemand(module, 1.0, 1.0 + index, task.templates(module, limits[module], NEVER).templates)
        for index, module in enumerate(task.classes)
    ]
    weights = {d.module: d.capacity for d in demands}
    raw = {
        m: [t for t in oracle.every_template(problem, m, problem.rate) if t.latency <= task.graph.slo_micros]
        for m in task.classes
    }
    want = oracle.most_throughput(raw, weights, {p.name: p.gpus for p in problem.pools})

    found = most_throughput(
        demands, AvailableResources(task.resources.pools, whole_gpus=True), Deadline.after(20, lambda: 0.0)
    )

    assert (found.value if isinstance(found, Found) else 0.0) == pytest.approx(want, rel=2e-4)


@FEW
@given(problem=small_problems(objective="Throughput"))
def test_throughput_plan_keeps_its_bound_and_the_baseline(problem: PlanningProblem) -> None:
    """The plan itself, its SLO and its collection times at the rate it reaches, is checked by the validator."""
    outcome = plan(problem)

    if isinstance(outcome, NoPlan):
        assert outcome.reason in (NoPlanReason.SLO_TOO_TIGHT, NoPlanReason.INSUFFICIENT_CAPACITY), outcome.message
        return
    solution, (baseline,) = outcome.plan.solution, outcome.plan.alternatives
    assert float(solution.bound) >= float(solution.value) * (1 - 1e-6)
    assert float(baseline.value or 0) <= float(solution.value) * (1 + 1e-3)
    assert float(baseline.value or 0) <= float(solution.bound) * (1 + 1e-6)
