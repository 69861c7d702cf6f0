"""Compares throughput plans with PPipe's own, made by Gurobi on the same profiles.

    python benchmarks/ppipe_reference.py --data DIR [--limit N]

DIR holds `reference_plans.json` and `profiles/<model>.json`. A model's latency is that of PPipe's artifact: stages,
transfers and `batch_build_factor * (batch - 1) / estimated_throughput` to build a batch, within the SLO less a margin.
Prints a line for each configuration, and a JSON summary as the last one.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from math import ceil, floor
from pathlib import Path
from statistics import mean
from typing import Any

from partita_api.gpupool import GPUPoolSpec, Sharing, SharingMode
from partita_api.inferencesession import ModelSource, TensorSpec
from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.quantity import Quantity
from partita_planner.allocation import Demand, Deployments, Market
from partita_planner.deadline import Deadline
from partita_planner.latency import SECOND
from partita_planner.problem import Pool
from partita_planner.search import Found
from partita_planner.templates import TemplateLimits, enumerate_templates, module_classes
from partita_planner.throughput import most_throughput

TIME_LIMIT_SECONDS = 30.0
NEVER_MICROS = 1e9


def main() -> None:
    """Reads the data, plans every configuration, and prints how the plans compare."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True, help="folder with reference_plans.json and profiles/")
    arguments.add_argument("--limit", type=int, help="only the first so many configurations")
    options = arguments.parse_args()
    references = json.loads((options.data / "reference_plans.json").read_text())[: options.limit]
    profiles = {path.stem: json.loads(path.read_text()) for path in sorted((options.data / "profiles").glob("*.json"))}
    rows = [compare(reference, profiles) for reference in references]
    ratios = [row["ratio"] for row in rows]
    summary = {
        "configurations": len(rows),
        "ratio": {"mean": mean(ratios), "min": min(ratios), "max": max(ratios)},
        "seconds": {"mean": mean(r["seconds"] for r in rows), "max": max(r["seconds"] for r in rows)},
        "gurobi_seconds": {
            "mean": mean(r["gurobi_seconds"] for r in rows),
            "max": max(r["gurobi_seconds"] for r in rows),
        },
        "gap": {"mean": mean(r["gap"] for r in rows), "max": max(r["gap"] for r in rows)},
    }
    print(json.dumps(summary))


def compare(reference: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Plan one configuration and print its line."""
    began = time.perf_counter()
    pools = {p["gpu"]: _pool(p, reference["bandwidth_gbps"]) for p in reference["pools"]}
    demands = [
        _demand(reference, i, profiles[model], tuple(pools.values())) for i, model in enumerate(reference["models"])
    ]
    found = most_throughput(
        demands, Market(pools, whole_gpus=True), Deadline.after(TIME_LIMIT_SECONDS, time.perf_counter)
    )
    seconds = time.perf_counter() - began
    value, gap = (found.value, found.bound / found.value - 1) if isinstance(found, Found) else (0.0, 0.0)
    theirs = reference["objective"]["ppipe_gurobi"]
    row = {"ratio": value / theirs, "seconds": seconds, "gap": gap, "gurobi_seconds": reference["gurobi"]["seconds"]}
    classes = "+".join(f"{p['count']}x{p['gpu']}" for p in reference["pools"])
    print(
        f"{reference['trace']:9} {classes:14} {reference['max_stages']} stages  ours {value:9.2f}  Gurobi {theirs:9.2f}"
        f"  ratio {row['ratio']:.4f}  {seconds:5.2f} s (Gurobi {row['gurobi_seconds']:6.2f} s)  gap {gap:.5f}"
        f"  pipelines {_pipelines(found.deployments) if isinstance(found, Found) else 0}",
        flush=True,
    )
    return row


def _pool(described: Mapping[str, Any], gbps: float) -> Pool:
    sharing = Sharing(mode=SharingMode.MPS, max_divisor=described["max_vgpu_divisor"])
    spec = GPUPoolSpec(gpus_per_node=described["gpus_per_server"], bandwidth=Quantity(f"{gbps}G"), sharing=sharing)
    return Pool(described["gpu"], spec, described["count"])


def _demand(reference: Mapping[str, Any], index: int, data: Mapping[str, Any], pools: Sequence[Pool]) -> Demand:
    """What one model weighs, and its templates under PPipe's latency model."""
    name = reference["models"][index]
    building = SECOND * reference["batch_build_factor"] / reference["estimated_throughput"][index]
    limits = TemplateLimits(
        budget_micros=floor(reference["slo_us"][index] - reference["slo_margin_us"][index]),
        collection=lambda batch: ceil(building * (batch - 1)),
        max_stages=reference["max_stages"],
        whole_gpus=True,
        latency_counts=False,
    )
    classes = module_classes(name, pools, {(name, p.name): _profile(data, p.name) for p in pools}, fp16_cuts=False)
    return Demand(name, 1.0, reference["weights"][index], enumerate_templates(classes, limits))


def _profile(data: Mapping[str, Any], gpu: str) -> Profile:
    """PPipe's measurements as a Profile."""
    latency = data["latency"][gpu]
    sizes = tuple(range(1, len(latency["1"][0]) + 1))
    times = {int(v): tuple(tuple(_padded(row, len(sizes))) for row in rows) for v, rows in latency.items()}
    request = ProfileRequest(
        model=ModelSource(file=data["model"]),
        input=TensorSpec(shape=(1,)),
        blocks=len(data["cut_bytes"]) + 1,
        batch_sizes=sizes,
        pool=gpu,
    )
    return Profile(
        key=request.key,
        request=request,
        partition=data["model"],
        batch_sizes=sizes,
        latency=tuple(VgpuLatency(divisor=v, median_micros=rows) for v, rows in times.items()),
        cuts=tuple(Cut(bytes=size) for size in data["cut_bytes"]),
    )


def _padded(row: Sequence[float], length: int) -> list[float]:
    """`row` with a time beyond every SLO for batches that were not measured on a small vGPU."""
    return [*row, *[NEVER_MICROS] * (length - len(row))]


def _pipelines(deployments: Deployments) -> int:
    return sum(len(group) for group in deployments.values())


if __name__ == "__main__":
    main()
