"""Partitions models into sub-clusters: a fast local search, a bound, and HiGHS for small problems."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import Final

from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.subclusters.balance import measure
from partita_planner.subclusters.descent import descend
from partita_planner.subclusters.formulation import MAX_BINARIES, lower_bound, solve_exactly
from partita_planner.subclusters.problem import (
    NoPartition,
    NoPartitionReason,
    Partition,
    SubclusterProblem,
    check,
)

CLOSE_ENOUGH: Final = 1e-4
"""A gap, as a share of the averages, that counts as optimal: rates are not known better."""
SEARCH_SHARE: Final = 0.6
"""Share of the time for the local search; the rest is for bounds and for HiGHS."""


def partition(problem: SubclusterProblem, deadline: Deadline) -> Partition | NoPartition:
    """The most balanced partition that is found in time. Raises BadSubclustersError for invalid input.

    If the problem is small enough for HiGHS and time suffices, it is optimal within CLOSE_ENOUGH.
    """
    check(problem)
    refused = _impossible(problem)
    if refused is not None:
        return refused
    where = descend(problem, deadline.share(SEARCH_SHARE), close_enough=CLOSE_ENOUGH)
    found = _partition(problem, where, lower_bound(problem, deadline))
    if found.balance.keeps_limits and (found.gap <= CLOSE_ENOUGH or _binaries(problem) > MAX_BINARIES):
        return found
    return _with_highs(problem, found, where, deadline)


def _with_highs(
    problem: SubclusterProblem, found: Partition, where: Sequence[int], deadline: Deadline
) -> Partition | NoPartition:
    """The better of the found partition and that of HiGHS, which starts from it if it keeps the limits."""
    feasible = found.balance.keeps_limits
    solved = solve_exactly(problem, where if feasible else None, deadline)
    bound = max(found.bound, solved.bound)
    if solved.where is not None:
        theirs = _partition(problem, solved.where, bound)
        if theirs.balance.keeps_limits and (not feasible or theirs.balance.objective < found.balance.objective):
            return theirs
    if feasible:
        return replace(found, bound=min(bound, found.balance.objective))
    return _nothing_found(problem, proven=solved.infeasible, deadline=deadline)


def _partition(problem: SubclusterProblem, where: Sequence[int], bound: float) -> Partition:
    subcluster = _names(problem, where)
    balance = measure(problem, subcluster)
    return Partition(subcluster, balance, min(bound, balance.objective))


def _binaries(problem: SubclusterProblem) -> int:
    return len(problem.models) * problem.subclusters


def _impossible(problem: SubclusterProblem) -> NoPartition | None:
    """The refusal of a problem that sums and maxima show to be impossible."""
    largest = max(problem.models, key=lambda m: m.static_bytes + m.dynamic_bytes)
    if largest.static_bytes + largest.dynamic_bytes > problem.max_memory:
        return NoPartition(
            NoPartitionReason.MODEL_TOO_LARGE,
            f"Model {largest.name!r} needs {largest.static_bytes + largest.dynamic_bytes:.0f} bytes and the GPUs of a "
            f"sub-cluster have {problem.max_memory:.0f}: use GPUs with more memory, or partition the model.",
        )
    busiest = max(problem.models, key=lambda m: m.rate)
    if busiest.rate > problem.max_rate:
        return NoPartition(
            NoPartitionReason.MODEL_TOO_BUSY,
            f"Model {busiest.name!r} has {busiest.rate:g} requests/s and a sub-cluster can handle "
            f"{problem.max_rate:g}: raise max_rate, or split the model's load.",
        )
    rate = sum(m.rate for m in problem.models)
    memory = sum(m.static_bytes for m in problem.models) + max(m.dynamic_bytes for m in problem.models)
    for reason, what, amount, limit in (
        (NoPartitionReason.NOT_ENOUGH_RATE, "requests/s", rate, problem.max_rate),
        (NoPartitionReason.NOT_ENOUGH_MEMORY, "bytes of memory", memory, problem.max_memory),
    ):
        if amount > problem.subclusters * limit * (1 + ROUNDING):
            needed = ceil(amount / limit * (1 - ROUNDING))
            return NoPartition(
                reason,
                f"The models need {amount:g} {what} and {problem.subclusters} sub-clusters of {limit:g} have less: "
                f"at least {needed} sub-clusters are needed.",
                subclusters_needed=needed,
            )
    new = sum(m.load_cost for m in problem.models if problem.home(m) is None)
    if new > problem.max_change_cost * (1 + ROUNDING):
        return NoPartition(
            NoPartitionReason.CHANGE_TOO_COSTLY,
            f"Loading the models that are not loaded costs {new:g}, and max_change_cost is "
            f"{problem.max_change_cost:g}: raise it to {new:g} or more.",
        )
    return None


def _nothing_found(problem: SubclusterProblem, *, proven: bool, deadline: Deadline) -> NoPartition:
    """Why there is no partition; one second beyond the deadline searches with a free change cost."""
    free = replace(problem, max_change_cost=inf)
    if problem.max_change_cost < inf:
        moved = measure(free, _names(free, descend(free, Deadline.after(1.0, deadline.clock), close_enough=inf)))
        if moved.keeps_limits:
            known = "cannot" if proven else "were not found to"
            return NoPartition(
                NoPartitionReason.CHANGE_TOO_COSTLY,
                f"The models {known} fit the sub-clusters within a max_change_cost of {problem.max_change_cost:g}; "
                f"with {moved.change_cost:g} they do.",
            )
    if proven:
        return NoPartition(
            NoPartitionReason.INFEASIBLE,
            f"Proven: the models do not fit {problem.subclusters} sub-clusters, although their sums do: add one, or "
            "raise max_memory or max_rate.",
        )
    return NoPartition(
        NoPartitionReason.TIME_LIMIT,
        f"No partition into {problem.subclusters} sub-clusters was found in time, nor proven impossible: allow more "
        "time, add a sub-cluster, or raise max_memory or max_rate.",
    )


def _names(problem: SubclusterProblem, where: Sequence[int]) -> Mapping[str, int]:
    return {model.name: j for model, j in zip(problem.models, where, strict=True)}
