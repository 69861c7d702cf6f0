"""A Pyomo model as columns and rows of HiGHS.

Pyomo's own interfaces to HiGHS redirect the file descriptors of the whole process while they solve, and share an
expression visitor: they deadlock or mix models up when two threads solve. This one shares nothing between models.
"""

from collections.abc import Mapping
from threading import Thread
from typing import Any, Final

import highspy
import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.visitor import ExpressionValueVisitor, nonpyomo_leaf_types
from pyomo.repn import generate_standard_repn

_OPTIONS: Final[Mapping[str, Any]] = {"output_flag": False, "threads": 1, "random_seed": 0}


class HighsModel:
    """A mixed-integer linear Pyomo model with one objective, handed to a HiGHS instance of its own."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        """Reads `model`; `options` are HiGHS' own and are set beside one thread, a fixed seed and no output."""
        self._highs = highspy.Highs()
        for key, value in {**_OPTIONS, **options}.items():
            self._highs.setOptionValue(key, value)
        self._rows = list(model.component_data_objects(pyo.Constraint, descend_into=True, active=True))
        objective = next(model.component_data_objects(pyo.Objective, descend_into=True, active=True))
        found = _Variables()
        for expression in (*(row.body for row in self._rows), objective.expr):
            found.dfs_postorder_stack(expression)
        self._columns: list[Any] = list(found.variables.values())
        self._index = {key: index for index, key in enumerate(found.variables)}
        self._add_columns()
        self._add_rows()
        self._set_objective(objective)

    def start_from_values(self) -> None:
        """Let the search begin at the values in the model's variables, if any has one."""
        if all(variable.value is None for variable in self._columns):
            return
        start = highspy.HighsSolution()
        start.col_value = np.array([variable.value or 0.0 for variable in self._columns], dtype=np.double)
        start.value_valid = True
        start.dual_valid = False
        self._highs.setSolution(start)

    def run(self) -> None:
        """Solve. Ctrl-C ends the search and is raised."""
        # HiGHS keeps its scheduler per thread: with a thread for each run, no run inherits another's. highspy's own way
        # to do this holds a lock of the class, so that only one model can be solved at a time.
        self._highs.HandleUserInterrupt = True
        running = Thread(target=self._run, name="highs", daemon=True)
        running.start()
        try:
            running.join()
        except KeyboardInterrupt:
            self._highs.cancelSolve()
            running.join()
            raise

    @property
    def status(self) -> Any:
        """How the run ended."""
        return self._highs.getModelStatus()

    @property
    def has_values(self) -> bool:
        """Whether HiGHS has values for the variables, be they feasible or not."""
        return bool(self._highs.getSolution().value_valid)

    @property
    def objective(self) -> float:
        """The objective at HiGHS' values."""
        return float(self._highs.getInfo().objective_function_value)

    @property
    def dual_bound(self) -> float | None:
        """The proven bound on the objective of a mixed-integer model; None if no search for integers took place."""
        info = self._highs.getInfo()
        return None if info.mip_node_count == -1 else float(info.mip_dual_bound)

    def load_values(self) -> None:
        """Write HiGHS' values into the model's variables."""
        for variable, value in zip(self._columns, self._highs.getSolution().col_value, strict=True):
            variable.set_value(value, skip_validation=True)

    def duals(self) -> dict[Any, float]:
        """The dual of every constraint of a linear model that was solved to its optimum."""
        return dict(zip(self._rows, self._highs.getSolution().row_dual, strict=True))

    def _run(self) -> None:
        self._highs.run()
        highspy.Highs.resetGlobalScheduler(False)

    def _add_columns(self) -> None:
        bounds = [_bounds(variable) for variable in self._columns]
        self._highs.addVars(
            len(bounds),
            np.array([lower for lower, _ in bounds], dtype=np.double),
            np.array([upper for _, upper in bounds], dtype=np.double),
        )
        self._highs.changeColsIntegrality(
            len(bounds),
            np.arange(len(bounds)),
            np.array(
                [
                    highspy.HighsVarType.kContinuous if v.is_continuous() else highspy.HighsVarType.kInteger
                    for v in self._columns
                ]
            ),
        )

    def _add_rows(self) -> None:
        lowers, uppers = [], []
        starts: list[int] = []
        columns: list[int] = []
        coefficients: list[float] = []
        for row in self._rows:
            linear = generate_standard_repn(row.body, quadratic=False)
            starts.append(len(columns))
            columns += (self._index[id(variable)] for variable in linear.linear_vars)
            coefficients += linear.linear_coefs
            lowers.append(row.lb - linear.constant if row.has_lb() else -highspy.kHighsInf)
            uppers.append(row.ub - linear.constant if row.has_ub() else highspy.kHighsInf)
        self._highs.addRows(
            len(self._rows),
            np.array(lowers, dtype=np.double),
            np.array(uppers, dtype=np.double),
            len(columns),
            np.array(starts),
            np.array(columns),
            np.array(coefficients, dtype=np.double),
        )

    def _set_objective(self, objective: Any) -> None:
        linear = generate_standard_repn(objective.expr, quadratic=False)
        costs = np.zeros(len(self._columns), dtype=np.double)
        for variable, coefficient in zip(linear.linear_vars, linear.linear_coefs, strict=True):
            costs[self._index[id(variable)]] = coefficient
        maximize = objective.sense == pyo.maximize
        self._highs.changeObjectiveOffset(float(linear.constant))
        self._highs.changeObjectiveSense(highspy.ObjSense.kMaximize if maximize else highspy.ObjSense.kMinimize)
        self._highs.changeColsCost(len(costs), np.arange(len(costs)), costs)


class _Variables(ExpressionValueVisitor):
    """Collects the variables of expressions by `id`, in the order in which they occur."""

    def __init__(self) -> None:
        self.variables: dict[int, Any] = {}

    def visit(self, node: Any, values: Any) -> None:
        """Nothing is computed from the variables below a node."""

    def visiting_potential_leaf(self, node: Any) -> tuple[bool, None]:
        """Keep `node` if it is a variable; say whether anything is below it."""
        if type(node) in nonpyomo_leaf_types:
            return True, None
        if node.is_variable_type():
            self.variables[id(node)] = node
            return True, None
        return not node.is_expression_type(), None


def _bounds(variable: Any) -> tuple[float, float]:
    """The range of a variable; a fixed one has only its value."""
    if variable.fixed:
        return variable.value, variable.value
    lower, upper = variable.bounds
    return (
        -highspy.kHighsInf if lower is None else lower,
        highspy.kHighsInf if upper is None else upper,
    )
