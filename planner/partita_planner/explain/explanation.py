"""Explains a plan, for users and programs: what bounds it, what more resources are worth, and the runner-up."""

from collections.abc import Iterator

from partita_api.pipelineplan import Alternative, Constraint, ConstraintType, Evidence, PipelinePlanSpec
from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.template_search import NothingFound
from partita_planner.explain.sensitivities import Sensitivity, Worth
from partita_planner.solver.tolerances import PROFILE_PRECISION
from partita_planner.task.assembly import quantity
from partita_planner.task.task import Task, TaskSolution

FULL_PATH = 0.98
"""A path that uses this share of the SLO is full."""


def explained(
    plan: PipelinePlanSpec,
    task: Task,
    solution: TaskSolution,
    found: Sensitivity,
    others: tuple[Alternative, ...],
    beginning: str = "",
) -> PipelinePlanSpec:
    """`plan`, made from `solution`, with its explanation; `others` are other strategies' plans.

    The explanation begins with `beginning`.
    """
    constraints = (*_pools(task, solution, found), _latency(task, solution, found))
    strategy = plan.solution.strategy
    without = (alternative(strategy, task, solution, other, pool) for pool, other in found.without.items())
    runner_up = _best(task, [other for other in (*others, *without) if _is_another(task, solution, other)])
    words = [
        _achieved(task, solution),
        *_worst_loss(plan),
        _full_pools(task, solution),
        _path(task, solution),
        *_worths(task, found),
    ]
    if beginning:
        words.insert(0, beginning)
    words.append(f"The runner-up is {runner_up.summary}" if runner_up else "No other plan was found to compare with.")
    update = {"explanation": " ".join(words)[:4096], "constraints": constraints[:64], "runner_up": runner_up}
    return plan.model_copy(update={"solution": plan.solution.model_copy(update=update), "alternatives": others})


def alternative(
    name: str, task: Task, chosen: TaskSolution, other: TaskSolution | NothingFound, without_pool: str | None = None
) -> Alternative:
    """Another strategy's plan compared with the chosen one, or the same strategy's plan without a pool."""
    label = name if without_pool is None else f"{name} without {without_pool}"
    if isinstance(other, NothingFound):
        why = "it has no plan for these inputs" if other.proven else "it found no plan in its share of the time"
        return Alternative(strategy=name, without_pool=without_pool, feasible=False, summary=f"{label}: {why}.")
    counts = ", ".join(f"{count} accelerators of {pool}" for pool, count in other.deployments.gpus().items())
    return Alternative(
        strategy=name,
        without_pool=without_pool,
        feasible=True,
        value=quantity(other.value),
        summary=f"{label}: {other.value:.6g} {_unit(task)}, {_compared(chosen, other)}; {counts}."[:1024],
    )


def _compared(chosen: TaskSolution, other: TaskSolution) -> str:
    if abs(other.value - chosen.value) <= PROFILE_PRECISION * max(chosen.value, other.value):
        return "no worse"
    if not chosen.value:
        return "more than the plan, which costs nothing"
    change = other.value / chosen.value - 1
    return f"{abs(change):.1%} {'more' if change > 0 else 'less'} than the plan"


def _best(task: Task, candidates: list[Alternative]) -> Alternative | None:
    """The first of the best."""
    sign = -1 if task.objective is AllocationObjective.THROUGHPUT else 1
    return min(candidates, key=lambda other: sign * float(other.value or 0), default=None)


def _is_another(task: Task, solution: TaskSolution, other: Alternative) -> bool:
    """Whether it is a different plan; plans of equal value on the same GPUs count as the same."""
    same = alternative(other.strategy, task, solution, solution, other.without_pool)
    return other.feasible and other.summary != same.summary


def _pools(task: Task, solution: TaskSolution, found: Sensitivity) -> Iterator[Constraint]:
    used = solution.deployments.gpus()
    for pool in task.problem.pools:
        worth = found.gpu.get(pool.name)
        if worth is not None or pool.name in used:
            full = used.get(pool.name, 0) >= pool.gpus
            yield _constraint(solution, worth, full, type=ConstraintType.GPUS, pool=pool.name)


