"""Solves Pyomo models with HiGHS: one thread, a time limit, exact tolerances, and a proven bound with every answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyomo.environ as pyo
from pyomo.contrib.appsi.base import TerminationCondition
from pyomo.contrib.appsi.solvers.highs import Highs

FEASIBILITY_TOLERANCE: Final = 1e-9
"""Models are scaled to values around 1; this makes integer microseconds of an SLO of minutes exact."""
NO_TIME_LEFT: Final = 0.01


@dataclass(frozen=True)
class MilpAnswer:
    """What HiGHS found; the values are in the model's variables if `value` is not None."""

    value: float | None
    """Objective of the best solution found; None if none was."""
    bound: float | None
    """Proven bound on the objective; None if there is none yet."""
    infeasible: bool = False
    """Whether it is proven that there is no solution."""

    @property
    def found(self) -> bool:
        """Whether there is a solution."""
        return self.value is not None


def solve(model: Any, seconds: float, *, relative_gap: float = 1e-6, warm_start: bool = False) -> MilpAnswer:
    """Solve a mixed-integer linear `model`, for at most about `seconds`.

    Stops at `relative_gap` between solution and bound. With `warm_start`, the values in the variables are where
    the search begins.
    """
    highs = _highs(seconds)
    highs.config.mip_gap = relative_gap
    highs.config.warmstart = warm_start
    result = highs.solve(model)
    if result.best_feasible_objective is not None:
        result.solution_loader.load_vars()
    return MilpAnswer(
        value=result.best_feasible_objective,
        bound=result.best_objective_bound,
        infeasible=result.termination_condition is TerminationCondition.infeasible,
    )


def solve_lp(model: Any, seconds: float) -> tuple[float, Mapping[Any, float]] | None:
    """Optimum and the dual of every constraint of a linear `model`; None if it has no optimum or time ran out."""
    highs = _highs(seconds)
    result = highs.solve(model)
    if result.termination_condition is not TerminationCondition.optimal:
        return None
    result.solution_loader.load_vars()
    return result.best_feasible_objective, highs.get_duals()


def integer(variable: Any) -> int:
    """The whole number that an integer variable stands for."""
    return round(float(pyo.value(variable)))


def _highs(seconds: float) -> Any:
    highs = Highs()
    highs.config.load_solution = False
    highs.config.time_limit = max(seconds, NO_TIME_LEFT)
    highs.highs_options = {
        "threads": 1,
        "random_seed": 0,
        "primal_feasibility_tolerance": FEASIBILITY_TOLERANCE,
        "mip_feasibility_tolerance": FEASIBILITY_TOLERANCE,
    }
    return highs
