"""Most throughput exactly, by dynamic programming over vectors of whole GPUs.

For modules whose latencies are not coupled and stages that own whole GPUs. The state is g, the GPUs of every pool.

1. served_m(g), the most that module m can serve with g: template after template, each used at most once with some
   counts (twice is never better, since min(n * r) over the stages is superadditive in n).
2. For one level z and GPUs (g_1 .. g_{K-1}) of the other pools, the least GPUs of the last pool with which m serves its
   demand at z. The sum of these tables over the modules (a min-plus convolution) shows whether z can be reached.
3. A bisection over the levels at which any served_m changes, between a known solution and a known bound.

pi and mu are the duals of the relaxation. A solution better than `known` gives no module GPUs worth more than
mu * demand + (bound - known), and uses no template with an excess above bound - known (`pruning`). This leaves few
vectors and templates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment, in_dispatch_order
from partita_planner.allocation.relaxation import Relaxation, deployed
from partita_planner.allocation.resources import AvailableResources
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template

MAX_WORK: Final = 5e9
"""The most elementary steps (about a nanosecond each) for which the program is tried."""
NO_POOL: Final = ""
"""A second pool without GPUs if there is only one: tables have an axis for each pool but the last."""

Vector = tuple[int, ...]
Table = NDArray[np.float64]


@dataclass(frozen=True)
class TemplateUse:
    """One way to run a template: GPUs of every pool, and the samples per second that they serve."""

    gpus: Vector
    serves: float


@dataclass(frozen=True)
class ModuleProgram:
    """One module: its demand at level 1, the most that it has to serve, and the most GPUs of `pools` to use."""

    demand: ModuleDemand
    most: float
    pools: tuple[str, ...]
    box: Vector

    @property
    def work(self) -> float:
        """An upper bound on the elementary steps of `served`."""
        limits = dict(zip(self.pools, self.box, strict=True))
        stages = [stage for template in self.demand.templates for stage in template.stages]
        steps = sum(min(limits[s.pool], ceil(self.most / s.gpu_throughput)) for s in stages)
        return steps * prod(n + 1 for n in self.box)

    @cached_property
    def steps(self) -> tuple[tuple[TemplateUse, ...], ...]:
        """For every template, all ways to run it; of several with the same GPUs, the one that serves most."""
        return tuple(
            tuple({step.gpus: step for step in _steps(t, self.pools, self.most, self.box)}.values())
            for t in self.demand.templates
        )

    def served(self, box: Vector, deadline: Deadline, keep_all: bool = False) -> list[Table]:
        """What all templates (or the first 0, 1, 2, ... if `keep_all`) serve with each vector up to `box`.

        Raises OutOfTimeError.
        """
        tables = [np.zeros([n + 1 for n in box])]
        for steps in self.steps:
            before, after = tables[-1], tables[-1].copy()
            for step in steps:
                if deadline.passed:
                    raise OutOfTimeError
                if all(n <= most for n, most in zip(step.gpus, box, strict=True)):
                    beyond, up_to = _shifted(step.gpus, box)
                    np.maximum(after[beyond], before[up_to] + step.serves, out=after[beyond])
            tables = [*tables, after] if keep_all else [after]
        return tables

    def deployments(
        self, gpus: Vector, resources: AvailableResources, deadline: Deadline
    ) -> tuple[TemplateDeployment, ...]:
        """The deployments that serve most with these GPUs. Raises OutOfTimeError."""
        tables = self.served(gpus, deadline, keep_all=True)
        left, chosen = gpus, []
        for t in reversed(range(len(self.steps))):
            if tables[t + 1][left] <= tables[t][left]:
                continue
            step = next(s for s in self.steps[t] if _leads(s, tables[t], tables[t + 1][left], left))
            left = tuple(n - k for n, k in zip(left, step.gpus, strict=True))
            chosen.append(deployed(self.demand.templates[t], step.serves, resources))
        return in_dispatch_order(chosen, resources)


@dataclass(frozen=True)
class Program:
    """All modules and the available GPUs."""

    modules: tuple[ModuleProgram, ...]
    gpus: Vector

    @classmethod
    def of(
        cls,
        demands: Sequence[ModuleDemand],
        resources: AvailableResources,
        relaxation: Relaxation,
        known: float,
    ) -> "Program":
        """The program for levels above `known`; `demands` hold the templates that these solutions may use."""
        counts = {name: pool.gpus for name, pool in resources.pools.items()}
        if len(counts) == 1:
            counts[NO_POOL] = 0
        pools = tuple(sorted(counts, key=lambda name: (counts[name], name)))
        gpus = tuple(counts[name] for name in pools)
        bound, prices = relaxation.bound, [relaxation.gpu.get(name, 0.0) for name in pools]

        def box(demand: ModuleDemand) -> Vector:
            worth = relaxation.sample[demand.module] * demand.capacity * bound + bound - known
            spent = max(0.0, worth) * (1 + ROUNDING)
            return tuple(int(spent / price) if price * n > spent else n for n, price in zip(gpus, prices, strict=True))

        return cls(tuple(ModuleProgram(d, d.capacity * bound, pools, box(d)) for d in demands), gpus)

    @property
    def work(self) -> float:
        """An upper bound on the elementary steps for all modules and for one level's sum."""
        sums = prod(n + 1 for n in self.gpus[:-1]) * sum(prod(n + 1 for n in m.box[:-1]) for m in self.modules[1:])
        return sum(m.work for m in self.modules) + sums

    def solve(
        self, known: float, bound: float, resources: AvailableResources, deadline: Deadline
    ) -> tuple[ModuleDeployments | None, float]:
        """The best deployments with a level above `known` (None if none are found), and a proven bound on the level."""
        try:
            served = [module.served(module.box, deadline)[-1] / module.demand.capacity for module in self.modules]
        except OutOfTimeError:
            return None, bound
        found = np.unique(np.concatenate([t[(t > known) & (t <= bound * (1 + ROUNDING))] for t in served]))
        levels = found.tolist()
        best: list[Vector] | None = None
        low, high = 0, len(levels)
        while low < high and not deadline.passed:
            middle = (low + high) // 2
            shares = self._shares(served, levels[middle])
            if shares is None:
                high = middle
            else:
                best, low = shares, middle + 1
        proven = levels[high - 1] if high else known
        if best is None:
            return None, proven
        chosen = zip(self.modules, best, strict=True)
        try:
            by_module = {m.demand.module: m.deployments(gpus, resources, deadline) for m, gpus in chosen}
        except OutOfTimeError:
            return None, proven
        return ModuleDeployments(by_module), proven

    def _shares(self, served: Sequence[Table], level: float) -> list[Vector] | None:
        """GPUs for each module with which all reach `level`; None if there are too few."""
        needs = [_needed(table, level) for table in served]
        sums = [np.zeros([n + 1 for n in self.gpus[:-1]])]
        for need in needs:
            total = np.full_like(sums[-1], np.inf)
            for others in _corners(need):
                beyond, up_to = _shifted(others, self.gpus[:-1])
                np.minimum(total[beyond], sums[-1][up_to] + need[others], out=total[beyond])
            sums.append(total)
        if sums[-1][self.gpus[:-1]] > self.gpus[-1]:
            return None
        left, shares = self.gpus[:-1], []
        for need, before, total in reversed(list(zip(needs, sums, sums[1:], strict=False))):
            others = next(
                c for c in _corners(need) if _fits(c, left) and before[_less(left, c)] + need[c] == total[left]
            )
            shares.append((*others, int(need[others])))
            left = _less(left, others)
        return shares[::-1]


