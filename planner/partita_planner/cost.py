"""Least cost for given rates: per-module frontiers, an exact latency split, and the pools' limits.

A module's least cost is a falling step function of its latency budget. `frontier` walks down its steps, each the
optimum of a covering MILP; `least_cost` then picks one step for each module such that every path keeps the SLO, by a
small MILP over any DAG. While the pools have the GPUs for the answer it is optimal. Where they do not, all is solved
jointly with the pools' limits (`search`), and the split's cost is a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyomo.environ as pyo

from partita_planner.allocation import (
    Aim,
    Demand,
    Deployment,
    Market,
    allocated_price,
    allocation_model,
    deployments_of,
    gpus_missing,
    occupancy_price,
)
from partita_planner.deadline import Deadline
from partita_planner.latency import LatencyGraph
from partita_planner.latency_split import add_split, solve_split
from partita_planner.milp import integer, solve
from partita_planner.pruning import least_excess, promising
from partita_planner.search import Found, NothingFound, Search, search

SAME_COST = 1e-9
RELATIVE_GAP = 1e-6


@dataclass(frozen=True)
class Step:
    """One step of a module's frontier."""

    budget_micros: int
    """The least budget at which this cost can be had."""
    cost: float
    """Price per hour."""
    bound: float
    """Proven: no cheaper deployment keeps the budget."""
    deployments: tuple[Deployment, ...]


def least_cost(
    demands: Sequence[Demand], market: Market, graph: LatencyGraph, aim: Aim, deadline: Deadline
) -> Found | NothingFound:
    """The cheapest deployments that have the capacity, keep the SLO on every path, and fit the pools.

    `aim` is ALLOCATED or OCCUPANCY; `market` one of vGPUs.
    """
    if any(not d.templates for d in demands):
        return NothingFound(proven=True)
    unlimited = _split(demands, market, graph, aim, deadline)
    if unlimited is None or not gpus_missing(unlimited.deployments, market.pools):
        return unlimited or NothingFound(proven=not deadline.passed)
    joint = search(Search(tuple(demands), market, aim, graph, RELATIVE_GAP), deadline)
    if not isinstance(joint, Found):
        return joint
    return replace(joint, bound=min(joint.value, max(joint.bound, unlimited.bound)))


def frontier(demand: Demand, market: Market, aim: Aim, deadline: Deadline) -> Iterator[Step]:
    """The module's least cost by latency budget, from the largest budget down; each step is strictly dearer."""
    pending: Step | None = None
    templates = demand.templates
    while templates and not deadline.passed:
        step = _cheapest(replace(demand, templates=templates), market, aim, deadline)
        if pending is not None and step.cost > pending.cost * (1 + SAME_COST):
            yield pending
        pending = step
        templates = tuple(t for t in templates if t.latency_micros < step.budget_micros)
    if pending is not None:
        yield pending


def _cheapest(demand: Demand, market: Market, aim: Aim, deadline: Deadline) -> Step:
    """The cheapest deployments of any of the demand's templates, pools without end."""
    ranked = sorted(demand.templates, key=lambda t: (market.sample_price(t), t.latency_micros))
    single: list[tuple[Deployment, ...]] = [(Deployment(t, t.replicas(demand.capacity)),) for t in ranked]
    if aim is Aim.OCCUPANCY:
        cost = occupancy_price(single[0], demand, market)
        return Step(ranked[0].latency_micros, cost, cost, single[0])
    best = min(single, key=lambda ds: (allocated_price(ds, market), ds[0].template.latency_micros))
    cost = allocated_price(best, market)
    sample_price = market.sample_price(ranked[0])
    bound = sample_price * demand.capacity
    excess = [least_excess(t, demand.capacity, sample_price, market.price, market.unit_rate) for t in demand.templates]
    fewer = replace(demand, templates=promising(demand.templates, excess, (cost - bound) * (1 - SAME_COST)))
    if fewer.templates:
        model = allocation_model([fewer], market, aim, limited=False)
        answer = solve(model, deadline, relative_gap=RELATIVE_GAP)
        bound = min(cost, answer.bound) if answer.bound is not None else bound
        if answer.value is not None:
            mixed = deployments_of(model, [fewer], market)[demand.module]
            if allocated_price(mixed, market) < cost * (1 - SAME_COST):
                best, cost = mixed, allocated_price(mixed, market)
    else:
        bound = cost
    return Step(max(d.template.latency_micros for d in best), cost, min(bound, cost), best)


def _split(
    demands: Sequence[Demand], market: Market, graph: LatencyGraph, aim: Aim, deadline: Deadline
) -> Found | None:
    """The cheapest steps, one for each module, that keep the SLO on every path, pools without end."""
    walks = {d.module: frontier(d, market, aim, deadline) for d in demands}
    steps = {module: [step] for module, walk in walks.items() if (step := next(walk, None)) is not None}
    if len(steps) < len(demands):
        return None
    if graph.longest({module: first[0].budget_micros for module, first in steps.items()}) > graph.slo_micros:
        for module, walk in walks.items():
            steps[module].extend(walk)
    chosen = _choose(steps, graph, deadline)
    if chosen is None:
        return None
    cost = sum(step.cost for step in chosen.values())
    proven = min(step.bound / step.cost if step.cost else 1.0 for walk in steps.values() for step in walk)
    return Found({module: step.deployments for module, step in chosen.items()}, cost, cost * proven)


def _choose(steps: Mapping[str, Sequence[Step]], graph: LatencyGraph, deadline: Deadline) -> dict[str, Step] | None:
    """One step for each module at the least total cost within the SLO; None if there is none, or time ran out."""
    by_budget = {(module, step.budget_micros): step for module, walk in steps.items() for step in walk}
    model = pyo.ConcreteModel()
    add_split(model, graph, {module: [step.budget_micros for step in walk] for module, walk in steps.items()})
    model.objective = pyo.Objective(expr=sum(by_budget[key].cost * model.choice[key] for key in model.choice))
    answer = solve_split(model, graph, deadline, relative_gap=0.0)
    if not answer.found:
        return None
    return {key[0]: by_budget[key] for key in model.choice if integer(model.choice[key]) == 1}
