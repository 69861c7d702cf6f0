"""Pooled pipelines on 100 GPUs, by PPipe's own plans (PPipe, sections 7.2 and 7.4)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.goodput_cases.measure import Effort, Row, say

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.placement import placements
from partita_runtime.simulation.reactive import simulate_reactive
from partita_runtime.simulation.search import load_factor
from partita_runtime.simulation.streams import Stream, simulate_streams

PAPER = {
    ("Poisson", "Deferred"): "0.965",
    ("Gamma", "Deferred"): "0.903 on bursty traces",
    ("Poisson", "reactive"): "0.71 on one of the four clusters",
}
BURSTY_SHAPE = 0.25
REACTIVE = "reactive"
POLICIES = ("Deferred", "Eager", REACTIVE)


def pooled(effort: Effort) -> Sequence[Row]:
    """The share of PPipe's planned throughput that is carried, at its margin of 40 %."""
    if effort.data is None:
        say("pooled needs --data; left out")
        return []
    references = json.loads((effort.data / "ppipe" / "reference_plans.json").read_text())
    plans = [reference for reference in references if reference["trace"] == "maf19"][:: 3 if effort.quick else 1]
    rows = []
    for process in (ArrivalProcess.POISSON, ArrivalProcess.GAMMA):
        for policy in POLICIES:
            factors = [_factor(reference, policy, process, effort) for reference in plans]
            figures = {"load_factor": round(mean(factors), 3), "least": round(min(factors), 2)}
            paper = PAPER.get((process.value, policy), "")
            rows.append(Row(f"{len(plans)} plans, 100 GPUs, {process.value}", policy, figures, paper))
            say(f"  {process.value} {policy} {figures}")
    return rows


def _factor(reference: Mapping[str, Any], policy: str, process: ArrivalProcess, effort: Effort) -> float:
    """The mean over the models of the highest load factor with 99 % in time, in steps of 0.05."""
    assert effort.data is not None
    plan = _plan(reference, "Eager" if policy == REACTIVE else policy, effort.data / "ppipe" / "profiles")
    per_node = {pool["gpu"]: pool["gpus_per_server"] for pool in reference["pools"]}
    placed = placements(plan, per_node)
    slos = dict(zip(reference["models"], reference["slo_us"], strict=True))
    rates = {planned["model"]: planned["throughput"] for planned in reference["plan"]}
    by_factor: dict[float, dict[str, float]] = {}

    def attained(name: str, factor: float) -> float:
        if factor not in by_factor:
            streams = [
                Stream(model, arrivals_at(process, factor * rates[model], BURSTY_SHAPE), slos[model] / 1000)
                for model in rates
            ]
            simulate = simulate_reactive if policy == REACTIVE else simulate_streams
            reports = simulate(plan, streams, effort.seconds, effort.seeds[0], placed=placed)
            by_factor[factor] = {model: report.attainment for model, report in reports.items()}
        return by_factor[factor][name]

    return mean(load_factor(lambda factor, name=name: attained(name, round(factor, 6)), 1.0) for name in rates)


def _plan(reference: Mapping[str, Any], policy: str, profiles: Path) -> SchedulingPlan:
    slos = dict(zip(reference["models"], reference["slo_us"], strict=True))
    modules = []
    for planned in reference["plan"]:
        profile = json.loads((profiles / f"{planned['model']}.json").read_text())
        pipelines = tuple(
            ScheduledPipeline(
                name=f"p{number}",
                batch_size=pipeline["stages"][0]["batch"],
                stages=tuple(_stage(stage, profile) for stage in pipeline["stages"]),
            )
            for number, pipeline in enumerate(planned["pipelines"])
        )
        budget = round(slos[planned["model"]])
        modules.append(
            ScheduledModule(name=planned["model"], budget_micros=budget, downstream_micros=0, pipelines=pipelines)
        )
    bandwidth = {pool["gpu"]: reference["bandwidth_gbps"] * 1e9 for pool in reference["pools"]}
    return SchedulingPlan(name="ppipe", policy=policy, bandwidth=bandwidth, modules=tuple(modules))


def _stage(stage: Mapping[str, Any], profile: Mapping[str, Any]) -> ScheduledStage:
    first, end = stage["blocks"]
    table = profile["latency"][stage["gpu"]][str(stage["vgpu_divisor"])]
    cuts = profile["cut_bytes"]
    return ScheduledStage(
        pool=stage["gpu"],
        first_block=first,
        end_block=end,
        vgpu_divisor=stage["vgpu_divisor"],
        replicas=round(stage["gpus"] * stage["vgpu_divisor"]),
        latency_micros=tuple(round(sum(row[b] for row in table[first:end])) for b in range(stage["batch"])),
        output_bytes=cuts[end - 1] if end <= len(cuts) else 0,
    )
