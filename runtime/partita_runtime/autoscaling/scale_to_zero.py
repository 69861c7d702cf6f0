"""Scale to zero: when a session removes all of its replicas, and how many start for held requests."""

from collections.abc import Mapping
from math import ceil

from partita_api.pipelineplan import PipelinePlan
from partita_api.session.autoscaling import Autoscaling, AutoscalingMode, ScaleToZero
from partita_runtime.autoscaling.stages import MeasuredPlan
from partita_runtime.scheduling.events import StageRef


def may_stay_at_zero(settings: Autoscaling) -> bool:
    """Whether a session that has scaled to zero may stay there under its present settings."""
    return settings.mode is AutoscalingMode.ENABLED and settings.scale_to_zero is not None


def is_unused(zero: ScaleToZero, signals: MeasuredPlan, ready_seconds: float) -> bool:
    """Whether no request has arrived for long enough; the start-up time of replicas does not count."""
    return not signals.held and min(signals.idle_seconds, ready_seconds) >= zero.after_seconds


def replicas_for(
    held: int, planned: Mapping[StageRef, int], plan: PipelinePlan, slo_seconds: float
) -> dict[StageRef, int]:
    """Replicas of each stage that answer `held` requests within the SLO: at least 1, at most the planned number."""
    within_slo = float(plan.spec.throughput) * slo_seconds
    share = min(1.0, held / within_slo) if within_slo > 0 else 1.0
    return {ref: max(1, ceil(count * share)) for ref, count in planned.items()}


def missing_capacity(plan: PipelinePlan, free: Mapping[str, int]) -> str:
    """What the planned replicas need beyond the free accelerators, in words; empty if they fit.

    A session scales from zero only if its whole plan fits: else two sessions could get the same accelerators.
    """
    short = [
        f"{gpus} accelerators of pool {pool}, of which {max(0, free.get(pool, 0))} are free"
        for pool, gpus in plan.spec.gpus().items()
        if gpus > free.get(pool, 0)
    ]
    return f"plan {plan.metadata.name} needs {', and '.join(short)}" if short else ""
