"""Compares throughput plans with PPipe's own, made by Gurobi on the same profiles.

    python benchmarks/planner/ppipe_reference.py --data DIR [--limit N] [--seconds S] [--only ID,ID] [--plans NAME,NAME]

DIR holds `reference_plans.json` and `profiles/<model>.json`. A model's latency is that of PPipe's artifact: stages,
transfers and `batch_build_factor * (batch - 1) / estimated_throughput` to build a batch, within the SLO less a margin.
Every configuration is planned in several ways:

    strict           stages own whole GPUs, as many stages as the reference has
    pooled           stages own vGPUs, as many stages as the reference has
    partita          pooled, with three stages; it starts from the better of "pooled" and whole GPUs in three stages
    ppipe            PPipe's formulation (appendix A.2), as many stages as the reference has
    dart-r           chains of two GPUs, and whole models on what is left (PPipe, section 7.1)
    no-partitioning  whole models on whole GPUs

For each, the objective divided by Gurobi's, seconds of wall clock and of CPU, and the proven gap. Progress goes to
stderr, a table and at last a JSON summary to stdout.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf
from pathlib import Path
from statistics import mean
from typing import Any

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPoolSpec, Sharing, SharingMode
from partita_api.profile import Cut, Profile, ProfileRequest, VgpuLatency
from partita_api.session.module import ModelSource, TensorSpec
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found, NothingFound
from partita_planner.allocation.throughput import most_throughput, pooled
from partita_planner.problem import Pool
from partita_planner.session.latency import SECOND
from partita_planner.solver.deadline import Deadline
from partita_planner.strategies.dart_r import most_chained
from partita_planner.strategies.ppipe import most_published
from partita_planner.templates.enumeration import enumerate_templates
from partita_planner.templates.templates import TemplateLimits, module_classes

NEVER_MICROS = 1e9
MORE_STAGES = 3


@dataclass(frozen=True)
class Row:
    """One way to plan one configuration."""

    configuration: int
    plan: str
    ratio: float
    """Objective divided by that of PPipe's plan by Gurobi."""
    gap: float
    """Proven distance to the optimum of its kind, relative to the objective."""
    seconds: float
    cpu_seconds: float
    pipelines: int


def main() -> None:
    """Reads the data, plans every configuration, and prints how the plans compare."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, required=True, help="folder with reference_plans.json and profiles/")
    arguments.add_argument("--limit", type=int, help="only the first so many configurations")
    arguments.add_argument("--only", help="only the configurations with these numbers, from 0")
    arguments.add_argument("--plans", default=",".join(PLANS), help="only these ways to plan")
    arguments.add_argument("--seconds", type=float, default=9.0, help="time limit of one plan")
    options = arguments.parse_args()
    references = list(enumerate(json.loads((options.data / "reference_plans.json").read_text())))[: options.limit]
    if options.only:
        references = [references[int(number)] for number in options.only.split(",")]
    profiles = {path.stem: json.loads(path.read_text()) for path in sorted((options.data / "profiles").glob("*.json"))}
    plans = options.plans.split(",")
    rows = [
        compare(number, reference, profiles, plan, options.seconds)
        for number, reference in references
        for plan in plans
    ]
    by_number = dict(references)
    print_table(rows, by_number, plans)
    print(json.dumps(summary(rows, by_number, plans)))


def compare(
    number: int, reference: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]], plan: str, seconds: float
) -> Row:
    """Plan one configuration in one way."""
    print(f"planning configuration {number}: {plan}", file=sys.stderr, flush=True)
    pools = {p["gpu"]: pool_of(p, reference["bandwidth_gbps"]) for p in reference["pools"]}
    began, cpu = time.perf_counter(), time.process_time()
    case = Case(reference, profiles, pools, Deadline.after(seconds, time.perf_counter))
    found = PLANS[plan](case)
    value, gap = (found.value, found.bound / found.value - 1) if isinstance(found, Found) else (0.0, inf)
    return Row(
        configuration=number,
        plan=plan,
        ratio=value / reference["objective"]["ppipe_gurobi"],
        gap=gap,
        seconds=time.perf_counter() - began,
        cpu_seconds=time.process_time() - cpu,
        pipelines=_pipelines(found.deployments) if isinstance(found, Found) else 0,
    )


@dataclass(frozen=True)
class Case:
    """One configuration to plan."""

    reference: Mapping[str, Any]
    profiles: Mapping[str, Mapping[str, Any]]
    pools: Mapping[str, Pool]
    deadline: Deadline

    @property
    def whole(self) -> AvailableResources:
        """The pools, with whole GPUs."""
        return AvailableResources(self.pools, whole_gpus=True)

    def demands(self, **limits: Any) -> list[ModuleDemand]:
        """What every model weighs, with its templates."""
        return [
            _demand(self.reference, i, self.profiles[model], tuple(self.pools.values()), **limits)
            for i, model in enumerate(self.reference["models"])
        ]

    def strict(self, stages: int) -> Found | NothingFound:
        """Stages own whole GPUs."""
        return most_throughput(self.demands(max_stages=stages, whole_gpus=True), self.whole, self.deadline)

    def shared(self, stages: int, start: Found | NothingFound | None = None) -> Found | NothingFound:
        """Stages own vGPUs; the search starts from the better of `start` and the plan with whole GPUs."""
        plans = [plan for plan in (start, self.strict(stages)) if isinstance(plan, Found)]
        best = max(plans, key=lambda plan: plan.value, default=NothingFound(proven=False))
        demands = self.demands(max_stages=stages, whole_gpus=False)
        return pooled(best, demands, self.whole, self.deadline)

    def partita(self) -> Found | NothingFound:
        """Stages own vGPUs, and there are three."""
        stages = self.reference["max_stages"]
        if stages >= MORE_STAGES:
            return self.shared(stages)
        fewer = replace(self, deadline=self.deadline.share(0.5)).shared(stages)
        return self.shared(MORE_STAGES, fewer)

    def published(self, stages: int) -> Found | NothingFound:
        """PPipe's formulation."""
        demands = self.demands(max_stages=stages, whole_gpus=False)
        return most_published(demands, self.whole, self.deadline)

    def chained(self) -> Found | NothingFound:
        """DART-r."""
        return most_chained(self.demands(max_stages=2, whole_gpus=True, undivided=True), self.whole, self.deadline)

    def unpartitioned(self) -> Found | NothingFound:
        """Whole models on whole GPUs."""
        return most_throughput(self.demands(max_stages=1, whole_gpus=True, undivided=True), self.whole, self.deadline)


