"""Scale to zero: when a session gives all of its replicas back, and how many come up for the requests that wake it."""

from collections.abc import Mapping
from math import ceil

from partita_api.autoscaling import Autoscaling, AutoscalingMode, ScaleToZero
from partita_api.pipelineplan import PipelinePlan
from partita_runtime.autoscaling.stages import MeasuredPlan
from partita_runtime.scheduling.events import StageRef


def keeps_asleep(settings: Autoscaling) -> bool:
    """Whether a session that sleeps may go on to, by its settings of now."""
    return settings.mode is AutoscalingMode.ENABLED and settings.scale_to_zero is not None


def is_unused(zero: ScaleToZero, signals: MeasuredPlan, awake_seconds: float) -> bool:
    """Whether no request has come for long enough; the time in which replicas were coming up does not count."""
    return not signals.held and min(signals.idle_seconds, awake_seconds) >= zero.after_seconds


def replicas_for(
    held: int, planned: Mapping[StageRef, int], plan: PipelinePlan, slo_seconds: float
) -> dict[StageRef, int]:
    """As many replicas of each stage as answer `held` requests within the SLO; 1 at least, and at most as planned."""
    within_slo = float(plan.spec.throughput) * slo_seconds
    share = min(1.0, held / within_slo) if within_slo > 0 else 1.0
    return {ref: max(1, ceil(count * share)) for ref, count in planned.items()}


def room_missing(plan: PipelinePlan, free: Mapping[str, int]) -> str:
    """What the planned replicas need beyond what is free, in words; empty if they fit.

    It wakes with all that its plan was promised, or not at all: else two sessions could be promised the same.
    """
    short = [
        f"{gpus} accelerators of pool {pool}, of which {max(0, free.get(pool, 0))} are free"
        for pool, gpus in plan.spec.gpus().items()
        if gpus > free.get(pool, 0)
    ]
    return f"plan {plan.metadata.name} needs {', and '.join(short)}" if short else ""
