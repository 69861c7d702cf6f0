"""A rising load on an elastic pool, whose nodes take minutes: the look-ahead that covers this time, and others.

Side by side, on the same arrivals: the look-ahead alone, the look-ahead extended by the time of a node (what Partita
does), the look-ahead with accelerators that always stand by, both together, and as many accelerators as the peak needs.
Each load is served with a small and a large session, several seeds, and nodes that take several times as long. Figures
are medians over the seeds: the share of requests that were lost, and accelerator-hours from the request for a node to
its end. `operator_cases/elastic_pool.py` describes the simulation. The last line is a summary in JSON.

    python benchmarks/operator/node_time.py [--node-seconds 60 240 600] [--seeds 7] [--quick]
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.operator.operator_cases.elastic_pool import REPLICA_RATE, Outcome, Variant, needed_replicas, run

from partita_runtime.load.azure_functions import synthetic_schedules

Rates = NDArray[np.float64]
"""Requests per second, one for each second."""
HOUR: Final = 3600
SIZES: Final = {"small": 2.0, "large": 20.0}
"""Replicas that the load of 1 keeps busy."""
MOST_SHARE: Final = 10
"""Accelerators that the pool may have, as a multiple of the size."""
VARIANTS: Final = {
    "look-ahead": Variant(),
    "extended": Variant(extended=True),
    "1 spare": Variant(spare=1),
    "2 spares": Variant(spare=2),
    "4 spares": Variant(spare=4),
    "extended, 1 spare": Variant(extended=True, spare=1),
}


def ramp(minutes: float) -> Callable[[np.random.Generator], Rates]:
    """From 1 to 3 in so many minutes, and back after an hour."""

    def rates(_: np.random.Generator) -> Rates:
        corners = np.cumsum([0, HOUR / 2, minutes * 60, HOUR, minutes * 60, HOUR / 2])
        return np.interp(np.arange(corners[-1]), corners, [1, 1, 3, 3, 1, 1])

    return rates


def day(generator: np.random.Generator) -> Rates:
    """A day that varies by 60 %, and by 5 % from second to second."""
    seconds = np.arange(24 * HOUR)
    return (1 - 0.6 * np.sin(2 * np.pi * seconds / seconds.size)) * generator.lognormal(0, 0.05, seconds.size)


def wandering(generator: np.random.Generator) -> Rates:
    """A rate whose logarithm wanders around its mean, by 0.4, and forgets in half an hour; for six hours."""
    kept = np.exp(-1 / (HOUR / 2))
    steps = generator.normal(0, 0.4 * np.sqrt(1 - kept**2), 6 * HOUR)
    logarithms = [0.0]
    for step in steps.tolist():
        logarithms.append(kept * logarithms[-1] + step)
    return np.exp(np.asarray(logarithms[1:]))


def functions(generator: np.random.Generator) -> Rates:
    """A day like that of one of Azure's functions: each minute differs by 0.25 from the daily cycle."""
    (schedule,) = synthetic_schedules(1, 1.0, 24 * 60, generator, burst_spread=0.25)
    return np.repeat(schedule.rates, 60)


LOADS: Final[dict[str, Callable[[np.random.Generator], Rates]]] = {
    "steady": lambda _: np.ones(4 * HOUR),
    "jump": ramp(1 / 60),
    "ramp of 5 min": ramp(5),
    "ramp of 20 min": ramp(20),
    "ramp of 60 min": ramp(60),
    "day": day,
    "wandering": wandering,
    "functions": functions,
}


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node-seconds", type=int, nargs="+", default=[60, 240, 600], help="time until a node comes")
    parser.add_argument("--seeds", type=int, default=7, help="runs of each")
    parser.add_argument("--quick", action="store_true", help="240 s and three seeds")
    options = parser.parse_args()
    node_times, seeds = ([240], 3) if options.quick else (options.node_seconds, options.seeds)
    summary = []
    for node_seconds in node_times:
        for size in SIZES:
            print(f"\n{size}, nodes take {node_seconds} s: share lost, accelerator-hours")
            print(f"{'':16}" + "".join(f"{name:>20}" for name in (*VARIANTS, "for the peak")), flush=True)
            for load in LOADS:
                row = measure(load, size, node_seconds, seeds)
                print(f"{load:16}" + "".join(f"{bad:>11.2%} {hours:8.1f}" for bad, hours in row.values()), flush=True)
                figures = {name: {"bad_rate": bad, "hours": hours} for name, (bad, hours) in row.items()}
                summary.append({"load": load, "size": size, "node_seconds": node_seconds, **figures})
    print(json.dumps({"node_time": summary}))


def measure(load: str, size: str, node_seconds: int, seeds: int) -> dict[str, tuple[float, float]]:
    """Bad rate and accelerator-hours of each variant, medians over the seeds."""
    scale = SIZES[size] * REPLICA_RATE
    found: dict[str, list[Outcome]] = {}
    for seed in range(seeds):
        rates = scale * LOADS[load](np.random.default_rng(seed))
        most = round(MOST_SHARE * SIZES[size])
        for name, variant in {**VARIANTS, "for the peak": Variant(fixed=needed_replicas(float(rates.max())))}.items():
            found.setdefault(name, []).append(run(rates, variant, node_seconds, most, seed))
    return {
        name: (round(median(o.bad_rate for o in outcomes), 6), round(median(o.accelerator_hours for o in outcomes), 2))
        for name, outcomes in found.items()
    }


if __name__ == "__main__":
    main()
