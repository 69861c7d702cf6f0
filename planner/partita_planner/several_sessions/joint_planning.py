"""Several sessions planned together on the same pools: most throughput for all, or the least cost of all.

Throughput is one problem for all sessions (`joint`). Costs add up, and a GPU serves one session only. If the plans of
the single sessions fit the pools side by side, they are the cheapest. Otherwise the order of planning decides which
session gets the scarce GPUs: all orders are tried, and the cheapest result is kept. The sum of the costs alone, each
session with all GPUs, is a bound on every result.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem
from partita_planner.several_sessions.joint_throughput import plan_joint_throughput
from partita_planner.solver.deadline import Deadline

MAX_ORDERS: Final = 24
"""Orders that are tried: all orders of up to four sessions."""

Plan = Callable[[PlanningProblem], Outcome]


class JointPlanningError(ValueError):
    """The sessions cannot be planned together; the message says why, and the fix."""


@dataclass(frozen=True)
class JointOutcome:
    """A plan for every session, or for none; in the order of the sessions."""

    outcomes: tuple[Outcome, ...]
    value: float | None
    """The total cost or power; or the requests per second that each session serves, divided by its weight."""
    bound: float | None
    """Proven: no plans for all sessions have a better value."""


def plan_jointly(
    problems: Sequence[PlanningProblem], seconds: float, plan: Plan, clock: Callable[[], float] = time.monotonic
) -> JointOutcome:
    """Plans for all sessions, within `seconds`; `plan` plans one of them. Each problem names all GPUs of its pools.

    Raises JointPlanningError for sessions whose objectives cannot be weighed against each other.
    """
    _check(problems)
    if problems[0].spec.objective.type.seeks_throughput:
        return _level(problems, plan_joint_throughput(problems, seconds, clock))
    return _cheapest(problems, plan, Deadline.after(seconds, clock))


def _check(problems: Sequence[PlanningProblem]) -> None:
    if not problems:
        raise JointPlanningError("there is no session to plan: give at least one")
    others = sorted({p.spec.planner.strategy for p in problems} - {"partita"})
    if others:
        raise JointPlanningError(
            f"strategy {', '.join(others)} plans each session alone; set planner.strategy to partita"
        )
    kinds = {p.spec.objective.type for p in problems}
    models = {p.spec.objective.cost_model for p in problems}
    throughput = [kind for kind in kinds if kind.seeks_throughput]
    protected = sorted(p.session.name for p in problems if p.spec.availability is not None)
    if throughput and protected:
        raise JointPlanningError(
            f"sessions with availability ({', '.join(protected)}) cannot be planned together for throughput: plan them "
            f"one by one, or remove availability"
        )
    if (throughput and len(throughput) < len(kinds)) or (not throughput and (len(kinds) > 1 or len(models) > 1)):
        objectives = sorted(f"{p.session.name}: {_objective(p)}" for p in problems)
        raise JointPlanningError(
            f"the sessions have different objectives ({', '.join(objectives)}); give them one, or plan them one by one"
        )


def _objective(problem: PlanningProblem) -> str:
    objective = problem.spec.objective
    kind = str(objective.type)
    return kind if objective.type.seeks_throughput else f"{kind} by costModel {objective.cost_model}"


def _level(problems: Sequence[PlanningProblem], outcomes: tuple[Outcome, ...]) -> JointOutcome:
    plans = [o.plan for o in outcomes if isinstance(o, Planned)]
    if len(plans) < len(outcomes):
        return JointOutcome(outcomes, None, None)
    weights = [p.spec.objective.weight for p in problems]
    each = list(zip(plans, weights, strict=True))
    return JointOutcome(
        outcomes,
        min(float(plan.solution.value) / weight for plan, weight in each),
        min(float(plan.solution.bound) / weight for plan, weight in each),
    )


def _cheapest(problems: Sequence[PlanningProblem], plan: Plan, deadline: Deadline) -> JointOutcome:
    alone = [plan(problem) for problem in problems]
    planned = [outcome.plan for outcome in alone if isinstance(outcome, Planned)]
    if len(planned) < len(alone):
        names = ", ".join(p.session.name for p, o in zip(problems, alone, strict=True) if isinstance(o, NoPlan))
        rest = NoPlan(
            NoPlanReason.INSUFFICIENT_CAPACITY,
            f"There is no plan for {names}, and therefore no joint plan. See that session's reason.",
        )
        return JointOutcome(tuple(o if isinstance(o, NoPlan) else rest for o in alone), None, None)
    bound = sum(float(spec.solution.bound) for spec in planned)
    best: list[Outcome] | None = None
    if not _beyond_the_pools(problems, alone):
        best = alone
    else:
        for order in islice(permutations(range(len(problems))), MAX_ORDERS):
            found = _one_after_the_other(problems, order, alone, plan)
            if found is not None and (best is None or _total(found) < _total(best)):
                best = found
            if deadline.passed:
                break
    if best is None:
        names = ", ".join(p.session.name for p in problems)
        nothing = NoPlan(
            NoPlanReason.INSUFFICIENT_CAPACITY,
            f"Each of {names} has a plan, but the pools have too few accelerators for all of them. Add accelerators, "
            f"lower their rates, or raise slo.latencyMs.",
        )
        return JointOutcome(tuple(nothing for _ in problems), None, None)
    return JointOutcome(tuple(best), _total(best), min(bound, _total(best)))


def _one_after_the_other(
    problems: Sequence[PlanningProblem], order: Sequence[int], alone: Sequence[Outcome], plan: Plan
) -> list[Outcome] | None:
    """Plans in that order, each on the GPUs that the plans before it leave; None if a session has no plan."""
    found = list(alone)
    taken: dict[str, int] = {}
    for position, index in enumerate(order):
        if position:
            free = {pool.name: pool.gpus - taken.get(pool.name, 0) for pool in problems[index].pools}
            found[index] = plan(problems[index].with_gpus(free))
        outcome = found[index]
        if isinstance(outcome, NoPlan):
            return None
        for name, count in outcome.plan.gpus().items():
            taken[name] = taken.get(name, 0) + count
    return found


def _beyond_the_pools(problems: Sequence[PlanningProblem], outcomes: Sequence[Outcome]) -> bool:
    """Whether the plans use more GPUs than the pools have."""
    there = {pool.name: pool.gpus for problem in problems for pool in problem.pools}
    taken = [outcome.plan.gpus() for outcome in outcomes if isinstance(outcome, Planned)]
    return any(sum(gpus.get(name, 0) for gpus in taken) > count for name, count in there.items())


def _total(outcomes: Sequence[Outcome]) -> float:
    return sum(float(outcome.plan.solution.value) for outcome in outcomes if isinstance(outcome, Planned))
