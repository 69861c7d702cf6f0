"""Solves Pyomo models with HiGHS: one thread, a time limit, and a bound with every answer.

HiGHS keeps its own tolerances (1e-6): with tighter ones, 1.15 was seen to call a plan optimal that was 1.7 % below one
it finds with its own. What must hold exactly is checked on the rounded integers by whoever solves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import highspy
import pyomo.environ as pyo

from partita_planner.solver.deadline import Deadline
from partita_planner.solver.highs_model import HighsModel
from partita_planner.solver.tolerances import COST_GAP, FEASIBILITY

_OUT_OF_TIME: Final = (
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kIterationLimit,
    highspy.HighsModelStatus.kSolutionLimit,
    highspy.HighsModelStatus.kObjectiveBound,
    highspy.HighsModelStatus.kObjectiveTarget,
)
"""The search ended at a limit: there may be a solution that is not optimal."""


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


def solve(model: Any, deadline: Deadline, *, relative_gap: float = COST_GAP, warm_start: bool = False) -> MilpAnswer:
    """Solve a mixed-integer linear `model`; HiGHS overruns a deadline by some tenths of a second.

    Stops at `relative_gap` between solution and bound. With `warm_start`, the values in the variables are where
    the search begins. When the deadline has passed nothing is solved.
    """
    if deadline.passed:
        return MilpAnswer(value=None, bound=None)
    highs = HighsModel(model, {"time_limit": deadline.left, "mip_rel_gap": relative_gap})
    if warm_start:
        highs.start_from_values()
    highs.run()
    optimal = highs.status == highspy.HighsModelStatus.kOptimal
    value = None
    if optimal or (highs.status in _OUT_OF_TIME and highs.has_values):
        value = highs.objective
        highs.load_values()
    bound = highs.dual_bound
    if bound is None and value is not None:
        bound = value
    if value is not None and not optimal and not _feasible(model):
        value = None
    return MilpAnswer(value=value, bound=bound, infeasible=highs.status == highspy.HighsModelStatus.kInfeasible)


def solve_lp(model: Any, deadline: Deadline) -> tuple[float, Mapping[Any, float]] | None:
    """Optimum and the dual of every constraint of a linear `model`; None if it has no optimum or time ran out."""
    if deadline.passed:
        return None
    highs = HighsModel(model, {"time_limit": deadline.left})
    highs.run()
    if highs.status != highspy.HighsModelStatus.kOptimal:
        return None
    highs.load_values()
    return highs.objective, highs.duals()


def integer(variable: Any) -> int:
    """The whole number that an integer variable stands for."""
    return round(float(pyo.value(variable)))


def _feasible(model: Any) -> bool:
    """Whether the values in the variables keep the constraints; out of time, HiGHS may leave others there."""
    return all(
        row.lslack() >= -FEASIBILITY and row.uslack() >= -FEASIBILITY
        for row in model.component_data_objects(pyo.Constraint, active=True)
    )
