"""The MILP: how many vGPUs of which templates serve the modules' demands from the pools.

    f[t]      share of its module's demand that template t serves, 0..1
    n[t, s]   allocation units of stage s of t, integer: whole GPUs, or vGPUs of the stage's size
    level     how many times the demands are met (1, unless throughput is maximised)

    sum of f over a module's templates >= level
    capacity needed * f[t]             <= n[t, s] * (what one unit serves)
    vGPUs of one size                  <= size * GPUs divided that way;   the sum of these <= the pool's GPUs
    f[t]                               <= sum of choice[m, l] over l >= latency of t

where choice[m, l] selects one latency for each module so that every path keeps the SLO (`latency_split`).
Deployments that survive losses have further constraints (`loss_margin`).
A GPU is divided into vGPUs of one size only, since that is how profiles measure them.
"""

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any

import pyomo.environ as pyo
from pyomo.core.expr.visitor import identify_variables

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment, in_dispatch_order
from partita_planner.allocation.latency_split import add_split, allowed
from partita_planner.allocation.loss_margin import LossMargin, add_margin, start_margin
from partita_planner.allocation.resources import AvailableResources, missing_price
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.milp import integer
from partita_planner.templates.templates import Template, TemplateStage


def allocation_model(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    objective: AllocationObjective,
    *,
    graph: LatencyGraph | None = None,
    highest_level: float = 1.0,
    margin: LossMargin | None = None,
) -> Any:
    """The formulation above as a Pyomo model.

    Without `graph`, latencies are not coupled. `highest_level` bounds the level of AllocationObjective.THROUGHPUT. It
    scales the model: the objective is the share of `highest_level` that is reached.
    """
    model = pyo.ConcreteModel()
    templates = {(d.module, t): template for d in demands for t, template in enumerate(d.templates)}
    stages = {(*key, s): stage for key, template in templates.items() for s, stage in enumerate(template.stages)}
    needed = {d.module: d.capacity * highest_level for d in demands}
    model.f = pyo.Var(list(templates), bounds=(0, 1))
    model.n = pyo.Var(list(stages), domain=pyo.NonNegativeIntegers)
    model.level = pyo.Var(bounds=(0, 1))
    if objective is not AllocationObjective.THROUGHPUT:
        model.level.fix(1)

    def cover(m: Any, module: str) -> Any:
        return sum(m.f[key] for key in templates if key[0] == module) >= m.level

    unit = {key: resources.unit_rate(stage) / needed[key[0]] for key, stage in stages.items()}
    model.cover = pyo.Constraint([d.module for d in demands], rule=cover)
    model.serve = pyo.Constraint(list(stages), rule=lambda m, *key: m.f[key[:2]] <= m.n[key] * unit[key])
    if margin is not None:
        add_margin(model, margin, templates, unit)
    _add_capacity(model, stages, resources, elastic=objective is AllocationObjective.MISSING)
    if graph is not None:
        add_split(model, graph, {d.module: {t.latency_micros for t in d.templates} for d in demands})
        used = model.f if margin is None else model.c
        model.in_time = pyo.Constraint(
            list(templates), rule=lambda m, *key: used[key] <= allowed(m, key[0], templates[key].latency_micros)
        )
    model.objective = _objective(model, objective, templates, stages, resources, {d.module: d.rate for d in demands})
    return model


def deployments_of(
    model: Any, demands: Sequence[ModuleDemand], resources: AvailableResources, margin: LossMargin | None = None
) -> ModuleDeployments:
    """The deployments of a solved model, cheapest per sample first; throughput is computed from the integers."""
    used, fewest = (model.f, 1) if margin is None else (model.c, margin.min_replicas)
    found: dict[str, tuple[TemplateDeployment, ...]] = {}
    for demand in demands:
        budget = _chosen_micros(model, demand.module)
        chosen = []
        for t, template in enumerate(demand.templates):
            units = [integer(model.n[demand.module, t, s]) for s in range(len(template.stages))]
            in_use = min(units) >= fewest and pyo.value(used[demand.module, t]) > 0
            if in_use and template.latency_micros <= budget:
                replicas = tuple(resources.vgpus(s, n) for s, n in zip(template.stages, units, strict=True))
                chosen.append(TemplateDeployment(template, replicas))
        found[demand.module] = in_dispatch_order(chosen, resources)
    return ModuleDeployments(found)