def _steps(template: Template, pools: Sequence[str], most: float, box: Vector) -> Iterator[TemplateUse]:
    """The template at every throughput at which some stage is full, up to `most`."""
    rates = [stage.gpu_throughput for stage in template.stages]
    limits = dict(zip(pools, box, strict=True))
    full = {min(n * r, most) for s, r in zip(template.stages, rates, strict=True) for n in range(1, limits[s.pool] + 1)}
    for x in sorted(full):
        gpus = dict.fromkeys(pools, 0)
        for stage, rate in zip(template.stages, rates, strict=True):
            gpus[stage.pool] += ceil(x / rate * (1 - ROUNDING))
        if any(gpus[name] > limits[name] for name in pools):
            return
        yield TemplateUse(tuple(gpus.values()), x)


def _needed(served: Table, level: float) -> Table:
    """For each vector of the other pools, the least GPUs of the last pool that reach `level`, else infinity."""
    reached = served >= level
    return np.where(reached.any(axis=-1), reached.argmax(axis=-1), np.inf)


def _corners(need: Table) -> list[Vector]:
    """The vectors for which one GPU less of any other pool needs more GPUs of the last pool."""
    corner = np.isfinite(need)
    for axis in range(need.ndim):
        shape = [1 if i == axis else n for i, n in enumerate(need.shape)]
        below = np.concatenate([np.full(shape, np.inf), need[tuple(_until_last(axis, need.ndim))]], axis=axis)
        corner &= need < below
    return [tuple(int(n) for n in c) for c in np.argwhere(corner)]


def _until_last(axis: int, dimensions: int) -> list[slice]:
    return [slice(None, -1) if i == axis else slice(None) for i in range(dimensions)]


def _shifted(by: Vector, box: Vector) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Slices for the vectors from `by` upwards, and for the same vectors less `by`."""
    beyond = tuple(slice(n, None) for n in by)
    return beyond, tuple(slice(0, most + 1 - n) for n, most in zip(by, box, strict=True))


def _leads(step: TemplateUse, before: Table, reached: float, gpus: Vector) -> bool:
    return _fits(step.gpus, gpus) and before[_less(gpus, step.gpus)] + step.serves == reached


def _fits(part: Vector, whole: Vector) -> bool:
    return all(n <= most for n, most in zip(part, whole, strict=True))


def _less(whole: Vector, part: Vector) -> Vector:
    return tuple(n - k for n, k in zip(whole, part, strict=True))
