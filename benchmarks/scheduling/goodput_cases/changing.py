"""GPUs that follow a changing load with the autoscaler (Symphony, section 5.7, Figure 15)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from benchmarks.scheduling.goodput_cases.measure import Effort, Model, Row, read_models, say

from partita_api.inferencesession import ArrivalProcess
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.load.arrivals import RateSchedule
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.scaling import Scaling
from partita_runtime.simulation.streams import RequestStream, simulate_streams

MODELS = 24
DAY_SECONDS = 300.0
"""The run: one day, from a mean load down, up and back again."""
STEP_SECONDS = 1.0
MEAN_SHARE = 0.45
"""Share of the GPUs that the mean load needs with full batches."""
SWING = 0.6
SHIFT = 0.1
"""The largest phase difference between models, as a share of a day."""
SPREAD = 0.05
"""Spread of the rate from second to second (log-normal)."""
POPULARITY = 0.5
"""Exponent of Zipf's law, by which GPUs are needed."""
SETTINGS = Autoscaling.model_validate(
    {"windowSeconds": 5, "coolDownSeconds": 10, "lookAheadSeconds": 20, "idleFractionThreshold": "30%"}
)
START_UP_SECONDS = 5.0


def changing_load(effort: Effort) -> Sequence[Row]:
    """24 models on at most 512 GPUs (--quick: 96) during a day of five minutes, each model on its own GPUs."""
    if effort.data is None:
        say("changing-load needs --data; left out")
        return []
    gpus = 96 if effort.quick else 512
    models = _spread(read_models(effort.data, "1080Ti"))
    schedules = _schedules(models, gpus, np.random.default_rng(effort.seeds[0]))
    needed = _needed(models, schedules, gpus)
    rows = []
    for policy, scaled in (("Deferred", True), ("Eager", True), ("Deferred", False)):
        replicas = _replicas(models, schedules, gpus, 0 if scaled else None)
        reports = _run(models, replicas, schedules, gpus if scaled else None, policy, effort.seeds[0])
        figures = _figures(reports, sum(replicas.values()))
        subject = policy if scaled else f"{policy}, for its peak"
        paper = "GPUs follow the load, low bad rate" if scaled and policy == "Deferred" else ""
        case = f"{MODELS} models, at most {gpus} GPUs"
        rows.append(Row(case, subject, {**figures, "needed": round(needed, 1)}, paper))
        say(f"  {subject} {figures}")
    return rows


def _spread(models: Sequence[Model]) -> list[Model]:
    """Models of all batching effects, with names as sessions may have them."""
    by_effect = sorted(models, key=lambda model: model.beta_ms / model.alpha_ms)
    chosen = [by_effect[round(at)] for at in np.linspace(0, len(by_effect) - 1, MODELS)]
    return [replace(model, name=model.name.lower()) for model in chosen]


def _per_gpu(model: Model, gpus: int) -> float:
    """Requests per second of one GPU with full batches, if the model has this number of GPUs."""
    batch = model.staggered_batch(gpus)
    return batch * 1000 / model.latency_ms(batch)


