"""`ppipe`: the formulation with batch size unification as it was published (PPipe, appendix A.2).

A model has one pipeline for each sequence of GPU classes, with one choice of blocks, vGPU sizes and batch size
(equations 16 to 22), and stages have any number of vGPUs (23). One thing differs: (23) adds up fractions of GPUs, so
that a GPU may hold vGPUs of several sizes; here it holds one size only, as it was profiled.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyomo.environ as pyo

from partita_api.inferencesession import ObjectiveType
from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.formulation import allocation_model, deployments_of, start_from
from partita_planner.allocation.latency_split import solve_split
from partita_planner.allocation.relaxation import Relaxation, relax, rounded
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import AllocationProblem, Found, NothingFound, value_of
from partita_planner.allocation.throughput import highest_level
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import solve
from partita_planner.solver.tolerances import THROUGHPUT_GAP
from partita_planner.strategies.strategy import Strategy
from partita_planner.task.optimum import demands_at_level, of_all, throughput_plan
from partita_planner.task.task import Task
from partita_planner.templates.templates import Template


def most_published(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    deadline: Deadline,
    graph: LatencyGraph | None = None,
) -> Found | NothingFound:
    """The optimum of the published formulation over the templates of `demands`, distinguished by vGPU size."""
    if any(not d.templates for d in demands):
        return NothingFound(proven=True)
    shared = replace(resources, whole_gpus=False)
    relaxation = relax(demands, shared, AllocationObjective.THROUGHPUT, deadline, highest_level(demands, shared))
    if relaxation is None or relaxation.bound <= 0:
        return NothingFound(proven=not deadline.passed)
    problem = AllocationProblem(tuple(demands), shared, AllocationObjective.THROUGHPUT, graph, relaxation.bound)
    model = allocation_model(
        demands, shared, AllocationObjective.THROUGHPUT, graph=graph, highest_level=problem.highest_level
    )
    seed = _seed(problem, relaxation)
    _one_for_each_sequence(model, demands)
    if seed is not None:
        start_from(model, demands, shared, seed.deployments, problem.highest_level)
        for key, share in model.f.items():
            model.used[key].set_value(1 if share.value else 0)
    if graph is None:
        answer = solve(model, deadline, relative_gap=THROUGHPUT_GAP, warm_start=seed is not None)
    else:
        answer = solve_split(model, graph, deadline, relative_gap=THROUGHPUT_GAP, warm_start=seed is not None)
    if not answer.found:
        return seed or NothingFound(answer.infeasible)
    deployments = deployments_of(model, demands, shared)
    value = value_of(problem, deployments)
    if value <= 0:
        return NothingFound(proven=not deadline.passed)
    bound = relaxation.bound if answer.bound is None else min(relaxation.bound, answer.bound * relaxation.bound)
    return Found(deployments, value, max(value, bound))


def _seed(problem: AllocationProblem, relaxation: Relaxation) -> Found | None:
    """The rounded relaxation with the largest template of each sequence; None where latencies are coupled."""
    if problem.graph is not None:
        return None
    largest: dict[str, dict[Template, float]] = {}
    for module, shares in relaxation.shares.items():
        by_sequence = {_sequence(t): t for t in sorted(shares, key=lambda t: shares[t])}
        largest[module] = {t: shares[t] for t in by_sequence.values()}
    deployments = rounded(replace(relaxation, shares=largest), problem.demands, problem.resources)
    if deployments is None:
        return None
    return Found(deployments, value_of(problem, deployments), relaxation.bound)


def _sequence(template: Template) -> tuple[str, ...]:
    return tuple(stage.pool for stage in template.stages)


def _one_for_each_sequence(model: pyo.ConcreteModel, demands: Sequence[ModuleDemand]) -> None:
    """At most one template of a module for each sequence of pools."""
    sequences: dict[tuple[str, tuple[str, ...]], list[tuple[str, int]]] = {}
    for demand in demands:
        for t, template in enumerate(demand.templates):
            sequences.setdefault((demand.module, _sequence(template)), []).append((demand.module, t))
    model.used = pyo.Var(list(model.f), domain=pyo.Binary)
    model.only_used = pyo.Constraint(list(model.f), rule=lambda m, *key: m.f[key] <= m.used[key])
    model.one_used = pyo.ConstraintList()
    for keys in sequences.values():
        model.one_used.add(sum(model.used[key] for key in keys) <= 1)


def _most(task: Task, rate: float, deadline: Deadline) -> Found | NothingFound:
    demands = demands_at_level(task, rate, deadline)
    return of_all(task, demands, most_published(demands, task.resources, deadline, task.coupled), deadline)


PPIPE: Final = Strategy(
    "ppipe",
    restrict=lambda task: replace(task, pooled=True),
    solve=lambda task, deadline: throughput_plan(task, deadline, _most),
    holds_baseline=True,
    objectives=frozenset(kind for kind in ObjectiveType if kind.seeks_throughput),
)
