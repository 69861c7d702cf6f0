"""Several sessions that maximise throughput from the same pools, planned together.

    max level   s.t.  session i serves at least level * weight of i,   all sessions together use the available GPUs

The modules of all sessions form one problem, so everything in `throughput` holds. Sessions with several models keep the
latencies that they choose when planned alone. Sessions with one model have no such choice: for them the result is the
optimum.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found, NothingFound
from partita_planner.allocation.throughput import most_throughput, throughput_bound
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_planner.session.latency import distribute_slack
from partita_planner.solver.deadline import Deadline
from partita_planner.task.assembly import assemble
from partita_planner.task.optimum import MAX_ROUNDS, ROUND_SHARE, collected_at_rate, highest_rate
from partita_planner.task.task import Task, TaskSolution
from partita_planner.validation import validate

STRATEGY = "joint"


@dataclass(frozen=True)
class JointSolution:
    """The solution of every session."""

    solutions: tuple[TaskSolution, ...]
    """In the order of the tasks."""
    level: float
    """Every session serves this many requests per second for each unit of its weight."""
    bound: float
    """No plan reaches a higher level."""


def plan_joint_throughput(
    problems: Sequence[PlanningProblem], seconds: float, clock: Callable[[], float] = time.monotonic
) -> tuple[Outcome, ...]:
    """A validated plan for every session, or for each the reason why there is none. All sessions have a plan, or none.

    Raises ValueError unless all sessions maximise throughput, and name a shared pool with the same GPUs.
    """
    if not all(p.spec.objective.type.seeks_throughput for p in problems):
        raise ValueError(
            "sessions that are planned jointly must all maximise throughput: set objective.type Throughput"
        )
    began = clock()
    tasks = [Task.of(problem) for problem in problems]
    found = most_throughput_jointly(tasks, Deadline.after(seconds, clock))
    if isinstance(found, NothingFound):
        return tuple(_refusal(found, seconds) for _ in tasks)
    plans = [
        assemble(task, solution, STRATEGY, clock() - began)
        for task, solution in zip(tasks, found.solutions, strict=True)
    ]
    wrong = [w for plan, problem in zip(plans, problems, strict=True) for w in validate(plan, problem)]
    if wrong:
        return tuple(NoPlan(NoPlanReason.INVALID_PLAN, "; ".join(wrong)) for _ in plans)
    return tuple(Planned(plan) for plan in plans)


def most_throughput_jointly(tasks: Sequence[Task], deadline: Deadline) -> JointSolution | NothingFound:
    """The highest level that the pools allow; each session's batches are collected at the rate that it reaches.

    The first plan assumes rates that cannot be exceeded, and each later plan the rates that the plan before it reached.
    Raises ValueError if the tasks disagree on a pool's GPUs.
    """
    resources = _shared_resources(tasks)
    assumed = [highest_rate(task, deadline) for task in tasks]
    bound: float | None = None
    for _ in range(MAX_ROUNDS):
        round_ends = deadline.share(ROUND_SHARE)
        demands = [_demands(task, rate, resources, round_ends) for task, rate in zip(tasks, assumed, strict=True)]
        named = [replace(d, module=_name(i, d.module)) for i, group in enumerate(demands) for d in group]
        found = most_throughput(named, resources, round_ends)
        if not isinstance(found, Found):
            return found
        if bound is None:
            bound = _bound(tasks, assumed, resources, found, deadline)
        shares = [
            ModuleDeployments({d.module: found.deployments[_name(i, d.module)] for d in group})
            for i, group in enumerate(demands)
        ]
        reached = [found.value * _weight(task) * (1 - task.kept_free) for task in tasks]
        collected = [collected_at_rate(*each) for each in zip(tasks, shares, reached, strict=True)]
        if all(task.graph.keeps_slo(each.latencies) for task, each in zip(tasks, collected, strict=True)):
            level_bound = max(bound, found.value)
            solutions = [_solution(*each, level_bound) for each in zip(tasks, collected, demands, strict=True)]
            return JointSolution(tuple(solutions), found.value, level_bound)
        assumed = reached
    return NothingFound(proven=False)


def _shared_resources(tasks: Sequence[Task]) -> AvailableResources:
    pools = {pool.name: pool for task in tasks for pool in task.problem.pools}
    for task in tasks:
        for pool in task.problem.pools:
            if pool != pools[pool.name]:
                raise ValueError(
                    f"the sessions disagree on pool {pool.name!r}: give it the same accelerators in each session"
                )
    return AvailableResources(pools, whole_gpus=True)


def _demands(task: Task, rate: float, resources: AvailableResources, deadline: Deadline) -> Sequence[ModuleDemand]:
    """The session's demands at level 1, with only the templates that keep the latencies it would choose alone."""
    demands = task.demands((1 - task.kept_free) * _weight(task), deadline, collected_at=rate)
    if task.coupled is None:
        return demands
    alone = most_throughput(demands, resources, deadline.share(0.2), task.coupled)
    if not isinstance(alone, Found):
        return tuple(replace(d, templates=()) for d in demands)
    budget = distribute_slack(task.graph, alone.deployments.latencies)
    return tuple(
        replace(d, templates=tuple(t for t in d.templates if t.latency_micros <= budget[d.module])) for d in demands
    )


def _bound(
    tasks: Sequence[Task], assumed: Sequence[float], resources: AvailableResources, found: Found, deadline: Deadline
) -> float:
    """The search's own bound if no latencies were chosen before it, else the relaxation's over all of them."""
    if all(task.coupled is None for task in tasks):
        return found.bound
    everything = [
        replace(d, module=_name(i, d.module))
        for i, (task, rate) in enumerate(zip(tasks, assumed, strict=True))
        for d in task.demands((1 - task.kept_free) * _weight(task), deadline, collected_at=rate)
    ]
    return throughput_bound(everything, resources, deadline)


def _solution(
    task: Task, deployments: ModuleDeployments, demands: Sequence[ModuleDemand], level_bound: float
) -> TaskSolution:
    """The session's own figures: what it serves in requests per second, at least its weight times the level."""
    weight = _weight(task)
    serves = weight * min(deployments.throughput(d.module) / d.capacity for d in demands)
    return TaskSolution(deployments, serves * (1 - task.kept_free), serves, max(serves, weight * level_bound))


def _weight(task: Task) -> int:
    return task.problem.spec.objective.weight


def _name(index: int, module: str) -> str:
    return f"{index}/{module}"


def _refusal(nothing: NothingFound, seconds: float) -> NoPlan:
    if nothing.proven:
        return NoPlan(
            NoPlanReason.INSUFFICIENT_CAPACITY,
            "The pools cannot serve these sessions together within their SLOs. Add accelerators, raise slo.latencyMs, "
            "or plan fewer sessions together.",
        )
    return NoPlan(NoPlanReason.TIME_LIMIT, f"No joint plan was found within {seconds:g} s. Allow more time.")
