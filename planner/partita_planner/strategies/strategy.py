"""What a planning strategy is."""

from collections.abc import Callable
from dataclasses import dataclass

from partita_api.inferencesession import ObjectiveType
from partita_planner.allocation.template_search import NothingFound
from partita_planner.configurations.schedule import WorkloadSchedule
from partita_planner.configurations.workload import Workload
from partita_planner.deadline import Deadline
from partita_planner.problem import NoPlan
from partita_planner.task.task import SolveTask, Task

WorkloadSolver = Callable[[Workload, Deadline], WorkloadSchedule | None]
"""Out of time, the best answer so far, or None."""


@dataclass(frozen=True)
class Strategy:
    """A way to plan: which templates it may use, and how it chooses among them.

    A strategy may build templates with collection times of its own (`TemplateLimits.collection`); its deployments are
    checked like all others before they become a plan.
    """

    name: str
    """As in spec.planner.strategy."""
    restrict: Callable[[Task], Task]
    """The task with only what the strategy may use; what is missing is explained in these terms, too."""
    solve: SolveTask
    """Solves a restricted task."""
    holds_baseline: bool = False
    """Whether whole models on whole GPUs are among its plans, so that they can stand in when time runs out."""
    objectives: frozenset[ObjectiveType] = frozenset(ObjectiveType)
    """What it can plan for."""
    answer: WorkloadSolver | None = None
    """How it answers in the cost papers' own setting; None where it has no answer there."""


@dataclass(frozen=True)
class StrategyRefusal(NothingFound):
    """A strategy that looks at one kind of plan only has none, which says nothing about other strategies."""

    why: NoPlan
    """For people: what this strategy could not do."""
