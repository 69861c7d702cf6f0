"""Compares the cost strategies on random workloads, in the setting of the Harpagon and Piccolo papers.

    python benchmarks/planner/cost_strategies.py [--workloads 1131] [--seed 1] [--dump FILE] [--ablations]
                                         [--rates 316 3162] [--slo 2.5 4] [--whole-gpus]

Five applications with one to five modules, batches of 1 to 32 on two types of GPU, as on Harpagon's cluster; two
machines may share a GPU ("v100/2"), except with --whole-gpus. Requests arrive at a rate between the two given (uniform
in its logarithm), half of it, or twice, at each module. The SLO is between the two multiples given of what the fastest
machines take. The papers' workloads are not published: these are drawn so that Harpagon with one option changed
(--ablations) costs about as much more as in its Figure 6.
`partita` minimises occupancy, the papers' cost, and `partita-allocated` the price of whole machines; both are exact.
Prints a line for each strategy, and a JSON summary as the last one. The dump holds a line for each workload, with every
strategy's answer, for other programs to check:

    latency    duration + batch / w on every machine, w being the rate sent to machines of equal or lower
               throughput-cost ratio, dummy requests included; the longest path keeps slo_ms
    rates      a module's allocations serve its rate and its dummy requests; none has more than its machines serve
    costs      occupancy: price * rate / throughput; allocated: price * machines
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log10
from pathlib import Path
from statistics import mean
from typing import Any, Final

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.heuristic import HardwareChoice, HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies
from partita_planner.configurations.schedule import WorkloadSchedule
from partita_planner.configurations.splitting import Criterion, GreedySplit, QuantizedSplit
from partita_planner.configurations.whole_machines import least_allocated
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule
from partita_planner.solver.deadline import NEVER
from partita_planner.strategies import STRATEGIES, harpagon, piccolo
from partita_planner.strategies.strategy import WorkloadSolver

SHAPES: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "caption": (),
    "face": ((0, 1),),
    "traffic": ((0, 1), (0, 2)),
    "pose": ((0, 1), (0, 2), (1, 3), (2, 3)),
    "actdet": ((0, 1), (1, 2), (1, 3), (2, 4), (3, 4)),
}
"""Edges between modules 0, 1, ...: one module, a chain, a fork, a diamond, and a diamond behind a chain."""
BATCHES: Final = (1, 2, 4, 8, 16, 32)
PRICES: Final = {"p100": 2.07, "v100": 3.06}
"""An hour, of the Azure machines with these GPUs."""
RATES: Final = (316.0, 3162.0)
SLOS: Final = (2.5, 4.0)
SAME: Final = 1e-6


@dataclass(frozen=True)
class Setting:
    """The distribution of the random workloads."""

    rates: tuple[float, float] = RATES
    """The least and the largest rate of an application, in requests per second."""
    slos: tuple[float, float] = SLOS
    """The least and the largest SLO, in multiples of the latency of the fastest machines."""
    machines: tuple[int, ...] = (1, 2)
    """How many machines may share a GPU."""


DEFAULT: Final = Setting()


def main() -> None:
    """Creates the workloads, runs every strategy, and prints a comparison."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--workloads", type=int, default=1131, help="how many (default: 1131, as in the paper)")
    arguments.add_argument("--seed", type=int, default=1, help="of the random workloads (default: 1)")
    arguments.add_argument("--dump", type=Path, help="file to write workloads and answers to, as JSON lines")
    arguments.add_argument("--ablations", action="store_true", help="also Harpagon and Piccolo with one switch changed")
    arguments.add_argument("--rates", type=float, nargs=2, default=RATES, help="requests per second, from and to")
    arguments.add_argument("--slo", type=float, nargs=2, default=SLOS, help="times the fastest machines, from and to")
    arguments.add_argument("--whole-gpus", action="store_true", help="no two machines may share a GPU")
    options = arguments.parse_args()
    setting = Setting(tuple(options.rates), tuple(options.slo), (1,) if options.whole_gpus else (1, 2))
    strategies = cost_strategies() | (ablations() if options.ablations else {})
    results = []
    for index, workload in enumerate(random_workloads(options.workloads, options.seed, setting), 1):
        results.append((workload, {name: timed(answer, workload) for name, answer in strategies.items()}))
        if index % 50 == 0:
            print(f"{index} of {options.workloads} workloads", file=sys.stderr, flush=True)
    if options.dump is not None:
        options.dump.write_text("".join(json.dumps(described(*result)) + "\n" for result in results))
    summary = {name: summarised(name, [answers for _, answers in results]) for name in strategies}
    print_table(summary)
    print(json.dumps({**vars(options), "dump": str(options.dump or ""), "strategies": summary}))


