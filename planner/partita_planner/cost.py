"""Least cost for given rates: per-module frontiers, an exact latency split, and the pools' limits.

A module's least cost is a falling step function of its latency budget, its frontier. `frontier` walks down its steps,
each an exact cover of the demand (`covering`); the latency split then picks one step for each module such that every
path keeps the SLO, by a small MILP over any DAG. While the pools have the GPUs for the answer it is optimal. Where
they do not, all is solved jointly with the pools' limits (`search`), and the split's cost is a bound.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyomo.environ as pyo

from partita_planner.allocation import Aim, Demand, Deployment, Market, gpus_missing, occupancy_price
from partita_planner.covering import Bundles, cheapest_cover
from partita_planner.deadline import Deadline
from partita_planner.latency import LatencyGraph
from partita_planner.latency_split import add_split, solve_split
from partita_planner.milp import integer
from partita_planner.pruning import cheapest_by_latency
from partita_planner.search import Found, NothingFound, Search, search
from partita_planner.templates import Template
from partita_planner.throughput import highest_level

SAME_COST = 1e-9
RELATIVE_GAP = 1e-6
SPLIT_SHARE = 0.5
"""Share of the time for the split; the rest is for the joint search, if the pools turn out to be too small."""


def least_cost(
    demands: Sequence[Demand], market: Market, graph: LatencyGraph, aim: Aim, deadline: Deadline
) -> Found | NothingFound:
    """The cheapest deployments that have the capacity, keep the SLO on every path, and fit the pools.

    `aim` is ALLOCATED or OCCUPANCY; `market` one of vGPUs.
    """
    if any(not d.templates for d in demands) or highest_level(demands, market) < 1 - SAME_COST:
        return NothingFound(proven=True)
    unlimited = latency_split(demands, market, graph, aim, deadline.share(SPLIT_SHARE))
    if unlimited is not None and not gpus_missing(unlimited.deployments, market.pools):
        return unlimited
    joint = search(Search(tuple(demands), market, aim, graph, RELATIVE_GAP), deadline)
    if not isinstance(joint, Found) or unlimited is None:
        return joint
    return replace(joint, bound=min(joint.value, max(joint.bound, unlimited.bound)))


@dataclass(frozen=True)
class Step:
    """One step of a module's frontier."""

    budget_micros: int
    """The least budget at which this cost can be had."""
    cost: float
    """Price per hour."""
    bound: float
    """Proven: nothing cheaper keeps the budget."""
    deployments: tuple[Deployment, ...]


def frontier(demand: Demand, market: Market, aim: Aim) -> Iterator[Step]:
    """The module's least cost by latency budget, pools without end, from the largest budget down.

    Every step is dearer than the one before it.
    """
    walk = _occupancy_steps(demand, market) if aim is Aim.OCCUPANCY else _allocated_steps(demand, market)
    pending = next(walk, None)
    for step in walk:
        if pending is not None and step.cost > pending.cost * (1 + SAME_COST):
            yield pending
        pending = step
    if pending is not None:
        yield pending


def _allocated_steps(demand: Demand, market: Market) -> Iterator[Step]:
    """The cheapest cover within the largest budget, then within less than that one takes, and so on."""
    templates = cheapest_by_latency(demand.templates, demand.capacity, market.price, market.unit_rate)
    if not templates:
        return
    bundles = Bundles.of(templates, demand, market)
    latency = np.array([t.latency_micros for t in templates])
    while len(bundles.template):
        cover = cheapest_cover(demand, templates, bundles, market)
        slowest = max(d.template.latency_micros for d in cover.deployments)
        yield Step(slowest, cover.price, cover.bound, cover.deployments)
        bundles = bundles.where(latency[bundles.template] < slowest)


def _occupancy_steps(demand: Demand, market: Market) -> Iterator[Step]:
    """The template with the cheapest samples within the largest budget, then within less than that one takes."""
    templates: Sequence[Template] = demand.templates
    while templates:
        best = min(templates, key=lambda t: (market.sample_price(t), t.latency_micros))
        deployments = (Deployment(best, best.replicas(demand.capacity)),)
        cost = occupancy_price(deployments, demand, market)
        yield Step(best.latency_micros, cost, cost, deployments)
        templates = [t for t in templates if t.latency_micros < best.latency_micros]


def latency_split(
    demands: Sequence[Demand], market: Market, graph: LatencyGraph, aim: Aim, deadline: Deadline
) -> Found | None:
    """The cheapest steps, one for each module, that keep the SLO on every path, from pools without end.

    None if time runs out.
    """
    walks = {d.module: frontier(d, market, aim) for d in demands}
    steps = {module: [next(walk)] for module, walk in walks.items()}
    if graph.longest({module: first[0].budget_micros for module, first in steps.items()}) > graph.slo_micros:
        for module, walk in walks.items():
            while not deadline.passed and (step := next(walk, None)) is not None:
                steps[module].append(step)
    if deadline.passed:
        return None
    chosen = _choose(steps, graph, deadline)
    if chosen is None:
        return None
    cost = sum(step.cost for step in chosen.values())
    proven = min(step.bound / step.cost if step.cost else 1.0 for walk in steps.values() for step in walk)
    return Found({module: step.deployments for module, step in chosen.items()}, cost, cost * proven)


def _choose(steps: Mapping[str, Sequence[Step]], graph: LatencyGraph, deadline: Deadline) -> dict[str, Step] | None:
    """One step for each module at the least total cost within the SLO; None if there is none, or no time."""
    by_budget = {(module, step.budget_micros): step for module, walk in steps.items() for step in walk}
    model = pyo.ConcreteModel()
    add_split(model, graph, {module: [step.budget_micros for step in walk] for module, walk in steps.items()})
    model.objective = pyo.Objective(expr=sum(by_budget[key].cost * model.choice[key] for key in model.choice))
    if not solve_split(model, graph, deadline, relative_gap=0.0).found:
        return None
    return {key[0]: by_budget[key] for key in model.choice if integer(model.choice[key]) == 1}
