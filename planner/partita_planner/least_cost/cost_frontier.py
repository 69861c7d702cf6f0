"""A module's least cost by latency budget, from unlimited pools: a falling step function, its frontier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import (
    TemplateDeployment,
    allocated_price,
    in_dispatch_order,
    occupancy_price,
)
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.allocation.pruning import cheapest_by_latency
from partita_planner.allocation.resources import AvailableResources
from partita_planner.least_cost.bundle_search import Bundles, cheapest_cover
from partita_planner.least_cost.covers_with_reserve import CoversWithReserve
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template


@dataclass(frozen=True)
class CostStep:
    """One step of a module's frontier."""

    budget_micros: int
    """The least budget with this cost."""
    cost: float
    """Price per hour."""
    bound: float
    """Proven: no cheaper deployments keep the budget."""
    deployments: tuple[TemplateDeployment, ...]


def frontier(
    demand: ModuleDemand,
    resources: AvailableResources,
    objective: AllocationObjective,
    deadline: Deadline,
    margin: LossMargin | None = None,
) -> Iterator[CostStep]:
    """The module's least cost by latency budget, from unlimited pools and from the largest budget downwards.

    With `margin`, of deployments that survive the loss of a replica, at their allocated price. Every step costs more
    than the one before it. Raises OutOfTimeError.
    """
    if margin is not None:
        walk = _surviving_steps(demand, resources, margin, deadline)
    elif objective is AllocationObjective.OCCUPANCY:
        walk = _occupancy_steps(demand, resources)
    else:
        walk = _allocated_steps(demand, resources, deadline)
    pending = next(walk, None)
    for step in walk:
        if deadline.passed:
            raise OutOfTimeError
        if pending is not None and step.cost > pending.cost * (1 + ROUNDING):
            yield pending
        pending = step
    if pending is not None:
        yield pending


def _allocated_steps(demand: ModuleDemand, resources: AvailableResources, deadline: Deadline) -> Iterator[CostStep]:
    """The cheapest cover within the largest budget, then the cheapest among faster covers, and so on."""
    templates = cheapest_by_latency(demand.templates, demand.capacity, resources.price, resources.unit_rate, deadline)
    if not templates:
        return
    bundles = Bundles.of(templates, demand, resources, deadline)
    latency = np.array([t.latency_micros for t in templates])
    while len(bundles.template):
        cover = cheapest_cover(demand, templates, bundles, resources, deadline)
        slowest = max(d.template.latency_micros for d in cover.deployments)
        yield CostStep(slowest, cover.price, cover.bound, cover.deployments)
        bundles = bundles.where(latency[bundles.template] < slowest)


def _surviving_steps(
    demand: ModuleDemand, resources: AvailableResources, margin: LossMargin, deadline: Deadline
) -> Iterator[CostStep]:
    """The same with covers that survive the loss of a replica."""
    for found, bound in CoversWithReserve.of(demand, margin).by_falling_latency(resources.price, deadline):
        deployments = in_dispatch_order(found, resources)
        price, slowest = allocated_price(deployments, resources), max(d.template.latency_micros for d in deployments)
        yield CostStep(slowest, price, min(price, bound), deployments)


def _occupancy_steps(demand: ModuleDemand, resources: AvailableResources) -> Iterator[CostStep]:
    """The template with the cheapest samples within the largest budget, then among faster templates, and so on."""
    templates: Sequence[Template] = demand.templates
    while templates:
        best = min(templates, key=lambda t: (resources.sample_price(t), t.latency_micros))
        deployments = (TemplateDeployment(best, best.replicas(demand.capacity)),)
        cost = occupancy_price(deployments, demand, resources)
        yield CostStep(best.latency_micros, cost, cost, deployments)
        templates = [t for t in templates if t.latency_micros < best.latency_micros]


def alone(demand: ModuleDemand, resources: AvailableResources, objective: AllocationObjective) -> list[CostStep]:
    """The cost of one template that serves the whole demand, by latency budget: fast, but not optimal."""
    steps: list[CostStep] = []
    for template in sorted(demand.templates, key=lambda t: t.latency_micros):
        deployments = (TemplateDeployment(template, template.replicas(demand.capacity)),)
        paid = allocated_price(deployments, resources)
        cost = occupancy_price(deployments, demand, resources) if objective is AllocationObjective.OCCUPANCY else paid
        if not steps or cost < steps[-1].cost:
            steps.append(CostStep(template.latency_micros, cost, 0.0, deployments))
    return steps
