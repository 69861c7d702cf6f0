"""The interface of a planning strategy."""

from collections.abc import Callable
from dataclasses import dataclass

from partita_api.inferencesession import ObjectiveType
from partita_planner.allocation.template_search import NothingFound
from partita_planner.configurations.schedule import WorkloadSchedule
from partita_planner.configurations.workload import Workload
from partita_planner.problem import NoPlan
from partita_planner.solver.deadline import Deadline
from partita_planner.task.task import SolveTask, Task

WorkloadSolver = Callable[[Workload, Deadline], WorkloadSchedule | None]
"""Schedules a workload by the deadline: the best schedule so far when time runs out, or None."""


@dataclass(frozen=True)
class Strategy:
    """A way to plan: which templates it may use, and how it chooses among them.

    A strategy may build templates with its own collection times (`TemplateLimits.collection`). Its deployments are
    validated like all others before they become a plan.
    """

    name: str
    """As in spec.planner.strategy."""
    restrict: Callable[[Task], Task]
    """Restricts a task to the templates of the strategy. The diagnosis of a missing plan uses the restricted task."""
    solve: SolveTask
    """Solves a restricted task."""
    holds_baseline: bool = False
    """Whether whole models on whole GPUs are among its plans, so that they can stand in when time runs out."""
    survives_losses: bool = False
    """Whether its plans survive the losses of spec.availability."""
    objectives: frozenset[ObjectiveType] = frozenset(ObjectiveType)
    """What it can plan for."""
    solve_workload: WorkloadSolver | None = None
    """How it solves a workload in the setting of the cost papers; None if it is not defined there."""


@dataclass(frozen=True)
class StrategyRefusal(NothingFound):
    """A strategy has no plan of its own kind; other strategies may have one."""

    why: NoPlan
    """Why this strategy has no plan, for users."""
