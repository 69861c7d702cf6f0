"""A system: a configuration with the plan of one strategy, served by the simulated data plane."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from benchmarks.planner.ppipe_reference import PLANS, Case, pool_of
from benchmarks.scheduling.goodput_cases.measure import Effort
from benchmarks.scheduling.goodput_cases.pooled import PROCESSES, scheduling_plan, spread_out
from benchmarks.scheduling.system_cases.configurations import Configuration

from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.template_search import Found
from partita_planner.solver.deadline import Deadline
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.load_search import goodput
from partita_runtime.simulation.reactive import simulate_reactive
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.streams import RequestStream, simulate_streams

BEYOND_PLAN = 1.1
"""The search for the goodput ends at this multiple of the planned throughput."""

DataPlane = Callable[..., dict[str, SimulationReport]]
RESERVED: DataPlane = simulate_streams
"""Partita's: paths are reserved for each batch."""
REACTIVE: DataPlane = simulate_reactive
"""Every pool batches by itself."""


@dataclass(frozen=True)
class System:
    """A plan with its GPUs on servers."""

    configuration: Configuration
    plan: SchedulingPlan
    placed: Sequence[WorkerPlacement]
    planned: float
    """The rate that the plan is for: each model's throughput is at least this times its weight."""

    def run(
        self, rate: float, process: str, seconds: float, seed: int, plane: DataPlane
    ) -> dict[str, SimulationReport]:
        """One simulation at a rate of all models; a report for each."""
        slos = self.configuration.slos
        streams = [
            RequestStream(model, PROCESSES[process](rate * weight, rate), slos[model] / 1000)
            for model, weight in self.configuration.weights.items()
        ]
        return plane(self.plan, streams, seconds, seed, placed=self.placed)

    def attainment(self, rate: float, process: str, effort: Effort, plane: DataPlane = RESERVED) -> float:
        """The share of the requests in time, of the model with the lowest, in the worst of the runs."""
        return min(
            report.attainment
            for seed in effort.seeds
            for report in self.run(rate, process, effort.seconds, seed, plane).values()
        )

    def goodput(self, process: str, effort: Effort, plane: DataPlane = RESERVED) -> float:
        """The highest rate at which 99 % of each model's requests are in time."""

        def attainment(rate: float) -> float:
            return self.attainment(rate, process, effort, plane)

        return goodput(attainment, BEYOND_PLAN * self.planned, precision=effort.precision)

    def utilization(self, rate: float, process: str, effort: Effort) -> Mapping[str, float]:
        """The busy share of all GPUs of each class at a rate."""
        report = next(iter(self.run(rate, process, effort.seconds, effort.seeds[0], RESERVED).values()))
        busy = dict.fromkeys(self.configuration.gpus, 0.0)
        for worker, (pool, divisor) in self._vgpus.items():
            busy[pool] += (1 - report.idle_by_worker[worker]) / divisor
        return {pool: busy[pool] / count for pool, count in self.configuration.gpus.items()}

    @cached_property
    def _vgpus(self) -> Mapping[str, tuple[str, int]]:
        """The class of each worker, and the divisor of its GPU."""
        stages = dict(self.plan.stages())
        return {p.worker: (stages[p.stage].pool, stages[p.stage].vgpu_divisor) for p in self.placed}


def planned(configuration: Configuration, strategy: str, margin: float, seconds: float) -> System | None:
    """The plan of a strategy that keeps this share of the SLO free; None if there is none."""
    slos = configuration.reference["slo_us"]
    wanted = {**configuration.reference, "slo_margin_us": [margin * slo for slo in slos]}
    profiles = {
        model: json.loads((configuration.profiles / f"{model}.json").read_text()) for model in configuration.slos
    }
    pools = {pool["gpu"]: pool_of(pool, wanted["bandwidth_gbps"]) for pool in wanted["pools"]}
    found = PLANS[strategy](Case(wanted, profiles, pools, Deadline.after(seconds, time.perf_counter)))
    if not isinstance(found, Found) or found.value <= 0:
        return None
    reference = {**wanted, "plan": described(found.deployments)}
    plan = scheduling_plan(reference, "Deferred", configuration.profiles)
    placed = spread_out(plan, wanted["pools"], on_gpus(plan, configuration.gpus))
    return System(configuration, plan, placed, found.value)


def on_gpus(plan: SchedulingPlan, gpus: Mapping[str, int]) -> list[WorkerPlacement]:
    """Put vGPUs on GPUs, of one size on each.

    PPipe's formulation also mixes sizes: it adds up fractions of GPUs. Where its plans need that, the GPUs with the
    fewest vGPUs are joined, even if one then holds a little more than it has.
    """
    stages = dict(plan.stages())
    by_size: dict[tuple[str, int], list[WorkerPlacement]] = {}
    for place in placements(plan):
        stage = stages[place.stage]
        by_size.setdefault((stage.pool, stage.vgpu_divisor), []).append(place)
    placed = []
    for pool, count in gpus.items():
        filled = [
            (Fraction(len(vgpus[at : at + divisor]), divisor), vgpus[at : at + divisor])
            for (name, divisor), vgpus in by_size.items()
            if name == pool
            for at in range(0, len(vgpus), divisor)
        ]
        while len(filled) > count:
            filled.sort(key=lambda gpu: gpu[0], reverse=True)
            (share, vgpus), (other, others) = filled.pop(), filled.pop()
            filled.append((share + other, vgpus + others))
        placed += [place._replace(gpu=f"{pool}-gpu-{n}") for n, (_, group) in enumerate(filled) for place in group]
    return placed


def described(deployments: ModuleDeployments) -> Sequence[Mapping[str, Any]]:
    """A plan in the form of `reference_plans.json`."""
    return [
        {
            "model": model,
            "pipelines": [
                {
                    "stages": [
                        {
                            "blocks": [stage.first, stage.end],
                            "gpu": stage.pool,
                            "vgpu_divisor": stage.divisor,
                            "batch": deployment.template.batch,
                            "gpus": replicas / stage.divisor,
                        }
                        for stage, replicas in zip(deployment.template.stages, deployment.replicas, strict=True)
                    ]
                }
                for deployment in group
            ],
        }
        for model, group in deployments.items()
    ]
