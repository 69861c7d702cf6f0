"""The entry point of the planner: a problem in; a validated plan, or the reason why there is none, out."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from partita_api.inferencesession import InferenceSessionSpec, ObjectiveType
from partita_api.pipelineplan import Alternative, PipelinePlanSpec
from partita_planner.allocation.template_search import NothingFound
from partita_planner.explain.diagnosis import missing_inputs, not_enough_gpus, slo_too_tight
from partita_planner.explain.explanation import alternative, explained
from partita_planner.explain.sensitivities import sensitivity
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_planner.session.measurements import profile_problems
from partita_planner.session.session_graph import session_problems
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.strategies import STRATEGIES
from partita_planner.strategies.no_partitioning import NO_PARTITIONING
from partita_planner.strategies.strategy import Strategy, StrategyRefusal
from partita_planner.subclusters.sharing import (
    in_words,
    may_share,
    objective_allows_sharing,
    subclusters_of,
    with_gpus_to_share,
    with_shared_gpus,
)
from partita_planner.task.assembly import assemble, inputs_digest
from partita_planner.task.fewest_gpus import with_fewest_gpus
from partita_planner.task.optimum import better
from partita_planner.task.padded_classes import with_fewer_classes, with_padded_classes
from partita_planner.task.task import SolveTask, Task, TaskSolution
from partita_planner.validation import validate

KEEP_WITHIN: Final = 0.02
"""The current plan stays if it is still valid and no new plan is better by more than this share. A change of plan moves
replicas, and that costs more than two percent gain."""
PRESENT_SHARE: Final = 0.3
"""Share of the time limit for the plan with present accelerators, if there are absent ones."""
BASELINE: Final = NO_PARTITIONING
"""The strategy that every plan is compared with. Its plan is the answer if a wider search runs out of time."""
BASELINE_SHARE: Final = 0.2
"""Share of the time limit for the baseline."""
SEARCH_SHARE: Final = 0.9
"""Share of the remaining time for the session's strategy. The rest is for the diagnosis if it finds no plan."""
EVERY_CLASS_SHARE: Final = 0.5
"""Share of the time for the plan with replicas for every size class. The rest is for plans with fewer of them."""
EXPLAIN_SECONDS: Final = 1.0
"""Time for planning again with other inputs. If one search takes longer, the linear relaxation is used instead."""


def plan(
    problem: PlanningProblem,
    clock: Callable[[], float] = time.monotonic,
    explain_seconds: float = EXPLAIN_SECONDS,
) -> Outcome:
    """The best plan for `problem` by its strategy, within planner.timeLimitSeconds.

    The same problem gives the same plan, unless time runs out. Every plan has passed `validate`. The current plan is
    returned unchanged if it is valid and within KEEP_WITHIN of the best. It is also the answer when time runs out.
    Up to `explain_seconds` of the remaining time are for planning again with other inputs (`sensitivity`).

    Of two plans that differ by at most KEEP_WITHIN, one with present accelerators comes before one that has to wait for
    absent ones. A plan for the highest throughput uses all.
    """
    refusal = _refused(problem)
    if refusal is not None:
        return refusal
    deadline = Deadline.after(problem.spec.planner.time_limit_seconds, clock)
    present = None if problem.spec.objective.type.seeks_throughput else problem.present_only
    if present is None:
        found = _search_classes(problem, deadline)
    else:
        ready = _search_classes(present, deadline.share(PRESENT_SHARE))
        found = _search_classes(problem, deadline)
        if not isinstance(ready, NoPlan) and _costs_at_most(ready, found):
            found = ready
    return found.explained(deadline, explain_seconds) if isinstance(found, _Found) else found


@dataclass(frozen=True)
class _Found:
    """A new plan, and how it was found."""

    plan: PipelinePlanSpec
    task: Task
    solution: TaskSolution
    strategy: Strategy
    seconds: float
    """How long the search took."""
    others: tuple[Alternative, ...]
    """What other strategies found."""

    def explained(self, deadline: Deadline, explain_seconds: float) -> Planned:
        """The plan with its explanation."""
        again = Deadline.after(min(explain_seconds, deadline.left), deadline.clock)
        changes = sensitivity(self.task, self.solution, self.strategy.solve, again, self.seconds, deadline)
        beginning = " ".join(filter(None, (self.plan.solution.explanation, in_words(self.plan))))
        return Planned(explained(self.plan, self.task, self.solution, changes, self.others, beginning))


