"""Why a plan is as it is, for people: what binds it, and what other strategies would have given."""

from partita_api.pipelineplan import Alternative
from partita_planner.allocation import Aim, gpus_used
from partita_planner.assembly import quantity
from partita_planner.search import NothingFound
from partita_planner.task import Solution, Task

FULL_PATH = 0.98
"""A path that takes this share of what it may is said to bind."""
CERTAIN_GAP = 1e-4


def explain(task: Task, solution: Solution) -> str:
    """What the plan is, how sure it is, and what binds it: pools without a GPU left, and the slowest path."""
    unit = task.problem.spec.objective.kind.unit
    gap = solution.relative_gap
    proof = "proven optimal" if gap <= CERTAIN_GAP else f"within {gap:.2%} of the proven bound {solution.bound:.6g}"
    return " ".join(
        (f"{solution.value:.6g} {unit}, {proof}.", _binding_pools(task, solution), _binding_path(task, solution))
    )


def alternative(name: str, task: Task, chosen: Solution, other: Solution | NothingFound) -> Alternative:
    """Another strategy's answer beside the one that was chosen."""
    if isinstance(other, NothingFound):
        why = "it has no plan for these inputs" if other.proven else "it found no plan in its share of the time"
        return Alternative(strategy=name, feasible=False, summary=f"{name}: {why}.")
    unit = task.problem.spec.objective.kind.unit
    return Alternative(
        strategy=name,
        feasible=True,
        value=quantity(other.value),
        summary=f"{name}: {other.value:.6g} {unit}, {_compared(task, chosen, other)}; {_counts(other)}.",
    )


def _compared(task: Task, chosen: Solution, other: Solution) -> str:
    if abs(other.value - chosen.value) <= CERTAIN_GAP * max(chosen.value, other.value):
        return "no worse"
    if task.aim is Aim.THROUGHPUT:
        return f"{1 - other.value / chosen.value:.1%} less than the plan"
    if not chosen.value:
        return "more than the plan, which costs nothing"
    return f"{other.value / chosen.value - 1:.1%} more than the plan"


def _counts(solution: Solution) -> str:
    return ", ".join(f"{count} GPUs of {pool}" for pool, count in gpus_used(solution.deployments).items())


def _binding_pools(task: Task, solution: Solution) -> str:
    used = gpus_used(solution.deployments)
    full = [f"{name} ({count})" for name, count in used.items() if count >= task.market.pools[name].gpus]
    if full:
        return f"Pools without a GPU left: {', '.join(full)}."
    if task.aim is Aim.THROUGHPUT:
        return "No pool is used up: the GPUs left over do not make a whole stage."
    return "No pool is used up."


def _binding_path(task: Task, solution: Solution) -> str:
    latency = {name: max(d.template.latency_micros for d in group) for name, group in solution.deployments.items()}
    path = task.graph.critical_path(latency)
    total = task.graph.longest(latency)
    share = float(total / task.graph.slo_micros)
    binds = "which binds" if share >= FULL_PATH else "which leaves slack that is shared out over the modules' budgets"
    return (
        f"The slowest path, {' -> '.join(path)}, takes {float(total) / 1000:.1f} ms of the "
        f"{task.graph.slo_micros / 1000:g} ms that the SLO and its margin leave, {binds}."
    )
