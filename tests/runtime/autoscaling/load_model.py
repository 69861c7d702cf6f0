"""A load model for the autoscaler: plans of given stages, and Symphony's flat top (section 3.5).

Below its peak p a flat-top module is idle for (p - o) / p of the time and drops nothing. Above it, it is never idle and
drops (o - p) / o.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from partita_api.meta import ObjectMeta
from partita_api.pipelineplan import PipelinePlan
from partita_runtime.autoscaling.stages import StageTarget

StageShape = tuple[str, int, int, int]
"""(pool, vGPU divisor, replicas, microseconds of a batch)."""


@dataclass(frozen=True)
class StageSignals:
    """One stage over the last window."""

    module: str
    pipeline: str
    stage: int
    ready: int
    idle_fraction: float
    bad_rate: float


@dataclass(frozen=True)
class PlanSignals:
    """All stages of the current plan."""

    plan: str | None
    stages: tuple[StageSignals, ...]
    held: int = 0
    idle_seconds: float = 0.0


def plan_of(modules: Mapping[str, Mapping[str, Sequence[StageShape]]], batch_size: int = 10) -> PipelinePlan:
    """A plan of modules -> pipelines -> stages. The number of blocks of a stage is the number of earlier stages."""
    zero = {"value": "0", "bound": "0", "gap": "0", "seconds": "0"}
    return PipelinePlan.model_validate(
        {
            "metadata": ObjectMeta(name="plan-1", namespace="default"),
            "spec": {
                "session": {"name": "traffic"},
                "inputsDigest": "0",
                "solution": {"strategy": "partita", "objective": "Cost", **zero},
                "cost": {"allocatedPerHour": "0", "occupancyPerHour": "0"},
                "throughput": "0",
                "modules": [
                    {
                        "name": module,
                        "rate": "0",
                        "budgetMicros": 0,
                        "pipelines": [
                            {
                                "name": name,
                                "batchSize": batch_size,
                                "throughput": "0",
                                "stages": [
                                    {
                                        "blocks": {"first": at, "end": at + 1},
                                        "pool": pool,
                                        "vgpuDivisor": divisor,
                                        "replicas": replicas,
                                        "latencyMicros": micros,
                                    }
                                    for at, (pool, divisor, replicas, micros) in enumerate(stages)
                                ],
                            }
                            for name, stages in pipelines.items()
                        ],
                    }
                    for module, pipelines in modules.items()
                ],
            },
        }
    )


def capacities(plan: PipelinePlan, targets: Sequence[StageTarget]) -> dict[tuple[str, str], list[float]]:
    """Samples per second that each stage of each (module, pipeline) can serve."""
    replicas = {(t.module, t.pipeline, t.stage): t.replicas for t in targets}
    return {
        (module.name, pipeline.name): [
            replicas[module.name, pipeline.name, at] * pipeline.batch_size * 1e6 / stage.latency_micros
            for at, stage in enumerate(pipeline.stages)
        ]
        for module in plan.spec.modules
        for pipeline in module.pipelines
    }


def flat_top(plan: PipelinePlan, targets: Sequence[StageTarget], load: Mapping[str, float]) -> PlanSignals:
    """The measurements with these replicas under a constant load (samples per second, by module).

    The pipelines of a module are filled in the plan's order.
    """
    by_stage = capacities(plan, targets)
    stages = []
    for module in plan.spec.modules:
        left = load[module.name]
        served = {}
        for pipeline in module.pipelines:
            served[pipeline.name] = min(left, *by_stage[module.name, pipeline.name])
            left -= served[pipeline.name]
        bad_rate = left / load[module.name] if load[module.name] else 0.0
        for target in (t for t in targets if t.module == module.name):
            capacity = by_stage[target.module, target.pipeline][target.stage]
            stages.append(
                StageSignals(
                    module=target.module,
                    pipeline=target.pipeline,
                    stage=target.stage,
                    ready=target.replicas,
                    idle_fraction=1 - served[target.pipeline] / capacity,
                    bad_rate=bad_rate,
                )
            )
    return PlanSignals(plan=plan.metadata.name, stages=tuple(stages))
