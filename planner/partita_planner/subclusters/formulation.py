"""The MILP of Symphony's appendix A.1, and a lower bound.

x_ij is 1 if model i is in sub-cluster j. In equation 10, y_ij = |x_ij - x'_ij| is x_ij if x'_ij = 0 and 1 - x_ij if it
is 1, so it needs no variables. Rates and memory are shares of the averages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyomo.environ as pyo

from partita_planner.solver.deadline import Deadline
from partita_planner.solver.milp import solve, solve_lp
from partita_planner.subclusters.descent import Arrays
from partita_planner.subclusters.problem import SubclusterProblem

MAX_BINARIES: Final = 4000
"""With more binaries, HiGHS finds no partition near that of the local search in the available time."""


@dataclass(frozen=True)
class Solved:
    """What HiGHS found and proved."""

    where: list[int] | None
    """Each model's sub-cluster; None if no solution was found."""
    bound: float
    infeasible: bool


def solve_exactly(problem: SubclusterProblem, begin: Sequence[int] | None, deadline: Deadline) -> Solved:
    """The best partition that HiGHS finds, searching from `begin` if there is one."""
    arrays = Arrays.of(problem)
    model = _model(arrays, problem.memory_weight, pyo.Binary, with_dynamic=True)
    if begin is not None:
        _set_values(model, arrays, begin)
    answer = solve(model, deadline, warm_start=begin is not None)
    where = None
    if answer.found:
        chosen = np.array([[pyo.value(model.x[i, j]) for j in model.subclusters] for i in model.models])
        where = [int(j) for j in chosen.argmax(axis=1)]
    return Solved(where, max(0.0, answer.bound or 0.0), answer.infeasible)


def lower_bound(problem: SubclusterProblem, deadline: Deadline) -> float:
    """Proven: no partition has a lower objective.

    The sub-cluster of the largest model has at least its rate and memory. If the cost of changes is bounded, the linear
    relaxation gives a better bound; otherwise it spreads every model evenly, and its bound is 0.
    """
    arrays = Arrays.of(problem)
    largest = max(0.0, float(arrays.rate.max()) - 1) + problem.memory_weight * max(0.0, float(arrays.static.max()) - 1)
    if not _bounds_change(arrays):
        return largest
    relaxed = solve_lp(_model(arrays, problem.memory_weight, pyo.UnitInterval, with_dynamic=False), deadline)
    return largest if relaxed is None else max(largest, relaxed[0])


def _model(arrays: Arrays, memory_weight: float, domain: Any, *, with_dynamic: bool) -> Any:
    """Equations 3 to 10; `with_dynamic` says whether dynamic memory counts in equation 5, one row for each x."""
    m = pyo.ConcreteModel()
    m.models = range(len(arrays.rate))
    m.subclusters = range(arrays.subclusters)
    m.x = pyo.Var(m.models, m.subclusters, domain=domain)
    m.delta_rate = pyo.Var(domain=pyo.NonNegativeReals)
    m.delta_static = pyo.Var(domain=pyo.NonNegativeReals)
    m.objective = pyo.Objective(expr=m.delta_rate + memory_weight * m.delta_static)
    m.one = pyo.Constraint(m.models, rule=lambda m, i: pyo.quicksum(m.x[i, j] for j in m.subclusters) == 1)

    def load(m: Any, sizes: Any, j: int) -> Any:
        return pyo.quicksum(float(sizes[i]) * m.x[i, j] for i in m.models)

    for name, sizes, delta in (("rate", arrays.rate, m.delta_rate), ("static", arrays.static, m.delta_static)):
        average = 1.0 if sizes.any() else 0.0
        above = pyo.Constraint(m.subclusters, rule=lambda m, j, s=sizes, d=delta, a=average: load(m, s, j) - d <= a)
        below = pyo.Constraint(m.subclusters, rule=lambda m, j, s=sizes, d=delta, a=average: load(m, s, j) + d >= a)
        m.add_component(f"{name}_above", above)
        m.add_component(f"{name}_below", below)
    if np.isfinite(arrays.max_rate):
        m.within_rate = pyo.Constraint(m.subclusters, rule=lambda m, j: load(m, arrays.rate, j) <= arrays.max_rate)
    if np.isfinite(arrays.max_memory):
        m.dynamic = pyo.Var(m.subclusters, domain=pyo.NonNegativeReals)
        m.within_memory = pyo.Constraint(
            m.subclusters, rule=lambda m, j: load(m, arrays.static, j) + m.dynamic[j] <= arrays.max_memory
        )
        if with_dynamic:
            m.largest_dynamic = pyo.Constraint(
                m.models,
                m.subclusters,
                rule=lambda m, i, j: float(arrays.dynamic[i]) * m.x[i, j] <= m.dynamic[j],
            )
    if _bounds_change(arrays):
        m.within_change = pyo.Constraint(expr=_change_cost(m, arrays) <= arrays.max_change_cost)
    return m


def _bounds_change(arrays: Arrays) -> bool:
    """Whether equation 10 is a constraint: models that are not loaded cost the same everywhere."""
    return bool(np.isfinite(arrays.max_change_cost) and (arrays.home >= 0).any())


def _change_cost(m: Any, arrays: Arrays) -> Any:
    loaded, new = np.flatnonzero(arrays.home >= 0), np.flatnonzero(arrays.home < 0)
    unavoidable = float(arrays.load_cost[new].sum())
    return unavoidable + pyo.quicksum(
        2 * float(arrays.load_cost[i]) * (1 - m.x[int(i), int(arrays.home[i])]) for i in loaded
    )


def _set_values(m: Any, arrays: Arrays, where: Sequence[int]) -> None:
    """The values of a partition in all variables, for a warm start."""
    rate, static, dynamic = (np.zeros(arrays.subclusters) for _ in range(3))
    for i, chosen in enumerate(where):
        rate[chosen] += arrays.rate[i]
        static[chosen] += arrays.static[i]
        dynamic[chosen] = max(dynamic[chosen], arrays.dynamic[i])
        for j in m.subclusters:
            m.x[i, j].set_value(int(j == chosen))
    m.delta_rate.set_value(float(np.abs(rate - 1).max()) if arrays.rate.any() else 0.0)
    m.delta_static.set_value(float(np.abs(static - 1).max()) if arrays.static.any() else 0.0)
    if np.isfinite(arrays.max_memory):
        for j in m.subclusters:
            m.dynamic[j].set_value(float(dynamic[j]))