def _fair(gpus: int) -> int:
    """The approximate number of GPUs of one model."""
    return max(1, gpus // MODELS)


def _schedules(models: Sequence[Model], gpus: int, generator: np.random.Generator) -> list[RateSchedule]:
    seconds = np.arange(0, DAY_SECONDS, STEP_SECONDS)
    shares = np.arange(1, len(models) + 1) ** -POPULARITY
    shares = generator.permutation(shares / shares.sum())
    schedules = []
    for model, share in zip(models, shares, strict=True):
        hours = seconds / DAY_SECONDS + generator.uniform(-SHIFT, SHIFT)
        swing = 1 - SWING * np.sin(2 * np.pi * hours)
        noise = generator.lognormal(-(SPREAD**2) / 2, SPREAD, seconds.size)
        mean_rate = MEAN_SHARE * gpus * share * _per_gpu(model, _fair(gpus))
        schedules.append(RateSchedule(tuple(seconds.tolist()), tuple((mean_rate * swing * noise).tolist())))
    return schedules


def _needed(models: Sequence[Model], schedules: Sequence[RateSchedule], gpus: int) -> float:
    """GPUs that the load would keep busy with full batches, on average."""
    return sum(
        float(np.mean(schedule.rates)) / _per_gpu(model, _fair(gpus))
        for model, schedule in zip(models, schedules, strict=True)
    )


def _replicas(
    models: Sequence[Model], schedules: Sequence[RateSchedule], gpus: int, at_second: int | None
) -> dict[str, int]:
    """GPUs of each model for its rate then, or for its highest, with the idle share that the autoscaler leaves."""
    kept = 1 - SETTINGS.idle_fraction_threshold.fraction
    rates = [max(s.rates) if at_second is None else s.rate_at(at_second) for s in schedules]
    return {
        model.name: max(1, ceil(rate / _per_gpu(model, _fair(gpus)) / kept))
        for model, rate in zip(models, rates, strict=True)
    }


def _run(
    models: Sequence[Model],
    replicas: Mapping[str, int],
    schedules: Sequence[RateSchedule],
    gpus: int | None,
    policy: str,
    seed: int,
) -> dict[str, SimulationReport]:
    planned = tuple(m.planned(m.staggered_batch(replicas[m.name]), replicas[m.name]) for m in models)
    plan = SchedulingPlan(name="simulated", policy=policy, modules=planned)
    streams = [
        RequestStream(model.name, arrivals_at(ArrivalProcess.POISSON, schedule), model.slo_ms)
        for model, schedule in zip(models, schedules, strict=True)
    ]
    scaling = None if gpus is None else Scaling(_spec(plan), SETTINGS, {"gpu": gpus}, START_UP_SECONDS)
    return simulate_streams(plan, streams, DAY_SECONDS, seed, scaling=scaling)


def _figures(reports: Mapping[str, SimulationReport], fixed: int) -> dict[str, float]:
    any_report = next(iter(reports.values()))
    held = [sum(step.gpus.values()) for step in any_report.scaling] or [fixed]
    offered = sum(report.offered for report in reports.values())
    return {
        "mean_gpus": round(sum(any_report.mean_gpus.values()) or fixed, 1),
        "least_gpus": min(held),
        "most_gpus": max(held),
        "bad_rate": round(1 - sum(report.in_time for report in reports.values()) / offered, 5),
        "worst_model": round(1 - min(report.attainment for report in reports.values()), 5),
        "requests": offered,
    }


def _spec(plan: SchedulingPlan) -> PipelinePlanSpec:
    """The plan as the autoscaler reads it; fields that it does not use are 0."""
    nothing = {"value": "0", "bound": "0", "gap": "0", "seconds": "0"}
    return PipelinePlanSpec.model_validate(
        {
            "session": {"name": "changing-load"},
            "inputsDigest": "0",
            "solution": {"strategy": "partita", "objective": "Cost", **nothing},
            "cost": {"allocatedPerHour": "0", "occupancyPerHour": "0"},
            "throughput": "0",
            "modules": [
                {
                    "name": module.name,
                    "rate": "0",
                    "budgetMicros": module.budget_micros,
                    "pipelines": [
                        {
                            "name": pipeline.name,
                            "batchSize": pipeline.batch_size,
                            "throughput": "0",
                            "stages": [
                                {
                                    "blocks": {"first": stage.first_block, "end": stage.end_block},
                                    "pool": stage.pool,
                                    "vgpuDivisor": stage.vgpu_divisor,
                                    "replicas": stage.replicas,
                                    "latencyMicros": stage.latency_micros[-1],
                                }
                                for stage in pipeline.stages
                            ],
                        }
                        for pipeline in module.pipelines
                    ],
                }
                for module in plan.modules
            ],
        }
    )
