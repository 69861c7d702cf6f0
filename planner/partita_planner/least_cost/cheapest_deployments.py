"""Least cost for given rates: per-module frontiers, an exact latency split, and the pools' limits.

A module's least cost is a falling step function of its latency budget, its frontier. `frontier` computes its steps,
each an exact cover of the demand (`bundle_search`). The latency split then selects one step for each module with a
small MILP over the DAG, so that every path keeps the SLO. If the pools have the GPUs for the result, it is optimal.
Otherwise column generation finds plans (`limited_pools`). Whatever it does not prove is solved together with the pools'
limits (`search`), with the split's cost as a bound.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyomo.environ as pyo

from partita_api.session.autoscaling import Loss
from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.latency_split import add_split, solve_split
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import AllocationProblem, Found, NothingFound, search
from partita_planner.allocation.throughput import highest_level
from partita_planner.least_cost.cost_frontier import CostStep, alone, frontier
from partita_planner.least_cost.limited_pools import least_cost_within_pools
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.milp import integer
from partita_planner.solver.tolerances import COST_GAP, ROUNDING

SPLIT_SHARE = 0.5
"""Share of the time for the split; the rest is for pools that are too small."""
COLUMNS_SHARE = 0.6
"""Share of the remaining time for column generation; the rest is for the joint search."""


def least_cost(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    graph: LatencyGraph,
    objective: AllocationObjective,
    deadline: Deadline,
) -> Found | NothingFound:
    """The cheapest deployments that meet the demands, keep the SLO on every path, and fit the pools.

    `objective` is ALLOCATED or OCCUPANCY; `resources` count vGPUs.
    """
    if any(not d.templates for d in demands) or highest_level(demands, resources) < 1 - ROUNDING:
        return NothingFound(proven=True)
    unlimited = cheapest_without_limits(demands, resources, graph, objective, deadline.share(SPLIT_SHARE))
    if unlimited is not None and not unlimited.deployments.missing_gpus(resources.pools):
        return unlimited
    bound = 0.0 if unlimited is None else unlimited.bound
    generated: Found | NothingFound = NothingFound(proven=False)
    if unlimited is None:
        generated = _of_one_template_each(demands, resources, graph, objective, deadline)
    else:
        generated = least_cost_within_pools(demands, resources, graph, objective, bound, deadline.share(COLUMNS_SHARE))
    if _settled(generated):
        return generated
    start = None
    if isinstance(generated, Found):
        bound, start = max(bound, generated.bound), generated.deployments
    joint = search(AllocationProblem(tuple(demands), resources, objective, graph), deadline, start)
    if not isinstance(joint, Found):
        return generated if isinstance(generated, Found) else joint
    return replace(joint, bound=min(joint.value, max(joint.bound, bound)))


def least_cost_with_margin(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    graph: LatencyGraph,
    objective: AllocationObjective,
    margin: LossMargin,
    deadline: Deadline,
    start: ModuleDeployments | None = None,
) -> Found | NothingFound:
    """The cheapest deployments that survive the losses of `margin`; `start` are some, if any are known."""
    if any(not d.templates for d in demands):
        return NothingFound(proven=True)
    bound = 0.0
    if margin.loss is Loss.REPLICA and objective is AllocationObjective.ALLOCATED:
        ends = deadline.share(SPLIT_SHARE)
        unlimited = cheapest_without_limits(demands, resources, graph, objective, ends, margin)
        if unlimited is not None:
            if not unlimited.deployments.missing_gpus(resources.pools):
                return unlimited
            bound = unlimited.bound
        ends = deadline.share(COLUMNS_SHARE)
        generated = least_cost_within_pools(demands, resources, graph, objective, bound, ends, margin)
        if _settled(generated):
            return generated
        if isinstance(generated, Found):
            bound, start = max(bound, generated.bound), generated.deployments
    joint = search(AllocationProblem(tuple(demands), resources, objective, graph, margin=margin), deadline, start)
    return replace(joint, bound=min(joint.value, max(joint.bound, bound))) if isinstance(joint, Found) else joint


def _settled(answer: Found | NothingFound) -> bool:
    """Whether the result is proven."""
    if isinstance(answer, NothingFound):
        return answer.proven
    return answer.bound >= answer.value * (1 - COST_GAP)


def cheapest_without_limits(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    graph: LatencyGraph,
    objective: AllocationObjective,
    deadline: Deadline,
    margin: LossMargin | None = None,
) -> Found | None:
    """The cheapest steps, one for each module, that keep the SLO on every path, from unlimited pools.

    With `margin`, they survive the loss of a replica. None if time runs out.
    """
    walks = {d.module: frontier(d, resources, objective, deadline, margin) for d in demands}
    try:
        steps = {module: [next(walk)] for module, walk in walks.items()}
        if not graph.keeps_slo({module: first[0].budget_micros for module, first in steps.items()}):
            for module, walk in walks.items():
                steps[module].extend(walk)
    except OutOfTimeError:
        return None
    chosen = _choose(steps, graph, deadline)
    if chosen is None:
        return None
    cost = sum(step.cost for step in chosen.values())
    proven = min(step.bound / step.cost if step.cost else 1.0 for walk in steps.values() for step in walk)
    return Found(_deployments(chosen), cost, cost * proven)


def _of_one_template_each(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    graph: LatencyGraph,
    objective: AllocationObjective,
    deadline: Deadline,
) -> Found | NothingFound:
    """The cheapest plan with one template for each module, if the pools suffice; its bound is 0."""
    chosen = _choose({d.module: alone(d, resources, objective) for d in demands}, graph, deadline)
    if chosen is None:
        return NothingFound(proven=False)
    deployments = _deployments(chosen)
    if deployments.missing_gpus(resources.pools):
        return NothingFound(proven=False)
    return Found(deployments, sum(step.cost for step in chosen.values()), 0.0)


def _deployments(steps: Mapping[str, CostStep]) -> ModuleDeployments:
    return ModuleDeployments({module: step.deployments for module, step in steps.items()})


def _choose(
    steps: Mapping[str, Sequence[CostStep]], graph: LatencyGraph, deadline: Deadline
) -> dict[str, CostStep] | None:
    """One step for each module at the least total cost within the SLO; None if there is none, or no time."""
    by_budget = {(module, step.budget_micros): step for module, walk in steps.items() for step in walk}
    model = pyo.ConcreteModel()
    add_split(model, graph, {module: [step.budget_micros for step in walk] for module, walk in steps.items()})
    model.objective = pyo.Objective(expr=sum(by_budget[key].cost * model.choice[key] for key in model.choice))
    if not solve_split(model, graph, deadline, relative_gap=0.0).found:
        return None
    return {key[0]: by_budget[key] for key in model.choice if integer(model.choice[key]) == 1}