def cost_strategies() -> dict[str, WorkloadSolver]:
    """Every strategy that is defined in the papers' setting, by name."""
    named = {name: s.solve_workload for name, s in STRATEGIES.items() if s.solve_workload is not None}
    return named | {"partita-allocated": least_allocated}


def ablations() -> dict[str, WorkloadSolver]:
    """Harpagon and Piccolo with one option changed, by the papers' names."""
    full, forerunner = harpagon.OPTIONS, piccolo.OPTIONS
    split = GreedySplit(node_merger=True, cost_direct=3)

    def scheduling(options: HeuristicOptions, **changes: Any) -> HeuristicOptions:
        return replace(options, scheduling=replace(options.scheduling, **changes))

    changed = {
        "harp-2d": scheduling(full, dispatch=DispatchModel.ROUND_ROBIN),
        "harp-dt": scheduling(full, dispatch=DispatchModel.PER_GPU),
        "harp-1c": scheduling(full, max_configurations=1),
        "harp-2c": scheduling(full, max_configurations=2),
        "harp-nb": replace(full, batching=False),
        "harp-nhc": replace(full, hardware=HardwareChoice.CHEAPEST),
        "harp-nhe": replace(full, hardware=HardwareChoice.DEAREST),
        "harp-nd": scheduling(full, dummies=Dummies.NONE),
        "harp-0re": replace(full, reassign=0),
        "harp-1re": replace(full, reassign=1),
        "harp-tb": replace(full, split=GreedySplit(Criterion.THROUGHPUT)),
        "harp-q0.01": replace(full, split=QuantizedSplit(0.01)),
        "harp-q0.1": replace(full, split=QuantizedSplit(0.1)),
        "harp-nnm": replace(full, split=replace(split, node_merger=False)),
        "harp-ncd": replace(full, split=replace(split, cost_direct=0)),
        "picc-np": replace(forerunner, concurrency=False),
        "picc-nd": scheduling(forerunner, dummies=Dummies.NONE),
        "picc-0re": replace(forerunner, reassign=0),
        "picc-tb": replace(forerunner, split=GreedySplit(Criterion.THROUGHPUT, proportional=True)),
    }
    return {name: partial(solve_heuristically, options=options) for name, options in changed.items()}


def random_workloads(count: int, seed: int, setting: Setting = DEFAULT) -> Iterator[Workload]:
    """The same workloads for the same seed and setting."""
    dice = random.Random(seed)
    for index in range(count):
        edges = tuple(SHAPES.values())[index % len(SHAPES)]
        yield _random_workload(edges, dice, setting)


def _random_workload(edges: Sequence[tuple[int, int]], dice: random.Random, setting: Setting) -> Workload:
    """An application with an SLO in multiples of what its fastest machines take."""
    size = 1 + max((end for edge in edges for end in edge), default=0)
    rate = 10 ** dice.uniform(log10(setting.rates[0]), log10(setting.rates[1]))
    modules = tuple(
        WorkloadModule(f"m{i}", round(rate * dice.choice((0.5, 1.0, 1.0, 2.0)), 3), _random_profile(dice, setting))
        for i in range(size)
    )
    named = tuple((f"m{a}", f"m{b}") for a, b in edges)
    fastest = {m.name: min(c.duration for c in m.configurations) for m in modules}
    longest = max(sum(fastest[name] for name in p.modules) for p in Workload(modules, named, 1.0).paths)
    return Workload(modules, named, round(longest * dice.uniform(*setting.slos), 4))


def _random_profile(dice: random.Random, setting: Setting) -> tuple[Configuration, ...]:
    """Durations of alpha + beta * batch on each type of GPU."""
    beta, overhead = dice.uniform(0.01, 0.02), dice.uniform(0.6, 3.6)
    speed = {"p100": 1.0, "v100": dice.uniform(1.0, 1.8)}
    sharing = dice.uniform(1.3, 1.6)
    return tuple(
        Configuration(
            batch=batch,
            duration=round((overhead + batch) * beta / speed[gpu] * (sharing if machines > 1 else 1.0), 6),
            hardware=gpu if machines == 1 else f"{gpu}/{machines}",
            price=PRICES[gpu] / machines,
            concurrency=machines,
        )
        for gpu in PRICES
        for machines in setting.machines
        for batch in BATCHES
    )