def _costs_at_most(one: _Found | Planned, other: _Found | Outcome) -> bool:
    """Whether a plan costs about as much as the other one, or less; also if there is no other one."""
    if isinstance(other, NoPlan):
        return True
    return _ratio(float(one.plan.solution.value), float(other.plan.solution.value)) - 1 <= KEEP_WITHIN


def _search_classes(problem: PlanningProblem, deadline: Deadline) -> _Found | Outcome:
    """The best plan, in which samples of a size class may be padded to a larger class.

    It begins with replicas for every class, and leaves out classes while that makes a plan possible, or a better one.
    The plan with every class stays if that gains no more than KEEP_WITHIN.
    """
    fewer, kind = list(with_fewer_classes(problem)), problem.spec.objective.type
    every = best = _search(problem, deadline.share(EVERY_CLASS_SHARE) if fewer else deadline)
    if isinstance(every, NoPlan) and every.reason is not NoPlanReason.INSUFFICIENT_CAPACITY:
        return every
    last = deadline.share(SEARCH_SHARE)
    while fewer and not last.passed:
        found = [_search(each, last.share(1 / (len(fewer) - number))) for number, each in enumerate(fewer)]
        gains = [_gain_over(best, each, kind) for each in found]
        chosen = gains.index(max(gains))
        if gains[chosen] > ROUNDING:
            best = found[chosen]
        elif not isinstance(best, NoPlan):
            break
        fewer = list(with_fewer_classes(fewer[chosen]))
    if isinstance(best, NoPlan) or _gain_over(every, best, kind) <= KEEP_WITHIN:
        return every
    best = replace(best, plan=with_padded_classes(best.plan, problem))
    violations = validate(best.plan, problem)
    return _bug(violations) if violations else best


def _search(problem: PlanningProblem, deadline: Deadline) -> _Found | Outcome:
    """The best plan by the session's strategy; the problem can be planned. The current plan has its explanation."""
    clock = deadline.clock
    began = clock()
    strategy = STRATEGIES[problem.spec.planner.strategy]
    task = strategy.restrict(Task.of(problem))
    hopeless = missing_inputs(task) or slo_too_tight(task, strategy.solve, deadline)
    if hopeless is not None:
        return hopeless
    baseline = BASELINE.solve(BASELINE.restrict(task), deadline.share(BASELINE_SHARE))
    solution = baseline if strategy is BASELINE else strategy.solve(task, deadline.share(SEARCH_SHARE))
    if strategy.holds_baseline:
        solution = better(task, solution, baseline, deadline)
    if isinstance(solution, NothingFound):
        return _by_sharing(task, strategy.name, deadline) or _without_solution(task, solution, strategy.solve, deadline)
    if problem.spec.objective.type is ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS:
        solution = with_fewest_gpus(task, solution, deadline.share(SEARCH_SHARE))
    seconds = clock() - began
    found = assemble(task, solution, strategy.name, seconds)
    if may_share(problem.spec):
        found = with_shared_gpus(found, problem)
    if violations := validate(found, problem):
        return _bug(violations)
    if problem.current_plan is not None and _stays(problem.current_plan, found, problem):
        return Planned(problem.current_plan)
    others = () if strategy is BASELINE else (alternative(BASELINE.name, task, solution, baseline),)
    return _Found(found, task, solution, strategy, seconds, others)


