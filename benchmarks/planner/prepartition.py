"""Pre-partitioning of deep models: the shortest path compared with PPipe's filling of block after block (section 5.2).

Models are synthetic: stages of residual units, layer times log-normal, feature maps that shrink from stage to stage; a
cut inside a unit carries its input, too. Prints what crosses the cuts, and how even the blocks are on the class that
was cut for, and on one whose layer times differ by 30 %. The last line is a summary in JSON.

    python benchmarks/planner/prepartition.py [--blocks 10] [--seeds 20]
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import mean

from partita_planner.prepartitioning import prepartition

LAYERS = (50, 200, 613, 1200)
"""613 is the mean of PPipe's models."""
UNIT = 4
STAGES = 4


@dataclass(frozen=True)
class Model:
    """Times and cuts of layers."""

    costs: list[float]
    other_costs: list[float]
    cut_bytes: list[int | None]


def made_up(layers: int, seed: int) -> Model:
    """A residual network of so many layers."""
    rng = random.Random(f"{layers}/{seed}")
    costs = [rng.lognormvariate(0, 0.8) for _ in range(layers)]
    maps = [1_600_000 >> (STAGES * i // layers) for i in range(layers)]
    cuts: list[int | None] = [size * (1 if i % UNIT == UNIT - 1 else 2) for i, size in enumerate(maps)]
    return Model(costs, [cost * rng.lognormvariate(0, 0.3) for cost in costs], cuts)


def shortest_path(model: Model, blocks: int) -> Sequence[int]:
    """Partita's blocks for one class."""
    return prepartition(model.costs, model.cut_bytes, blocks)


def shortest_path_for_both(model: Model, blocks: int) -> Sequence[int]:
    """Partita's blocks for both classes."""
    return prepartition(model.costs, model.cut_bytes, blocks, other_costs=[model.other_costs])


def filling(model: Model, blocks: int) -> Sequence[int]:
    """PPipe's: layers join a block while that brings its time closer to an even share."""
    elapsed = [0.0, *accumulate(model.costs)]
    ends: list[int] = []
    for k in range(blocks - 1):
        begin = ends[-1] if ends else 0
        candidates = range(begin + 1, len(model.costs) - (blocks - 1 - k) + 1)
        ends.append(min(candidates, key=lambda e: abs(elapsed[e] - elapsed[begin] - elapsed[-1] / blocks)))
    return [*ends, len(model.costs)]


def shares(costs: Sequence[float], ends: Sequence[int]) -> list[float]:
    """Each block's time as a multiple of the even share."""
    return [sum(costs[a:b]) * len(ends) / sum(costs) for a, b in pairwise((0, *ends))]


METHODS: dict[str, Callable[[Model, int], Sequence[int]]] = {
    "shortest path": shortest_path,
    "shortest path, both classes": shortest_path_for_both,
    "filling (PPipe)": filling,
}


def measure(layers: int, blocks: int, seeds: int) -> dict[str, dict[str, float]]:
    """All methods on the same models; bytes as a multiple of the shortest path's."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
    for seed in range(seeds):
        model = made_up(layers, seed)
        for name, cut in METHODS.items():
            began = time.perf_counter()
            ends = cut(model, blocks)
            seconds = time.perf_counter() - began
            here, there = shares(model.costs, ends), shares(model.other_costs, ends)
            results[name].append(
                {
                    "bytes": sum(model.cut_bytes[e - 1] or 0 for e in ends[:-1]),
                    "largest_share": max(here),
                    "smallest_share": min(here),
                    "within_bounds": float(min(here) >= 0.5 and max(here) <= 1.5),
                    "within_bounds_on_other_class": float(min(there) >= 0.5 and max(there) <= 1.5),
                    "seconds": seconds,
                }
            )
    least = mean(row["bytes"] for row in results["shortest path"])
    means = {name: {key: mean(row[key] for row in rows) for key in rows[0]} for name, rows in results.items()}
    return {name: {**row, "bytes": row["bytes"] / least} for name, row in means.items()}


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=10, help="blocks of each model")
    parser.add_argument("--seeds", type=int, default=20, help="models of each size")
    arguments = parser.parse_args()
    print(f"{'layers':>6}  {'method':28}{'bytes':>7}{'largest':>9}{'smallest':>10}{'bounds':>8}{'other':>7}{'ms':>8}")
    summary: dict[str, dict[str, dict[str, float]]] = {}
    for layers in LAYERS:
        print(f"{layers} layers ...", file=sys.stderr)
        summary[str(layers)] = measure(layers, arguments.blocks, arguments.seeds)
        for name, row in summary[str(layers)].items():
            print(
                f"{layers:6}  {name:28}{row['bytes']:7.2f}{row['largest_share']:9.2f}{row['smallest_share']:10.2f}"
                f"{row['within_bounds']:8.0%}{row['within_bounds_on_other_class']:7.0%}{1e3 * row['seconds']:8.1f}",
                flush=True,
            )
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
