"""The master problem over columns: one for each module, within the pools and the SLO of every path.

    x[m, c]      whether column c serves module m; in the linear relaxation, the share of m that it serves
    divided[r]   GPUs divided into vGPUs of size r, integer
    finish[m]    latest finish time of m, as a share of the SLO (a potential, as in `latency_split`)

    sum of x over a module's columns = 1
    vGPUs of r in use <= divisor * divided[r];    sum of divided over a pool's sizes <= its GPUs + missing GPUs
    finish[m] >= latency of m,    finish[m] >= finish[upstream of m] + latency of m,    finish <= 1

The relaxation has a penalty for missing GPUs, so it has a solution with any columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyomo.environ as pyo

from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import NothingFound
from partita_planner.least_cost.cover_columns import CoverColumn, VGpuSize
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import integer, solve, solve_lp

Columns = Mapping[str, Sequence[CoverColumn]]
"""By module."""


@dataclass(frozen=True)
class Duals:
    """Prices of the relaxation's rows. Any prices of at least 0 give a bound."""

    gpu: Mapping[str, float]
    """Price of one more GPU, by pool."""
    latency: Mapping[str, float]
    """Price of the whole SLO as the latency of a module or function, by name."""
    potential: float
    """The part of the bound from the finish times and the pools' GPUs."""

    def scarcity(self, sizes: Sequence[VGpuSize]) -> Any:
        """The worth of one vGPU of each size beyond its price."""
        return np.array([self.gpu[pool] / divisor for pool, divisor in sizes])


@dataclass(frozen=True)
class Chosen:
    """The chosen columns, and the proven bound."""

    columns: Mapping[str, CoverColumn]
    cost: float
    bound: float
    """Proven: no choice of the given columns costs less."""


@dataclass(frozen=True)
class Master:
    """The part of the master problem that does not depend on the columns."""

    resources: AvailableResources
    graph: LatencyGraph
    sizes: tuple[VGpuSize, ...]
    penalty: float
    """Penalty of one missing GPU in the relaxation."""

    def relaxed(self, columns: Columns, deadline: Deadline) -> tuple[float, Duals] | None:
        """Cost and duals of the linear relaxation; None if time ran out."""
        model = self._model(columns, relaxed=True)
        answer = solve_lp(model, deadline)
        if answer is None:
            return None
        value, row_duals = answer
        gpu = {pool: min(self.penalty, abs(row_duals[row])) for pool, row in model.capacity.items()}
        first = {name: abs(row_duals[row]) for name, row in model.first.items()}
        later = {edge: abs(row_duals[row]) for edge, row in model.later.items()}
        return value, self._duals(gpu, first, later)

    def solve(self, columns: Columns, deadline: Deadline) -> Chosen | NothingFound:
        """The cheapest choice of columns."""
        model = self._model(columns, relaxed=False)
        model.too_slow = pyo.ConstraintList()
        while True:
            answer = solve(model, deadline, relative_gap=0.0)
            if answer.value is None:
                return NothingFound(answer.infeasible)
            picked = {name: columns[name][c] for name, c in model.x if integer(model.x[name, c])}
            latency = {name: column.latency_micros for name, column in picked.items()}
            if self.graph.keeps_slo(latency):
                break
            # HiGHS's tolerance is a few millionths of the SLO: exclude this choice, and all slower ones, by a cut.
            slow = [model.x[n, c] for n, c in model.x if columns[n][c].latency_micros >= latency[n]]
            model.too_slow.add(sum(slow) <= len(latency) - 1)
        cost = sum(column.cost for column in picked.values())
        return Chosen(picked, cost, cost if answer.bound is None else min(cost, answer.bound))

    def _duals(
        self, gpu: Mapping[str, float], first: Mapping[str, float], later: Mapping[tuple[str, str], float]
    ) -> Duals:
        graph = self.graph
        latency = {name: first[name] + sum(p for (_, b), p in later.items() if b == name) for name in graph.order}
        released = {name: sum(p for (a, _), p in later.items() if a == name) - latency[name] for name in graph.order}
        fixed = sum(latency[name] * micros / graph.slo_micros for name, micros in graph.fixed.items())
        pools = sum(price * self.resources.pools[pool].gpus for pool, price in gpu.items())
        return Duals(gpu, latency, fixed + sum(min(0.0, r) for r in released.values()) - pools)

    def _model(self, columns: Columns, *, relaxed: bool) -> Any:
        model = pyo.ConcreteModel()
        keys = [(name, c) for name, own in columns.items() for c in range(len(own))]
        model.x = pyo.Var(keys, domain=pyo.NonNegativeReals if relaxed else pyo.Binary)
        model.divided = pyo.Var(
            range(len(self.sizes)), domain=pyo.NonNegativeReals if relaxed else pyo.NonNegativeIntegers
        )
        model.finish = pyo.Var(list(self.graph.order), bounds=(0, 1))
        pools = sorted({pool for pool, _ in self.sizes})
        model.missing = pyo.Var(pools, domain=pyo.NonNegativeReals)
        if not relaxed:
            model.missing.fix(0)
        slo = self.graph.slo_micros

        def latency(name: str) -> Any:
            if name in self.graph.fixed:
                return self.graph.fixed[name] / slo
            return sum(column.latency_micros / slo * model.x[name, c] for c, column in enumerate(columns[name]))

        def divide(m: Any, r: int) -> Any:
            taken = [(columns[n][c].vgpus[r], m.x[n, c]) for n, c in keys if columns[n][c].vgpus[r]]
            return sum(count * x for count, x in taken) <= self.sizes[r][1] * m.divided[r]

        def capacity(m: Any, pool: str) -> Any:
            used = sum(m.divided[r] for r, (name, _) in enumerate(self.sizes) if name == pool)
            return used <= self.resources.pools[pool].gpus + m.missing[pool]

        model.one = pyo.Constraint(
            list(columns), rule=lambda m, name: sum(m.x[name, c] for c in range(len(columns[name]))) == 1
        )
        model.divide = pyo.Constraint(range(len(self.sizes)), rule=divide)
        model.capacity = pyo.Constraint(pools, rule=capacity)
        model.first = pyo.Constraint(list(self.graph.order), rule=lambda m, name: m.finish[name] >= latency(name))
        model.later = pyo.Constraint(
            list(self.graph.edges), rule=lambda m, a, b: m.finish[b] >= m.finish[a] + latency(b)
        )
        paid = sum(columns[n][c].cost * model.x[n, c] for n, c in keys)
        model.objective = pyo.Objective(expr=paid + self.penalty * sum(model.missing[pool] for pool in pools))
        return model
