"""A bound on the pipelines that were not enumerated.

A stage spends on each sample at least the time of its blocks, at the vGPU size and batch size that are best for each
block on the pool's GPUs. So no pipelines of any number of stages serve more, or cost less, than blocks that each choose
their pools freely (index m: module, i: block, k: pool):

    sum over k of y[m, i, k]  >=  level * demand of m              for every block i of m
    sum over m and i of y[m, i, k] * seconds[m, i, k]  <=  GPUs of k
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import pyomo.environ as pyo

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.session.latency import SECOND
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import solve_lp
from partita_planner.templates.templates import ModuleClass


def bound_of_blocks(
    demands: Sequence[ModuleDemand],
    classes: Mapping[str, Sequence[ModuleClass]],
    resources: AvailableResources,
    objective: AllocationObjective,
    max_batch_size: int,
    deadline: Deadline,
) -> float:
    """A level that no pipelines of the modules exceed, or a price below which there are none.

    If time runs out: the level at which some block alone would need all GPUs, or a price of 0.
    """
    seconds = {
        (d.module, i, cls.pool.name): spent
        for d in demands
        for cls in classes[d.module]
        for i, spent in enumerate(_gpu_seconds(cls, max_batch_size))
        if spent < inf
    }
    blocks = sorted({(module, i) for module, i, _ in seconds})
    capacity = {d.module: d.capacity for d in demands}
    model = pyo.ConcreteModel()
    model.y = pyo.Var(list(seconds), domain=pyo.NonNegativeReals)
    model.level = pyo.Var(domain=pyo.NonNegativeReals)
    if objective is not AllocationObjective.THROUGHPUT:
        model.level.fix(1)

    def cover(m: Any, module: str, block: int) -> Any:
        on_pools = [cls.pool.name for cls in classes[module] if (module, block, cls.pool.name) in seconds]
        return sum(m.y[module, block, pool] for pool in on_pools) >= m.level

    used = {pool: [key for key in seconds if key[2] == pool] for pool in sorted({key[2] for key in seconds})}
    model.cover = pyo.Constraint(blocks, rule=cover)
    model.capacity = pyo.Constraint(
        list(used),
        rule=lambda m, pool: (
            sum(capacity[key[0]] * seconds[key] * m.y[key] for key in used[pool]) <= resources.pools[pool].gpus
        ),
    )
    if objective is AllocationObjective.THROUGHPUT:
        model.objective = pyo.Objective(expr=model.level, sense=pyo.maximize)
    else:
        paid_for = {d.module: d.rate if objective is AllocationObjective.OCCUPANCY else d.capacity for d in demands}
        model.objective = pyo.Objective(
            expr=sum(paid_for[key[0]] * s * resources.gpu_price[key[2]] * model.y[key] for key, s in seconds.items())
        )
    answer = solve_lp(model, deadline)
    if answer is not None:
        return answer[0]
    if objective is not AllocationObjective.THROUGHPUT:
        return 0.0
    alone = dict.fromkeys(blocks, 0.0)
    for (module, i, pool), spent in seconds.items():
        alone[module, i] += resources.pools[pool].gpus / (spent * capacity[module])
    return min(alone.values(), default=0.0)


def _gpu_seconds(cls: ModuleClass, max_batch_size: int) -> Sequence[float]:
    """For each block, the least time of a sample on a whole GPU, in seconds."""
    profile = cls.profile
    batches = np.array(profile.batch_sizes)
    usable = batches <= max_batch_size
    least = np.full(profile.blocks, inf)
    for divisor in cls.divisors:
        vgpu = profile.divisor(divisor)
        assert vgpu is not None, f"divisor {divisor} was taken from the profile"
        times = np.array(vgpu.median_micros)[:, usable] / (batches[usable] * divisor * SECOND)
        least = np.minimum(least, times.min(axis=1, initial=inf))
    return [float(x) for x in least]