def _latency(task: Task, solution: TaskSolution, found: Sensitivity) -> Constraint:
    full = float(task.graph.longest(solution.latencies) / task.graph.slo_micros) >= FULL_PATH
    path = tuple(name for name in task.graph.critical_path(solution.latencies) if name in solution.deployments)
    return _constraint(solution, found.slo, full, type=ConstraintType.LATENCY, modules=found.slower or path)


def _constraint(
    solution: TaskSolution,
    worth: Worth | None,
    full: bool,
    *,
    type: ConstraintType,
    pool: str | None = None,
    modules: tuple[str, ...] = (),
) -> Constraint:
    return Constraint(
        type=type,
        pool=pool,
        modules=modules,
        binding=full if worth is None else worth.amount > PROFILE_PRECISION * solution.value,
        worth=None if worth is None else quantity(worth.amount),
        evidence=None if worth is None else worth.evidence,
    )


def _achieved(task: Task, solution: TaskSolution) -> str:
    if solution.relative_gap <= PROFILE_PRECISION:
        proof = "proven optimal"
    else:
        proof = f"within {solution.relative_gap:.2%} of the proven bound {solution.bound:.6g}"
    return f"{solution.value:.6g} {_unit(task)}, {proof}."


def _worst_loss(plan: PipelinePlanSpec) -> Iterator[str]:
    worst, value = plan.solution.worst_loss, float(plan.solution.value)
    if worst is None:
        return
    yield f"The worst loss is {worst.lost}: the rest can serve {float(worst.throughput):.6g} requests/s."
    if worst.value_without is None:
        return
    without, unit = float(worst.value_without), plan.solution.objective.unit
    cost = abs(value - without) if abs(value - without) > PROFILE_PRECISION * max(value, without) else 0.0
    yield f"Surviving losses costs {cost:.6g} {unit}: without spec.availability it is {without:.6g} {unit}."


def _full_pools(task: Task, solution: TaskSolution) -> str:
    used = solution.deployments.gpus()
    full = [f"{name} ({count})" for name, count in used.items() if count >= task.resources.pools[name].gpus]
    if full:
        return f"Pools without a free accelerator: {', '.join(full)}."
    if task.objective is AllocationObjective.THROUGHPUT:
        return "No pool is used up: the remaining accelerators are too few for another stage."
    return "No pool is used up."


def _path(task: Task, solution: TaskSolution) -> str:
    path = task.graph.critical_path(solution.latencies)
    total = task.graph.longest(solution.latencies)
    share = float(total / task.graph.slo_micros)
    fills = (
        "which fills it" if share >= FULL_PATH else "which leaves slack that is distributed over the modules' budgets"
    )
    return (
        f"The slowest path, {' -> '.join(path)}, takes {float(total) / 1000:.1f} ms of the "
        f"{task.graph.slo_micros / 1000:g} ms that the SLO and its margin leave, {fills}."
    )


def _worths(task: Task, found: Sensitivity) -> Iterator[str]:
    verb = "gain" if task.objective is AllocationObjective.THROUGHPUT else "save"
    for evidence, how in (
        (Evidence.RESOLVED, "planned again"),
        (Evidence.RELAXED, "by the linear relaxation, which allows fractions of an accelerator"),
    ):
        known = {pool: worth for pool, worth in found.gpu.items() if worth.evidence is evidence}
        if known:
            each = ", ".join(f"of {pool} {_amount(task, worth)}" for pool, worth in sorted(known.items()))
            yield f"One more accelerator would {verb}: {each} ({how})."
    if found.slo is not None:
        slower = f", in {', '.join(found.slower)}" if found.slower else ""
        yield f"A tenth more SLO would {verb} {_amount(task, found.slo)}{slower}."


def _amount(task: Task, worth: Worth) -> str:
    return f"{worth.amount:.6g} {_unit(task)}" if worth.amount else "nothing"


def _unit(task: Task) -> str:
    return task.problem.spec.objective.type.unit
