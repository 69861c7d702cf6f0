"""Pooled pipelines on 100 GPUs, by PPipe's own plans (PPipe, sections 7.2 and 7.4)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from benchmarks.scheduling.goodput_cases.measure import BOUND, TARGET, Effort, Row, say

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.load.arrivals import Times
from partita_runtime.load.azure_functions import synthetic_schedules
from partita_runtime.scheduling.events import StageRef
from partita_runtime.scheduling.plan import ScheduledModule, ScheduledPipeline, ScheduledStage, SchedulingPlan
from partita_runtime.simulation.arrivals import Arrivals, arrivals_at
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.load_search import load_factor
from partita_runtime.simulation.reactive import simulate_reactive
from partita_runtime.simulation.streams import RequestStream, simulate_streams

PAPER = {
    ("Poisson", "Deferred"): "0.965",
    ("Azure-like", "Deferred"): "0.903 on the trace of 2021",
    ("Poisson", "reactive"): "0.71 on one of the four clusters",
}
BURSTY_SHAPE = 0.25
BURST_SPREAD = 0.25
"""Spread of the logarithm of a minute's rate; with more, PPipe's 0.9 is not possible (see `attainable`)."""
MINUTE_INVOCATIONS = 98
"""Mean rate of all functions of the Azure trace of 2021; PPipe accelerates it to the target rate."""
REACTIVE = "reactive"
POLICIES = ("Deferred", "Eager", REACTIVE, BOUND)


def azure_like(rate: float, total: float) -> Arrivals:
    """Minutes of different rates (log-normal), accelerated like a trace that is scaled to `total` of all models."""

    def arrivals(seconds: float, generator: np.random.Generator) -> Times:
        minute = MINUTE_INVOCATIONS / total
        (schedule,) = synthetic_schedules(
            1, rate, ceil(seconds / minute), generator, diurnal=0, burst_spread=BURST_SPREAD, step_s=minute
        )
        return arrivals_at(ArrivalProcess.POISSON, schedule)(seconds, generator)

    return arrivals


PROCESSES: Mapping[str, Callable[[float, float], Arrivals]] = {
    "Poisson": lambda rate, _: arrivals_at(ArrivalProcess.POISSON, rate),
    "Gamma": lambda rate, _: arrivals_at(ArrivalProcess.GAMMA, rate, BURSTY_SHAPE),
    "Azure-like": azure_like,
}
"""(requests per second of a model, of all models) -> its arrivals."""


def pooled(effort: Effort) -> Sequence[Row]:
    """The served share of PPipe's planned throughput, with its margin of 40 %."""
    if effort.data is None:
        say("pooled needs --data; left out")
        return []
    references = json.loads((effort.data / "ppipe" / "reference_plans.json").read_text())
    plans = [reference for reference in references if reference["trace"] == "maf19"][:: 3 if effort.quick else 1]
    rows = []
    for process in PROCESSES:
        for policy in POLICIES:
            factors = [_factor(reference, policy, process, effort) for reference in plans]
            coarse, fine = [factor for factor, _ in factors], [factor for _, factor in factors]
            figures = {"load_factor": round(mean(coarse), 3), "least": round(min(coarse), 2)}
            figures |= {"finely": round(mean(fine), 3), "least_finely": round(min(fine), 3)}
            paper = PAPER.get((process, policy), "")
            rows.append(Row(f"{len(plans)} plans, 100 GPUs, {process}", policy, figures, paper))
            say(f"  {process} {policy} {figures}")
    return rows


def _factor(reference: Mapping[str, Any], policy: str, process: str, effort: Effort) -> tuple[float, float]:
    """The mean over the models of the highest load factor with 99 % in time: in PPipe's steps of 0.05, and of 0.01."""
    assert effort.data is not None
    served_by = policy if policy in POLICIES[:2] else "Eager"
    plan = scheduling_plan(reference, served_by, effort.data / "ppipe" / "profiles")
    placed = spread_out(plan, reference["pools"])
    slos = dict(zip(reference["models"], reference["slo_us"], strict=True))
    rates = {planned["model"]: planned["throughput"] for planned in reference["plan"]}
    by_factor: dict[float, dict[str, float]] = {}

    def attained(name: str, factor: float) -> float:
        if factor not in by_factor:
            total = factor * sum(rates.values())
            arrivals = {model: PROCESSES[process](factor * rates[model], total) for model in rates}
            if policy == BOUND:
                by_factor[factor] = attainable(plan, arrivals, effort.seconds, effort.seeds[0])
            else:
                streams = [RequestStream(model, arrivals[model], slos[model] / 1000) for model in rates]
                simulate = simulate_reactive if policy == REACTIVE else simulate_streams
                reports = simulate(plan, streams, effort.seconds, effort.seeds[0], placed=placed)
                by_factor[factor] = {model: report.attainment for model, report in reports.items()}
        return by_factor[factor][name]

    coarse = {name: load_factor(lambda factor, name=name: attained(name, round(factor, 6)), 1.0) for name in rates}
    fine = [_refined(partial(attained, name), factor) for name, factor in coarse.items()]
    return mean(coarse.values()), mean(fine)


