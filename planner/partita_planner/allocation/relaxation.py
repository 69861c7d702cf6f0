"""The linear relaxation over fractions of GPUs: a bound, prices, and a first integer solution.

Without integrality n = needed * f / rate. So the shares of templates are the only variables, and vGPU sizes, sharing
and latencies do not matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyomo.environ as pyo

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment, in_dispatch_order
from partita_planner.allocation.resources import AvailableResources, missing_price
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import solve_lp
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.dominance import undominated_in_parts
from partita_planner.templates.templates import Template

HALVINGS = 40


@dataclass(frozen=True)
class Relaxation:
    """Optimum of the linear relaxation with its duals."""

    bound: float
    sample: Mapping[str, float]
    """By module: the cost of one more sample per second."""
    gpu: Mapping[str, float]
    """By pool: the worth of one more GPU."""
    shares: Mapping[str, Mapping[Template, float]]
    """The templates in use by module, and the share of the module's demand that each serves."""


def relax(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    objective: AllocationObjective,
    deadline: Deadline,
    highest_level: float = 1.0,
) -> Relaxation | None:
    """The relaxation for `objective` with a level of at most `highest_level`.

    None if it has no solution, or time ran out.
    """
    needed = {d.module: d.capacity * highest_level for d in demands}
    templates = {(d.module, t): x for d in demands for t, x in enumerate(_in_parts(d.templates))}
    pools = sorted({stage.pool for d in demands for template in d.templates for stage in template.stages})
    gpus = {(*key, pool): 0.0 for key in templates for pool in pools}
    for (module, t), template in templates.items():
        for stage in template.stages:
            gpus[module, t, stage.pool] += needed[module] * resources.gpus(stage) / resources.unit_rate(stage)

    model = pyo.ConcreteModel()
    model.f = pyo.Var(list(templates), domain=pyo.NonNegativeReals)
    model.level = pyo.Var(bounds=(0, 1))
    model.missing = pyo.Var(pools, domain=pyo.NonNegativeReals)
    if objective is not AllocationObjective.THROUGHPUT:
        model.level.fix(1)
    if objective is not AllocationObjective.MISSING:
        model.missing.fix(0)
    of_module: dict[str, list[Any]] = {d.module: [] for d in demands}
    for key in templates:
        of_module[key[0]].append(model.f[key])
    model.cover = pyo.Constraint(list(of_module), rule=lambda m, module: sum(of_module[module]) >= m.level)

    def capacity(m: Any, pool: str) -> Any:
        used = sum(gpus[*key, pool] * m.f[key] for key in templates if gpus[*key, pool])
        return used <= resources.pools[pool].gpus + m.missing[pool]

    model.capacity = pyo.Constraint(pools, rule=capacity)
    model.objective = _objective(model, objective, templates, resources, needed, {d.module: d.rate for d in demands})
    answer = solve_lp(model, deadline)
    if answer is None:
        return None
    value, duals = answer
    used = {key: float(pyo.value(model.f[key])) for key in templates}
    return Relaxation(
        bound=value * highest_level,
        sample={d.module: abs(duals[model.cover[d.module]]) / d.capacity for d in demands},
        gpu={pool: abs(duals[row]) * highest_level for pool, row in model.capacity.items()},
        shares={
            d.module: {x: used[key] for key, x in templates.items() if key[0] == d.module and used[key] > ROUNDING}
            for d in demands
        },
    )


def rounded(
    relaxation: Relaxation, demands: Sequence[ModuleDemand], resources: AvailableResources
) -> ModuleDeployments | None:
    """The relaxation's templates in its proportions, at the highest level in whole GPUs or vGPUs.

    None if the pools have too few for one of each stage.
    """

    def at(level: float) -> ModuleDeployments:
        return ModuleDeployments({d.module: in_dispatch_order(_served(d, level), resources) for d in demands})

    def _served(demand: ModuleDemand, level: float) -> list[TemplateDeployment]:
        shares = relaxation.shares[demand.module]
        served = {t: share / sum(shares.values()) * level * demand.capacity for t, share in shares.items()}
        return [deployed(template, x, resources) for template, x in served.items()]

    low, high = 0.0, relaxation.bound
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if at(middle).missing_gpus(resources.pools):
            high = middle
        else:
            low = middle
    return at(low) if low > 0 else None


def deployed(template: Template, serves: float, resources: AvailableResources) -> TemplateDeployment:
    """The template with the fewest vGPUs (or whole GPUs) that serve so many samples per second."""
    counts = [max(1, ceil(serves / resources.unit_rate(stage) * (1 - ROUNDING))) for stage in template.stages]
    return TemplateDeployment(
        template, tuple(resources.vgpus(s, n) for s, n in zip(template.stages, counts, strict=True))
    )


def _in_parts(templates: Sequence[Template]) -> tuple[Template, ...]:
    """The templates that matter to the relaxation."""
    column = {pool: i for i, pool in enumerate(sorted({s.pool for t in templates for s in t.stages}))}
    needs = np.zeros((len(templates), len(column)))
    for row, template in enumerate(templates):
        for stage in template.stages:
            needs[row, column[stage.pool]] += 1 / stage.gpu_throughput
    return tuple(templates[row] for row in undominated_in_parts(needs))


def _objective(
    model: Any,
    objective: AllocationObjective,
    templates: Mapping[Any, Template],
    resources: AvailableResources,
    needed: Mapping[str, float],
    rate: Mapping[str, float],
) -> Any:
    if objective is AllocationObjective.THROUGHPUT:
        return pyo.Objective(expr=model.level, sense=pyo.maximize)
    if objective is AllocationObjective.MISSING:
        return pyo.Objective(
            expr=sum(missing_price(resources.pools[name]) * model.missing[name] for name in model.missing)
        )
    paid_for = needed if objective is AllocationObjective.ALLOCATED else rate
    return pyo.Objective(
        expr=sum(paid_for[key[0]] * resources.sample_price(x) * model.f[key] for key, x in templates.items())
    )
