"""Sub-cluster partitioning as in Symphony's appendix A.2: 800 models, 20 sub-clusters, 10 s.

Models are random variants of a zoo; request rates are exponential. Compared are Partita, the paper's random solver
(draw, check, keep the best) and HiGHS alone on the paper's MILP, each with the same time. Then the rates change
(log-normal, 0.5), and 5 % of the models may move: Partita, and leaving everything where it is. The imbalance factor is
(max - min) / avg. The last line is a summary in JSON.

    python benchmarks/planner/subclusters.py [--seconds 10] [--seeds 3] [--models 800] [--subclusters 20]
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import mean

import numpy as np

from partita_planner.solver.deadline import Deadline
from partita_planner.subclusters.balance import measure
from partita_planner.subclusters.balanced_partition import partition
from partita_planner.subclusters.formulation import solve_exactly
from partita_planner.subclusters.problem import Balance, Partition, ServedModel, SubclusterProblem

ZOO_MEGABYTES = (14, 16, 23, 29, 33, 34, 57, 80, 88, 92, 98, 98, 171, 215, 232, 528)
"""Weights of Keras' applications, from MobileNetV2 to VGG16."""
MAY_MOVE = 0.05
"""Share of the models that may move when rates have changed."""
MEGABYTE = 1e6
HEADROOM = 1.75
"""What a sub-cluster can take, as a multiple of the average; with much less the random solver finds no partition."""


def made_up(models: int, subclusters: int, seed: int) -> SubclusterProblem:
    """Random variants of the zoo."""
    rng = np.random.default_rng(seed)
    rates = rng.exponential(100, models)
    static = rng.choice(ZOO_MEGABYTES, models) * rng.uniform(0.9, 1.1, models) * MEGABYTE
    dynamic = rng.uniform(0.1, 0.5, models) * static
    served = tuple(ServedModel(f"m{i}", float(rates[i]), float(static[i]), float(dynamic[i])) for i in range(models))
    memory = HEADROOM * float(static.sum() / subclusters + dynamic.max())
    return SubclusterProblem(
        served, subclusters, max_memory=memory, max_rate=HEADROOM * float(rates.sum()) / subclusters
    )


def changed(problem: SubclusterProblem, found: Partition, seed: int) -> SubclusterProblem:
    """The same models later: other rates, and a bound on what may move."""
    rng = np.random.default_rng(1000 + seed)
    factors = rng.lognormal(0, 0.5, len(problem.models))
    models = tuple(replace(m, rate=m.rate * float(f)) for m, f in zip(problem.models, factors, strict=True))
    most = HEADROOM * max(1.0, measure(replace(problem, models=models), found.subcluster).delta_rate + 1)
    average = sum(m.rate for m in models) / problem.subclusters
    return replace(
        problem,
        models=models,
        max_rate=most * average,
        current=found.subcluster,
        max_change_cost=2 * MAY_MOVE * len(models),
    )


def by_partita(problem: SubclusterProblem, seconds: float) -> tuple[Balance | None, float]:
    """Partita's partition, and its bound."""
    found = partition(problem, Deadline.after(seconds, time.perf_counter))
    return (found.balance, found.bound) if isinstance(found, Partition) else (None, 0.0)


def by_chance(problem: SubclusterProblem, seconds: float) -> tuple[Balance | None, float]:
    """The paper's random solver."""
    rng = np.random.default_rng(0)
    deadline = Deadline.after(seconds, time.perf_counter)
    best: Balance | None = None
    while not deadline.passed:
        balance = measure(problem, _named(problem, rng.integers(problem.subclusters, size=len(problem.models))))
        if balance.keeps_limits and (best is None or balance.objective < best.objective):
            best = balance
    return best, 0.0


def by_highs(problem: SubclusterProblem, seconds: float) -> tuple[Balance | None, float]:
    """HiGHS without a start."""
    solved = solve_exactly(problem, None, Deadline.after(seconds, time.perf_counter))
    return (measure(problem, _named(problem, solved.where)) if solved.where else None), solved.bound


def as_it_was(problem: SubclusterProblem, seconds: float) -> tuple[Balance | None, float]:  # noqa: ARG001
    """The current partition."""
    return measure(problem, problem.current), 0.0


Method = Callable[[SubclusterProblem, float], tuple[Balance | None, float]]
AT_FIRST: dict[str, Method] = {"Partita": by_partita, "random solver": by_chance, "HiGHS alone": by_highs}
LATER: dict[str, Method] = {"Partita, bounded change": by_partita, "no change": as_it_was}


def _named(problem: SubclusterProblem, where: Sequence[int]) -> dict[str, int]:
    return {model.name: int(j) for model, j in zip(problem.models, where, strict=True)}


def run(name: str, method: Method, problem: SubclusterProblem, seconds: float) -> dict[str, float | None]:
    """One method on one problem."""
    print(f"{name} ...", file=sys.stderr)
    began = time.perf_counter()
    balance, bound = method(problem, seconds)
    took = time.perf_counter() - began
    return {
        "rate_imbalance": balance.rate_imbalance if balance else None,
        "memory_imbalance": balance.memory_imbalance if balance else None,
        "objective": balance.objective if balance else None,
        "bound": bound,
        "change_cost": balance.change_cost if balance else None,
        "seconds": took,
    }


def main() -> None:
    """Compare on all seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="time of every solver")
    parser.add_argument("--seeds", type=int, default=3, help="problems")
    parser.add_argument("--models", type=int, default=800, help="models in each")
    parser.add_argument("--subclusters", type=int, default=20, help="sub-clusters")
    arguments = parser.parse_args()
    results: dict[str, list[dict[str, float | None]]] = {name: [] for name in (*AT_FIRST, *LATER)}
    for seed in range(arguments.seeds):
        problem = made_up(arguments.models, arguments.subclusters, seed)
        for name, method in AT_FIRST.items():
            results[name].append(run(name, method, problem, arguments.seconds))
        found = partition(problem, Deadline.after(arguments.seconds, time.perf_counter))
        assert isinstance(found, Partition), found
        later = changed(problem, found, seed)
        for name, method in LATER.items():
            results[name].append(run(name, method, later, arguments.seconds))
    summary = {name: _means(rows) for name, rows in results.items()}
    print(f"{'':26}{'rate':>10}{'memory':>10}{'objective':>11}{'bound':>9}{'moves cost':>12}{'seconds':>9}")
    for name, row in summary.items():
        print(
            f"{name:26}{_shown(row['rate_imbalance'], 10)}{_shown(row['memory_imbalance'], 10)}"
            f"{_shown(row['objective'], 11)}{_shown(row['bound'], 9)}{_shown(row['change_cost'], 12)}"
            f"{_shown(row['seconds'], 9)}"
        )
    print(json.dumps(summary))


def _means(rows: Sequence[dict[str, float | None]]) -> dict[str, float | None]:
    """Means over the problems that were solved; None if none was."""
    columns = {key: [value for row in rows if (value := row[key]) is not None] for key in rows[0]}
    return {key: mean(values) if values else None for key, values in columns.items()}


def _shown(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>{width}}"


if __name__ == "__main__":
    main()
