"""How the plan changes with slightly different inputs: one more GPU, a tenth more SLO, one pool less.

The same strategy plans again while there is time. The result is exact for whole GPUs if the strategy is exact. If time
runs out, the duals of the linear relaxation are used. A dual is the rate at which the optimum changes with
fractions of a GPU and without coupled latencies. It is a rough estimate for one whole GPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from partita_api.pipelineplan import Evidence
from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.relaxation import relax
from partita_planner.allocation.template_search import NothingFound
from partita_planner.allocation.throughput import highest_level
from partita_planner.problem import LONGEST_SLO_MS
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import PROFILE_PRECISION
from partita_planner.task.task import SolveTask, Task, TaskSolution

MORE_SLO = 1.1
"""A tenth more time for every path: on most profiles, enough for the next batch size."""


@dataclass(frozen=True)
class Worth:
    """By how much the objective value improves."""

    amount: float
    """In the unit of the objective value; never below 0."""
    evidence: Evidence


@dataclass(frozen=True)
class Sensitivity:
    """How the plan depends on its inputs; what was not computed in time is omitted."""

    gpu: Mapping[str, Worth] = field(default_factory=dict)
    """The worth of one more GPU, by pool."""
    slo: Worth | None = None
    """The worth of a tenth more SLO."""
    slower: tuple[str, ...] = ()
    """The modules that would use more time with a longer SLO than the plan leaves them."""
    without: Mapping[str, TaskSolution] = field(default_factory=dict)
    """The solution without one pool, by pool in use; omitted if there is no plan without the pool."""


@dataclass(frozen=True)
class _Replanning:
    """Plans changed tasks with one strategy while there is time."""

    base: TaskSolution
    solve: SolveTask
    deadline: Deadline
    seconds: float
    """Estimated seconds of one more solve."""
    throughput: bool

    def __call__(self, task: Task) -> TaskSolution | NothingFound:
        """The solution of the changed task; NothingFound without proof if there is no time for it."""
        if self.deadline.left < self.seconds:
            return NothingFound(proven=False)
        return self.solve(task, self.deadline)

    def worth(self, more: TaskSolution | NothingFound) -> Worth | None:
        """The improvement; None if `more` has a larger gap than the plan. Improvements within the gaps count as 0."""
        if not isinstance(more, TaskSolution) or more.relative_gap > self.base.relative_gap + PROFILE_PRECISION:
            return None
        gained = more.value - self.base.value if self.throughput else self.base.value - more.value
        uncertain = self.base.relative_gap * self.base.value + more.relative_gap * more.value
        return Worth(gained if gained > uncertain else 0.0, Evidence.RESOLVED)


def sensitivity(
    task: Task, solution: TaskSolution, solve: SolveTask, again: Deadline, seconds: float, deadline: Deadline
) -> Sensitivity:
    """How `solution` depends on GPUs, SLO and pools; `solve` found it in `seconds`.

    Planning again stops at the deadline `again`, the relaxation at `deadline`.
    """
    replan = _Replanning(solution, solve, again, seconds, task.objective is AllocationObjective.THROUGHPUT)
    without = {
        pool: other
        for pool in solution.deployments.gpus()
        if len(_profiled(task)) > 1 and isinstance(other := replan(task.with_gpus({pool: 0})), TaskSolution)
    }
    gpu = _more_gpus(task, replan)
    slower = replan(task.with_slo(_more_slo(task)))
    if len(gpu) < len(_profiled(task)):
        gpu = {**_relaxed(task, solution, deadline), **gpu}
    slo = replan.worth(slower)
    gained = slo is not None and slo.amount > 0 and isinstance(slower, TaskSolution)
    return Sensitivity(gpu, slo, _slower(task, solution, slower) if gained else (), without)


def _more_gpus(task: Task, replan: _Replanning) -> dict[str, Worth]:
    """The worth of one more GPU of each pool, fullest pool first.

    If one more GPU in all pools together gains nothing, a single one gains nothing either.
    """
    there = {pool.name: pool.gpus for pool in task.problem.pools if pool.name in _profiled(task)}
    used = replan.base.deployments.gpus()
    if not replan.throughput and replan.base.relative_gap <= PROFILE_PRECISION and len(there) > 1:
        together = replan.worth(replan(task.with_gpus({name: gpus + 1 for name, gpus in there.items()})))
        if together is not None and together.amount == 0:
            return dict.fromkeys(there, together)
    found = {}
    for name in sorted(there, key=lambda pool: there[pool] - used.get(pool, 0)):
        worth = replan.worth(replan(task.with_gpus({name: there[name] + 1})))
        if worth is not None:
            found[name] = worth
    return found


def _relaxed(task: Task, solution: TaskSolution, deadline: Deadline) -> dict[str, Worth]:
    """The duals of the pools in use by some template."""
    if task.objective is AllocationObjective.THROUGHPUT:
        demands = task.demands(1 - task.kept_free, deadline, collected_at=solution.rate)
        relaxation = relax(demands, task.resources, task.objective, deadline, highest_level(demands, task.resources))
    else:
        relaxation = relax(task.demands(solution.rate, deadline), task.resources, task.objective, deadline)
    if relaxation is None:
        return {}
    return {pool: Worth(dual, Evidence.RELAXED) for pool, dual in relaxation.gpu.items()}


def _slower(task: Task, solution: TaskSolution, relieved: TaskSolution | NothingFound) -> tuple[str, ...]:
    """The modules that have more time in `relieved` than `solution` leaves them."""
    if not isinstance(relieved, TaskSolution):
        return ()
    before, after = solution.latencies, relieved.latencies
    headroom = task.graph.latency_headroom(before)
    return tuple(name for name in before if after[name] > headroom[name])


def _profiled(task: Task) -> set[str]:
    """The pools on which some model has a profile."""
    there = {pool for module, pool in task.problem.profiles if module in task.classes}
    return {pool.name for pool in task.problem.pools if pool.name in there}


def _more_slo(task: Task) -> int:
    millis = task.problem.spec.slo.latency_ms
    return min(LONGEST_SLO_MS, max(millis + 1, round(millis * MORE_SLO)))
