"""What a planning strategy is."""

from collections.abc import Callable
from dataclasses import dataclass

from partita_planner.deadline import Deadline
from partita_planner.search import NothingFound
from partita_planner.task import Solution, Task


@dataclass(frozen=True)
class Strategy:
    """A way to plan: which templates it may use, and how it chooses among them.

    A strategy may build templates with collection times of its own (`TemplateLimits.collection`); its deployments are
    checked like all others before they become a plan.
    """

    name: str
    """As in spec.planner.strategy."""
    narrow: Callable[[Task], Task]
    """The task with only what the strategy may use; what is missing is explained in these terms, too."""
    solve: Callable[[Task, Deadline], Solution | NothingFound]
    """Solves a narrowed task."""
    holds_baseline: bool = False
    """Whether whole models on whole GPUs are among its plans, so that they can stand in when time runs out."""