def _refined(attained: Callable[[float], float], carried: float) -> float:
    """The load factor in steps of 0.01, starting from the one in steps of 0.05."""
    steps = round(carried * 100)
    for step in range(steps + 1, min(steps + 5, 101)):
        if attained(step / 100) < TARGET:
            return (step - 1) / 100
    return min(steps + 4, 100) / 100


def spread_out(
    plan: SchedulingPlan, pools: Sequence[Mapping[str, Any]], placed: Sequence[WorkerPlacement] | None = None
) -> list[WorkerPlacement]:
    """Assign GPUs to servers of their class with a low load on the busiest link.

    In the order of what they send or receive at the planned throughput, each to the server whose links have least.
    By default, the vGPUs of each stage have GPUs of their own.
    """
    traffic = _traffic(plan)
    placed = placements(plan) if placed is None else placed
    sent: dict[str, float] = {}
    received: dict[str, float] = {}
    for place in placed:
        up, down = traffic[place.stage]
        sent[place.gpu] = sent.get(place.gpu, 0.0) + up
        received[place.gpu] = received.get(place.gpu, 0.0) + down
    sizes = {pool["gpu"]: pool["gpus_per_server"] for pool in pools}
    servers = {
        pool["gpu"]: [_Server(f"{pool['gpu']}-{n}") for n in range(ceil(pool["count"] / pool["gpus_per_server"]))]
        for pool in pools
    }
    nodes = {}
    for gpu in sorted(sent, key=lambda gpu: -max(sent[gpu], received[gpu])):
        pool, _, _ = gpu.rpartition("-gpu-")
        with_room = [server for server in servers[pool] if server.gpus < sizes[pool]]
        server = min(with_room, key=lambda server: server.load_with(sent[gpu], received[gpu]))
        server.gpus, server.up, server.down = server.gpus + 1, server.up + sent[gpu], server.down + received[gpu]
        nodes[gpu] = server.name
    return [place._replace(node=nodes[place.gpu]) for place in placed]


@dataclass
class _Server:
    name: str
    gpus: int = 0
    up: float = 0.0
    down: float = 0.0

    def load_with(self, up: float, down: float) -> tuple[float, float, int]:
        """(load of the busier link, load of both links, GPUs) with this additional traffic."""
        return max(self.up + up, self.down + down), self.up + up + self.down + down, self.gpus


def _traffic(plan: SchedulingPlan) -> Mapping[StageRef, tuple[float, float]]:
    """Bytes per second that one replica of each stage sends and receives, if its pipeline is busy."""
    traffic = {}
    for module in plan.modules:
        for pipeline in module.pipelines:
            rate = _throughput(pipeline)
            moved = [0, *(stage.output_bytes for stage in pipeline.stages[:-1]), 0]
            for k, stage in enumerate(pipeline.stages):
                ref = StageRef(module.name, pipeline.name, k)
                traffic[ref] = (rate * moved[k + 1] / stage.replicas, rate * moved[k] / stage.replicas)
    return traffic


def attainable(
    plan: SchedulingPlan, arrivals: Mapping[str, Arrivals], seconds: float, seed: int
) -> Mapping[str, float]:
    """An upper bound for all schedulers: each model's pipelines as one fluid that accepts or rejects requests.

    The fluid flows at what the scarcest stages carry in their best batches, and a request waits at most for what the
    shortest way of one request alone leaves of its deadline. The arrivals are those of `simulate_streams`.
    """
    seeds = np.random.SeedSequence(seed).spawn(2 + len(plan.modules))[1:-1]
    attained = {}
    for module, own in zip(plan.modules, seeds, strict=True):
        capacity = sum(_throughput(pipeline) for pipeline in module.pipelines)
        alone = min(sum(stage.latency_micros[0] for stage in p.stages) for p in module.pipelines)
        slack = (module.budget_micros - alone) / 1e6
        backlog, before, taken = 0.0, 0.0, 0
        times = arrivals[module.name](seconds, np.random.default_rng(own)).tolist()
        for time in times:
            backlog = max(0.0, backlog - (time - before))
            before = time
            if backlog <= slack:
                backlog += 1 / capacity
                taken += 1
        attained[module.name] = taken / max(1, len(times))
    return attained


def _throughput(pipeline: ScheduledPipeline) -> float:
    """Requests per second of its bottleneck stage with the best batch size for that stage."""
    return min(
        stage.replicas * max(1e6 * b / micros for b, micros in enumerate(stage.latency_micros, 1))
        for stage in pipeline.stages
    )


def scheduling_plan(reference: Mapping[str, Any], policy: str, profiles: Path) -> SchedulingPlan:
    """The plan of a configuration, with PPipe's published profiles."""
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