PLANS: Mapping[str, Callable[[Case], Found | NothingFound]] = {
    "strict": lambda case: case.strict(case.reference["max_stages"]),
    "pooled": lambda case: case.shared(case.reference["max_stages"]),
    "partita": lambda case: case.partita(),
    "ppipe": lambda case: case.published(case.reference["max_stages"]),
    "dart-r": lambda case: case.chained(),
    "no-partitioning": lambda case: case.unpartitioned(),
}


def print_table(rows: Sequence[Row], references: Mapping[int, Mapping[str, Any]], plans: Sequence[str]) -> None:
    """A line for each configuration: ratio and seconds of every plan."""
    print(f"{'':38}" + "".join(f"{plan:>18}" for plan in plans) + f"{'Gurobi':>10}")
    for number, reference in references.items():
        classes = "+".join(f"{p['count']}x{p['gpu']}" for p in reference["pools"])
        label = f"{number:2} {reference['trace']:9} {classes:14} {reference['max_stages']} stages"
        cells = [row for row in rows if row.configuration == number]
        print(
            f"{label:38}"
            + "".join(f"{row.ratio:10.4f}{row.seconds:6.2f} s" for row in cells)
            + f"{reference['gurobi']['seconds']:8.2f} s"
        )


def summary(rows: Sequence[Row], references: Mapping[int, Mapping[str, Any]], plans: Sequence[str]) -> dict[str, Any]:
    """Means and extremes by plan and by number of stages, and how the plans compare with the baselines."""
    value = {(row.configuration, row.plan): row.ratio for row in rows}
    told: dict[str, Any] = {"configurations": len(references)}
    for plan in plans:
        mine = [row for row in rows if row.plan == plan]
        told[plan] = {
            "ratio": _spread([row.ratio for row in mine]),
            "seconds": _spread([row.seconds for row in mine]),
            "cpu_seconds": _spread([row.cpu_seconds for row in mine]),
            "gap": _spread([row.gap for row in mine]),
        }
        for baseline in set(plans) & {"dart-r", "no-partitioning"} - {plan}:
            others = [value[n, plan] / value[n, baseline] for n in references if value[n, baseline]]
            told[plan][f"to {baseline}"] = _spread(others)
    told["gurobi_seconds"] = _spread([r["gurobi"]["seconds"] for r in references.values()])
    return told


def _spread(numbers: Sequence[float]) -> dict[str, float]:
    return {"mean": mean(numbers), "min": min(numbers), "max": max(numbers)}


def pool_of(described: Mapping[str, Any], gbps: float) -> Pool:
    """A pool as the reference data describes it."""
    sharing = Sharing(mode=SharingMode.MPS, max_divisor=described["max_vgpu_divisor"])
    spec = GPUPoolSpec(gpus_per_node=described["gpus_per_server"], bandwidth=Quantity(f"{gbps}G"), sharing=sharing)
    return Pool(described["gpu"], spec, described["count"])


def _demand(
    reference: Mapping[str, Any], index: int, data: Mapping[str, Any], pools: Sequence[Pool], **limited: Any
) -> ModuleDemand:
    """What one model weighs, and its templates under PPipe's latency model."""
    name = reference["models"][index]
    building = SECOND * reference["batch_build_factor"] / reference["estimated_throughput"][index]
    limits = TemplateLimits(
        budget_micros=floor(reference["slo_us"][index] - reference["slo_margin_us"][index]),
        collection=lambda batch: ceil(building * (batch - 1)),
        latency_counts=False,
        **limited,
    )
    classes = module_classes(name, pools, {(name, p.name): _profile(data, p.name) for p in pools}, fp16_cuts=False)
    return ModuleDemand(name, 1.0, reference["weights"][index], enumerate_templates(classes, limits).templates)


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


def _pipelines(deployments: ModuleDeployments) -> int:
    return sum(len(group) for group in deployments.values())


if __name__ == "__main__":
    main()