@dataclass(frozen=True)
class Timed:
    """An answer and how long it took."""

    answer: WorkloadSchedule | None
    milliseconds: float


def timed(answer: WorkloadSolver, workload: Workload) -> Timed:
    """The answer to a workload, with the CPU time of the thread."""
    began = time.thread_time()
    found = answer(workload, NEVER)
    return Timed(found, 1000 * (time.thread_time() - began))


def described(workload: Workload, results: Mapping[str, Timed]) -> dict[str, Any]:
    """A workload and its answers as a line of the dump."""
    return {
        "slo_ms": 1000 * workload.slo,
        "modules": [
            {
                "name": module.name,
                "rate": module.rate,
                "configs": [
                    {"batch": c.batch, "duration_ms": 1000 * c.duration, "hardware": c.hardware, "price": c.price}
                    for c in module.configurations
                ],
            }
            for module in workload.modules
        ],
        "edges": [list(edge) for edge in workload.edges],
        "results": {name: _described(result) for name, result in results.items()},
    }


def _described(result: Timed) -> dict[str, Any]:
    if result.answer is None:
        return {"feasible": False, "milliseconds": result.milliseconds}
    schedules = result.answer.schedules
    return {
        "feasible": True,
        "cost_occupancy": result.answer.occupancy,
        "cost_allocated": result.answer.allocated,
        "milliseconds": result.milliseconds,
        "budgets_ms": {name: 1000 * s.latency for name, s in schedules.items()},
        "allocations": {
            name: [
                {
                    "batch": a.configuration.batch,
                    "hardware": a.configuration.hardware,
                    "machines": a.machines,
                    "rate": a.rate,
                }
                for a in s.allocations
            ]
            for name, s in schedules.items()
        },
        "dummy": {name: s.dummy for name, s in schedules.items()},
    }


def summarised(name: str, rows: Sequence[Mapping[str, Timed]]) -> dict[str, float]:
    """A strategy's costs over those of `harpagon`, how often it is optimal in each cost model, and its time."""
    pairs = [(r[name].answer, r["harpagon"].answer, r["partita"].answer, r["partita-allocated"].answer) for r in rows]
    ratios = [own.occupancy / base.occupancy for own, base, _, _ in pairs if own is not None and base is not None]
    papers = [
        (own.occupancy, r["optimal"].answer.occupancy)
        for r in rows
        if (own := r[name].answer) is not None and r["optimal"].answer is not None
    ]
    times = sorted(r[name].milliseconds for r in rows)
    return {
        "feasible": mean(own is not None for own, _, _, _ in pairs),
        "over_harpagon_mean": mean(ratios),
        "over_harpagon_max": max(ratios),
        "over_partita_mean": mean(own.occupancy / best.occupancy for own, _, best, _ in pairs if own and best),
        "over_partita_allocated_mean": mean(
            own.allocated / best.allocated for own, _, _, best in pairs if own and best
        ),
        "matches_papers_optimum": sum(own <= best * (1 + SAME) for own, best in papers) / len(rows),
        "optimal_occupancy": mean(_as_cheap(own, best, "occupancy") for own, _, best, _ in pairs),
        "optimal_allocated": mean(_as_cheap(own, best, "allocated") for own, _, _, best in pairs),
        "ms_median": times[len(times) // 2],
        "ms_p99": times[int(0.99 * (len(times) - 1))],
    }


def _as_cheap(own: WorkloadSchedule | None, best: WorkloadSchedule | None, cost: str) -> bool:
    return own is not None and best is not None and getattr(own, cost) <= getattr(best, cost) * (1 + SAME)


def print_table(summary: Mapping[str, Mapping[str, float]]) -> None:
    """One line for each strategy."""
    print(
        f"{'':18} {'feasible':>8} {'/harpagon':>9} {'max':>6} {'/partita':>8} {'/p.-alloc.':>10} "
        f"{'=optimal':>8} {'best occ.':>9} {'best alloc.':>11} {'ms p50':>8} {'ms p99':>8}"
    )
    for name, row in summary.items():
        print(
            f"{name:18} {row['feasible']:8.1%} {row['over_harpagon_mean']:9.3f} {row['over_harpagon_max']:6.2f} "
            f"{row['over_partita_mean']:8.3f} {row['over_partita_allocated_mean']:10.3f} "
            f"{row['matches_papers_optimum']:8.1%} {row['optimal_occupancy']:9.1%} {row['optimal_allocated']:11.1%} "
            f"{row['ms_median']:8.1f} {row['ms_p99']:8.1f}"
        )


if __name__ == "__main__":
    main()