def _chosen_micros(model: Any, module: str) -> float:
    """The latency that a solved model chose for a module; infinite where latencies are not coupled."""
    if not hasattr(model, "choice"):
        return inf
    return float(
        next(micros for name, micros in model.choice if name == module and integer(model.choice[name, micros]))
    )


def start_from(
    model: Any,
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    deployments: ModuleDeployments,
    highest_level: float = 1.0,
) -> None:
    """Set the model's variables to `deployments`, as the start of a search.

    Templates that are not in the model are omitted.
    """
    variables = [v for v in model.component_data_objects(pyo.Var) if not v.fixed]
    for variable in variables:
        variable.set_value(0, skip_validation=True)
    served = []
    for demand in demands:
        position = {template: t for t, template in enumerate(demand.templates)}
        chosen = [d for d in deployments[demand.module] if d.template in position]
        for deployment in chosen:
            share = min(1.0, deployment.throughput / (demand.capacity * highest_level))
            model.f[demand.module, position[deployment.template]].set_value(share)
            for s, count in enumerate(deployment.replicas):
                divisor = deployment.template.stages[s].divisor if resources.whole_gpus else 1
                model.n[demand.module, position[deployment.template], s].set_value(count // divisor)
            if hasattr(model, "c"):
                one = [s.throughput / (demand.capacity * highest_level) for s in deployment.template.stages]
                start_margin(model, (demand.module, position[deployment.template]), one, deployment.replicas)
        served.append(sum(d.throughput for d in chosen) / (demand.capacity * highest_level))
        if hasattr(model, "choice"):
            slowest = max((d.template.latency_micros for d in chosen), default=0)
            options = sorted(micros for module, micros in model.choice if module == demand.module)
            model.choice[demand.module, next(o for o in options if o >= slowest)].set_value(1)
    if not model.level.fixed:
        model.level.set_value(min(1.0, *served))
    for (pool, divisor), row in model.divide.items():
        vgpus = sum(v.value for v in identify_variables(row.body) if v.parent_component() is model.n)
        model.divided[pool, divisor].set_value(ceil(vgpus / divisor))


def _add_capacity(
    model: Any, stages: Mapping[Any, TemplateStage], resources: AvailableResources, elastic: bool
) -> None:
    """Limits each pool to its GPUs, plus `missing` GPUs if `elastic`."""
    pools = sorted({stage.pool for stage in stages.values()})
    sizes = sorted({(stage.pool, 1 if resources.whole_gpus else stage.divisor) for stage in stages.values()})
    model.missing = pyo.Var(pools, domain=pyo.NonNegativeIntegers)
    model.divided = pyo.Var(sizes, domain=pyo.NonNegativeIntegers)
    if not elastic:
        model.missing.fix(0)

    def divide(m: Any, pool: str, divisor: int) -> Any:
        size = [key for key, s in stages.items() if s.pool == pool and (resources.whole_gpus or s.divisor == divisor)]
        return sum(m.n[key] for key in size) <= divisor * m.divided[pool, divisor]

    model.divide = pyo.Constraint(sizes, rule=divide)
    model.capacity = pyo.Constraint(
        pools,
        rule=lambda m, pool: (
            sum(m.divided[key] for key in sizes if key[0] == pool) <= resources.pools[pool].gpus + m.missing[pool]
        ),
    )


def _objective(
    model: Any,
    objective: AllocationObjective,
    templates: Mapping[Any, Template],
    stages: Mapping[Any, TemplateStage],
    resources: AvailableResources,
    rate: Mapping[str, float],
) -> Any:
    match objective:
        case AllocationObjective.THROUGHPUT:
            return pyo.Objective(expr=model.level, sense=pyo.maximize)
        case AllocationObjective.ALLOCATED:
            return pyo.Objective(expr=sum(resources.price(stage) * model.n[key] for key, stage in stages.items()))
        case AllocationObjective.OCCUPANCY:
            paid = {key: rate[key[0]] * resources.sample_price(template) for key, template in templates.items()}
            return pyo.Objective(expr=sum(paid[key] * model.f[key] for key in templates))
        case AllocationObjective.MISSING:
            paid = {name: missing_price(resources.pools[name]) for name in model.missing}
            return pyo.Objective(expr=sum(paid[name] * model.missing[name] for name in model.missing))
