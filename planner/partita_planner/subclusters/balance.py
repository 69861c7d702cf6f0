"""Measures a partition, model by model. Shares no code with the search."""

from collections.abc import Mapping, Sequence

from partita_planner.solver.tolerances import ROUNDING
from partita_planner.subclusters.problem import Balance, SubclusterProblem


def measure(problem: SubclusterProblem, subcluster: Mapping[str, int]) -> Balance:
    """The objective, the imbalance factors, and whether the limits are kept, of any assignment of all models."""
    count = problem.subclusters
    rates, statics, dynamics, change = [0.0] * count, [0.0] * count, [0.0] * count, 0.0
    for model in problem.models:
        j, home = subcluster[model.name], problem.home(model)
        rates[j] += model.rate
        statics[j] += model.static_bytes
        dynamics[j] = max(dynamics[j], model.dynamic_bytes)
        if j != home:
            change += model.load_cost if home is None else 2 * model.load_cost
    memory = [static + dynamic for static, dynamic in zip(statics, dynamics, strict=True)]
    delta_rate, delta_memory = _largest_distance(rates), _largest_distance(statics)
    return Balance(
        delta_rate=delta_rate,
        delta_memory=delta_memory,
        objective=delta_rate + problem.memory_weight * delta_memory,
        rate_imbalance=_imbalance_factor(rates),
        memory_imbalance=_imbalance_factor(statics),
        change_cost=change,
        keeps_limits=_within(max(memory), problem.max_memory)
        and _within(max(rates), problem.max_rate)
        and _within(change, problem.max_change_cost),
    )


def _largest_distance(loads: Sequence[float]) -> float:
    average = sum(loads) / len(loads)
    return max(abs(load - average) for load in loads) / average if average else 0.0


def _imbalance_factor(loads: Sequence[float]) -> float:
    average = sum(loads) / len(loads)
    return (max(loads) - min(loads)) / average if average else 0.0


def _within(amount: float, limit: float) -> bool:
    return amount <= limit * (1 + ROUNDING)