def _refused(problem: PlanningProblem) -> NoPlan | None:
    """Why the session cannot be planned at all; None if it can."""
    wrong = list(session_problems(problem.spec))
    if problem.spec.planner.strategy not in STRATEGIES:
        known = ", ".join(sorted(STRATEGIES))
        wrong.append(f"planner.strategy {problem.spec.planner.strategy!r} is not known: choose one of {known}")
    elif problem.spec.objective.type not in STRATEGIES[problem.spec.planner.strategy].objectives:
        possible = " or ".join(sorted(STRATEGIES[problem.spec.planner.strategy].objectives))
        wrong.append(
            f"planner.strategy {problem.spec.planner.strategy} plans for objective {possible} only, not "
            f"{problem.spec.objective.type}: choose planner.strategy partita, or objective.type {possible}"
        )
    if problem.spec.planner.share_gpus and not objective_allows_sharing(problem.spec):
        wrong.append("planner.shareGpus needs objective.type Cost or Power, and objective.costModel Allocated")
    if problem.spec.availability is not None:
        wrong.extend(_unusable_with_availability(problem.spec))
    if not 0 < problem.rate < inf:
        wrong.append(f"the rate to plan for is {problem.rate:g} requests/s: give a finite rate above 0")
    names = [pool.name for pool in problem.pools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        wrong.append(f"pool {', '.join(twice)} is given more than once: give each pool its own name")
    wrong.extend(profile_problems(problem))
    silent = [pool.name for pool in problem.pools if pool.spec.power_watts is None]
    if problem.spec.objective.type is ObjectiveType.POWER and silent:
        wrong.append(
            f"objective Power needs the watts of every pool that may be used: set powerWatts of {', '.join(silent)}, "
            f"or exclude them by spec.pools"
        )
    return NoPlan(NoPlanReason.INVALID_SESSION, "; ".join(wrong)) if wrong else None


def _unusable_with_availability(spec: InferenceSessionSpec) -> Iterator[str]:
    """Which settings cannot be used with spec.availability."""
    settings = spec.planner
    if settings.strategy in STRATEGIES and not STRATEGIES[settings.strategy].survives_losses:
        possible = " or ".join(sorted(name for name, strategy in STRATEGIES.items() if strategy.survives_losses))
        yield (
            f"planner.strategy {settings.strategy} does not plan for availability: choose planner.strategy {possible}, "
            f"or remove availability"
        )
    if settings.share_gpus:
        yield "planner.shareGpus does not work with availability: remove one of them"


def _by_sharing(task: Task, strategy: str, deadline: Deadline) -> Planned | None:
    """A plan whose models have too few GPUs alone, and enough if they share them; None if there is none.

    Only whole models on whole GPUs share them, so the baseline makes the plan.
    """
    problem, began = task.problem, deadline.clock()
    if not may_share(problem.spec):
        return None
    wider = BASELINE.restrict(replace(task, problem=with_gpus_to_share(problem)))
    solution = BASELINE.solve(wider, deadline.share(BASELINE_SHARE))
    if isinstance(solution, NothingFound):
        return None
    found = with_shared_gpus(assemble(wider, solution, strategy, deadline.clock() - began), problem)
    found = found.model_copy(update={"inputs_digest": inputs_digest(problem)})
    if validate(found, problem):
        return None
    if problem.current_plan is not None and _stays(problem.current_plan, found, problem):
        return Planned(problem.current_plan)
    said = " ".join(["Models that share no accelerators need more than there are.", *subclusters_of(found)])
    return Planned(found.model_copy(update={"solution": found.solution.model_copy(update={"explanation": said})}))


def _without_solution(task: Task, nothing: NothingFound, solve: SolveTask, deadline: Deadline) -> Outcome:
    """The current plan if it is still valid, else why there is no plan."""
    current_plan = task.problem.current_plan
    if current_plan is not None and not validate(current_plan, task.problem):
        return Planned(current_plan)
    if isinstance(nothing, StrategyRefusal):
        return nothing.why
    if nothing.proven:
        return not_enough_gpus(task, solve, deadline)
    seconds = task.problem.spec.planner.time_limit_seconds
    return NoPlan(
        NoPlanReason.TIME_LIMIT,
        f"The planner found no plan within {seconds} s, and no proof that there is none. Raise "
        f"planner.timeLimitSeconds, or lower planner.maxStages.",
    )


def _stays(current_plan: PipelinePlanSpec, found: PipelinePlanSpec, problem: PlanningProblem) -> bool:
    """Whether the current plan is still valid and nearly as good as `found`."""
    if current_plan.solution.strategy != found.solution.strategy or validate(current_plan, problem):
        return False
    return _gain(current_plan, found, problem.spec.objective.type) <= KEEP_WITHIN


def _gain_over(one: _Found | Outcome, other: _Found | Outcome, kind: ObjectiveType) -> float:
    """The gain of the other plan over the first one, as a share."""
    if isinstance(other, NoPlan):
        return -inf
    return inf if isinstance(one, NoPlan) else _gain(one.plan, other.plan, kind)


def _gain(one: PipelinePlanSpec, other: PipelinePlanSpec, kind: ObjectiveType) -> float:
    """The gain of the other plan over the first one, as a share."""
    better, worse = (other, one) if kind.seeks_throughput else (one, other)
    gain = _ratio(float(better.solution.value), float(worse.solution.value)) - 1
    if kind is ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS and gain >= 0:
        gain = max(gain, _ratio(sum(one.gpus().values()), sum(other.gpus().values())) - 1)
    return gain


def _ratio(one: float, other: float) -> float:
    return one / other if other else 1.0


def _bug(violations: tuple[str, ...]) -> NoPlan:
    return NoPlan(
        NoPlanReason.INVALID_PLAN,
        f"The planner made an invalid plan, which is a bug in Partita. The current plan stays; report this message: "
        f"{'; '.join(violations)}",
    )
