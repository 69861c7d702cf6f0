"""The planner's entry: a problem in, a validated plan or the reason why there is none out."""

import time
from collections.abc import Callable
from typing import Final

from partita_api.inferencesession import CostModel, ObjectiveKind
from partita_api.pipelineplan import PipelinePlanSpec
from partita_planner.assembly import assemble
from partita_planner.deadline import Deadline
from partita_planner.diagnosis import missing_inputs, not_enough_gpus, slo_too_tight
from partita_planner.explanation import alternative, explain
from partita_planner.optimum import better
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_planner.search import NothingFound
from partita_planner.session_graph import session_problems
from partita_planner.strategies import STRATEGIES
from partita_planner.strategies.no_partitioning import NO_PARTITIONING
from partita_planner.task import Task
from partita_planner.validate import validate

KEEP_WITHIN: Final = 0.02
"""The plan in force stays if it is still valid and no new plan is better by more than this share: a change of plan
moves replicas, which is worth more than two percent."""
BASELINE: Final = NO_PARTITIONING
"""The strategy whose plan is always there to compare with, and stands in if a wider search runs out of time."""
BASELINE_SHARE: Final = 0.2
"""Share of the time limit for the baseline, which needs little of it."""
SEARCH_SHARE: Final = 0.9
"""Share of the time then left for the session's own strategy; the rest is for saying what is wrong if it finds none."""


def plan(problem: PlanningProblem, clock: Callable[[], float] = time.monotonic) -> Outcome:
    """The best plan for `problem` by its strategy, within planner.timeLimitSeconds.

    The same problem gives the same plan, unless time runs out. Every plan has passed `validate`. The plan in force is
    returned as it is if it is still valid and within KEEP_WITHIN of the best; it also stands in when time runs out.
    """
    refusal = _refused(problem)
    if refusal is not None:
        return refusal
    began = clock()
    deadline = Deadline.after(problem.spec.planner.time_limit_seconds, clock)
    strategy = STRATEGIES[problem.spec.planner.strategy]
    task = strategy.narrow(Task.of(problem))
    hopeless = missing_inputs(task) or slo_too_tight(task)
    if hopeless is not None:
        return hopeless
    baseline = BASELINE.solve(BASELINE.narrow(task), deadline.share(BASELINE_SHARE))
    solution = baseline if strategy is BASELINE else strategy.solve(task, deadline.share(SEARCH_SHARE))
    if strategy.holds_baseline:
        solution = better(task, solution, baseline)
    if isinstance(solution, NothingFound):
        return _without_solution(task, solution, deadline)
    others = () if strategy is BASELINE else (alternative(BASELINE.name, task, solution, baseline),)
    found = assemble(task, solution, strategy.name, clock() - began, explain(task, solution), others)
    return _checked(_steady(found, problem), problem)


def _refused(problem: PlanningProblem) -> NoPlan | None:
    """Why the session cannot be planned at all, if so."""
    wrong = list(session_problems(problem.spec))
    if problem.spec.planner.strategy not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        wrong.append(f"planner.strategy {problem.spec.planner.strategy!r} is not known: choose one of {known}")
    if not problem.rate > 0:
        wrong.append(f"the rate to plan for is {problem.rate:g} requests/s: it must be above 0")
    return NoPlan(NoPlanReason.INVALID_SESSION, "; ".join(wrong)) if wrong else None


def _without_solution(task: Task, nothing: NothingFound, deadline: Deadline) -> Outcome:
    """The plan in force if it still serves, else why there is none."""
    incumbent = task.problem.incumbent
    if incumbent is not None and not validate(incumbent, task.problem):
        return Planned(incumbent)
    if nothing.proven:
        return not_enough_gpus(task, deadline)
    seconds = task.problem.spec.planner.time_limit_seconds
    return NoPlan(
        NoPlanReason.TIME_LIMIT,
        f"No plan was found within {seconds} s, nor proof that there is none. Raise planner.timeLimitSeconds, or lower "
        f"planner.maxStages.",
    )


def _steady(found: PipelinePlanSpec, problem: PlanningProblem) -> PipelinePlanSpec:
    """The plan in force instead of `found`, if it is still valid and nearly as good."""
    incumbent = problem.incumbent
    if incumbent is None or incumbent.solution.strategy != found.solution.strategy or validate(incumbent, problem):
        return found
    if problem.spec.objective.kind is ObjectiveKind.THROUGHPUT:
        gain = float(found.throughput) / float(incumbent.throughput) - 1
    else:
        gain = _cost(incumbent, problem) / _cost(found, problem) - 1 if _cost(found, problem) else 0.0
    return incumbent if gain <= KEEP_WITHIN else found


def _cost(plan: PipelinePlanSpec, problem: PlanningProblem) -> float:
    occupancy = problem.spec.objective.cost_model is CostModel.OCCUPANCY
    return float(plan.cost.occupancy_per_hour if occupancy else plan.cost.allocated_per_hour)


def _checked(found: PipelinePlanSpec, problem: PlanningProblem) -> Outcome:
    violations = validate(found, problem)
    if not violations:
        return Planned(found)
    return NoPlan(
        NoPlanReason.INVALID_PLAN,
        f"The planner made a plan that does not hold, which is a bug; the plan in force stays. {'; '.join(violations)}",
    )
