"""How many replicas each stage of the current plan should have, from the measurements of its frontends.

Symphony's rule (section 3.5): with deferred batching both signals are reliable. With N accelerators, a bad rate r
requests N * r / (1 - r) more accelerators, and an idle fraction f releases N * f. Here the rule is applied to the
samples per second that a pipeline can serve, so its stages stay matched. An idle share up to the threshold is kept
for bursts: a release never causes the overload that would request more. In addition to Symphony's rule, a rising load
counts with its expected value at the time when new replicas are ready.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from types import MappingProxyType
from typing import Final

from partita_api.pipelineplan import ModulePlan, PipelinePlan, PooledPipeline
from partita_api.session.autoscaling import Autoscaling, AutoscalingMode
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.scale_to_zero import is_unused, may_stay_at_zero, missing_capacity, replicas_for
from partita_runtime.autoscaling.stages import MeasuredPlan, MeasuredStage, StageTarget
from partita_runtime.autoscaling.trend import expected_growth
from partita_runtime.scheduling.events import StageRef

MAX_GROWTH: Final = 4.0
"""The most capacity added in one step, as a multiple of the present one: above r = 80 % the rule is inaccurate."""

_ROUNDING: Final = 1e-9

Counts = dict[StageRef, int]


@dataclass(frozen=True)
class AutoscaleDecision:
    """The decision of the autoscaler."""

    targets: tuple[StageTarget, ...]
    """Replicas of every stage, in the order of the plan; the present ones if nothing changes."""
    reason: str
    """Sentences that say what was measured and what follows."""
    changed: bool
    """Whether `targets` differ from the present ones."""


@dataclass(frozen=True)
class _Growth:
    """How much the rates are expected to grow."""

    shares: Mapping[str, float]
    """By module."""
    seconds: float
    """Until when."""


def planned_targets(plan: PipelinePlan) -> tuple[StageTarget, ...]:
    """The planned replicas of every stage."""
    return tuple(
        StageTarget(module.name, pipeline.name, position, stage.replicas)
        for module, pipeline, position, stage in plan.spec.stages()
    )


def autoscale(
    settings: Autoscaling,
    plan: PipelinePlan,
    targets: Sequence[StageTarget],
    signals: MeasuredPlan | None,
    free: Mapping[str, int],
    settled_seconds: float = inf,
    keeps_planned: bool = False,
    rates: Mapping[str, RateHistory] = MappingProxyType({}),
    ready_seconds: float = inf,
    slo_seconds: float = 0.0,
    keeping_pools: Collection[str] = (),
    provision_seconds: float = 0.0,
) -> AutoscaleDecision:
    """The replicas that `plan` should have now.

    `targets` are the present replicas (a stage without a target has its planned number). `free` is the number of
    unused whole accelerators by pool. `settled_seconds` is the time since replicas last changed, by a step or a
    rollout. Every stage keeps between 1 and `settings.max_replicas` replicas, and added replicas fit into `free`. A
    session that has scaled to zero has no replicas. `ready_seconds` is the time since its replicas became ready. With
    `keeps_planned` every stage keeps its planned replicas, since its declared rate may arrive at any time. `rates`
    are recent requests per second by module; a module without them counts as steady. For requests that wait for
    replicas, enough replicas start to answer them within `slo_seconds`, or the planned ones with `keeps_planned`.
    Pipelines on `keeping_pools` release no replicas: the nodes of these pools have just come. `provision_seconds` is
    the time until a node comes, if the next replica needs one: a rising load counts with its value after that time.
    """
    planned = _counts(planned_targets(plan))
    present = planned | _counts(targets)
    present = {ref: present[ref] for ref in planned}
    measured = signals if signals is not None and signals.plan == plan.metadata.name else None
    held = measured.held if measured is not None else 0
    needed = planned if keeps_planned else replicas_for(held, planned, plan, slo_seconds)
    if not any(present.values()):
        return _at_zero(settings, plan, present, needed if may_stay_at_zero(settings) else planned, held, free)
    if settings.mode is AutoscalingMode.DISABLED:
        return _decision(present, planned, "Autoscaling is disabled: replicas are as planned.")
    if measured is not None and settings.scale_to_zero is not None:
        keeps = any(stage.pool in keeping_pools for _, _, _, stage in plan.spec.stages())
        if not keeps and is_unused(settings.scale_to_zero, measured, ready_seconds):
            return _scale_to_zero(settings, present, settings.scale_to_zero.after_seconds)
        if held and may_stay_at_zero(settings):
            # The replicas that start now are not measured yet and would count as idle.
            more = {ref: max(count, needed[ref]) for ref, count in present.items()}
            return _decision(present, more, f"{_requests(held)} held: the plan gets {_replicas(more)} in all.")
    if settled_seconds < settings.cool_down_seconds:
        wait = f"Replicas changed less than {settings.cool_down_seconds} s ago (autoscaling.coolDownSeconds)."
        return _decision(present, present, f"{wait} The next step comes after that time.")
    if measured is None:
        return _decision(present, present, f"The frontends do not report on plan {plan.metadata.name} yet.")
    least = planned if keeps_planned else dict.fromkeys(present, 1)
    ahead, window = settings.look_ahead_seconds, settings.window_seconds
    rises = {m: expected_growth(history, ahead, window, provision_seconds) for m, history in rates.items()}
    growth = _Growth(rises, ahead + provision_seconds)
    target, reasons = _follow_load(settings, plan, present, least, measured, free, growth, keeping_pools)
    if settings.mode is AutoscalingMode.ADVISORY:
        advice = "Advice only, as autoscaling.mode is Advisory: " if target != present else ""
        return _decision(present, present, advice + " ".join(reasons))
    return _decision(present, target, " ".join(reasons))


def _at_zero(
    settings: Autoscaling, plan: PipelinePlan, present: Counts, needed: Counts, held: int, free: Mapping[str, int]
) -> AutoscaleDecision:
    """The decision for a session without replicas: it starts `needed` ones for requests if its plan fits."""
    if may_stay_at_zero(settings) and not held:
        return _decision(present, present, "The session has scaled to zero, and no request is held.")
    why = f"{_requests(held)} held" if may_stay_at_zero(settings) else "It may no longer scale to zero"
    if missing := missing_capacity(plan, free):
        return _decision(present, present, f"{why}, but the session cannot scale from zero: {missing}.")
    return _decision(present, needed, f"{why}: the session scales from zero to {_replicas(needed)}.")


def _scale_to_zero(settings: Autoscaling, present: Counts, seconds: int) -> AutoscaleDecision:
    if settings.mode is AutoscalingMode.ADVISORY:
        advice = "Advice only, as autoscaling.mode is Advisory: all replicas could be removed"
        return _decision(present, present, f"{advice}, since no request arrived for {seconds} s.")
    reason = (
        f"No request arrived for {seconds} s: all replicas are removed. The next request is held until they are back."
    )
    return _decision(present, dict.fromkeys(present, 0), reason)


def _requests(count: int) -> str:
    return "1 request is" if count == 1 else f"{count} requests are"


def _replicas(counts: Counts) -> str:
    total = sum(counts.values())
    return "1 replica" if total == 1 else f"{total} replicas"


def _follow_load(
    settings: Autoscaling,
    plan: PipelinePlan,
    present: Counts,
    least: Counts,
    signals: MeasuredPlan,
    free: Mapping[str, int],
    growth: _Growth,
    keeping_pools: Collection[str],
) -> tuple[Counts, list[str]]:
    measured = {StageRef(s.module, s.pipeline, s.stage): s for s in signals.stages}
    available = {pool: held + free.get(pool, 0) for pool, held in _gpus(plan, present).items()}
    target = {ref: min(count, settings.max_replicas) for ref, count in present.items()}
    reasons: list[str] = []
    for module in plan.spec.modules:
        seen = [measured[ref] for ref in _stages(module) if ref in measured]
        if not seen:
            continue
        bad_rate = max(stage.bad_rate for stage in seen)
        rise = growth.shares.get(module.name, 0.0)
        expected = (1 + rise) * sum(_load(module, pipeline, measured) for pipeline in module.pipelines)
        if bad_rate > settings.bad_rate_threshold.fraction:
            problem = f"Module {module.name}: {bad_rate:.1%} of its requests were dropped or late"
            idle = min(_idle(module, pipeline, measured) for pipeline in module.pipelines)
            if idle > settings.idle_fraction_threshold.fraction:
                reasons.append(
                    f"{problem} although its accelerators are idle for {idle:.1%} of the time, so more of them "
                    "would not help: check the network and the profiles, or raise planner.marginPercent."
                )
                continue
            needed = _total(module, target) * min((1 + rise) / max(1 - bad_rate, _ROUNDING), 1 + MAX_GROWTH)
            reasons.append(_grow(settings, plan, module, target, measured, needed, available, problem))
        elif rise and expected > _total(module, target) * (1 + _ROUNDING):
            problem = f"Module {module.name}: its rate rises, by {rise:.0%} within {growth.seconds:g} s"
            reasons.append(_grow(settings, plan, module, target, measured, expected, available, problem))
        else:
            reasons += [
                _shrink(settings, module, pipeline, target, least, measured, rise)
                for pipeline in module.pipelines
                if not any(stage.pool in keeping_pools for stage in pipeline.stages)
            ]
    said = [reason for reason in reasons if reason]
    return target, said or ["Bad rate and idle fraction are within their thresholds."]


def _grow(
    settings: Autoscaling,
    plan: PipelinePlan,
    module: ModulePlan,
    target: Counts,
    measured: Mapping[StageRef, MeasuredStage],
    needed: float,
    available: Mapping[str, int],
    problem: str,
) -> str:
    """Add replicas until the module serves `needed` samples per second, first pipelines first; returns the reason."""
    stages = _stages(module)
    starting = sum(max(0, target[ref] - (measured[ref].ready if ref in measured else 0)) for ref in stages)
    if starting:
        return f"{problem}; {starting} replicas are still starting."
    before = {ref: target[ref] for ref in stages}
    missing = needed - _total(module, target)
    for pipeline in module.pipelines:
        while missing > _ROUNDING:
            gained = _raise_bottleneck(settings, plan, module, pipeline, target, available)
            if not gained:
                break
            missing -= gained
    if missing > _ROUNDING:
        problem += "; autoscaling.maxReplicas or the free accelerators of its pools do not allow all that it needs"
    return f"{problem}{_changes(module, before, target)}."


def _raise_bottleneck(
    settings: Autoscaling,
    plan: PipelinePlan,
    module: ModulePlan,
    pipeline: PooledPipeline,
    target: Counts,
    available: Mapping[str, int],
) -> float:
    """Add a replica to every stage that limits the pipeline; returns the gain in samples per second, or 0.

    `available` is the number of whole accelerators that the plan may use, by pool.
    """
    capacity = _capacity(module, pipeline, target)
    refs = _refs(module, pipeline)
    limiting = [ref for ref in refs if target[ref] * _rate(pipeline, ref.stage) <= capacity * (1 + _ROUNDING)]
    if any(target[ref] >= settings.max_replicas for ref in limiting):
        return 0.0
    raised = target | {ref: target[ref] + 1 for ref in limiting}
    before = _gpus(plan, target)
    if any(gpus > max(available[pool], before[pool]) for pool, gpus in _gpus(plan, raised).items()):
        return 0.0
    target.update(raised)
    return _capacity(module, pipeline, target) - capacity


def _shrink(
    settings: Autoscaling,
    module: ModulePlan,
    pipeline: PooledPipeline,
    target: Counts,
    least: Counts,
    measured: Mapping[StageRef, MeasuredStage],
    rise: float,
) -> str:
    """Remove the idle capacity of the pipeline beyond the threshold; returns the reason, empty without a change.

    `rise` is the expected growth of the load, as a share.
    """
    threshold = settings.idle_fraction_threshold.fraction
    refs = _refs(module, pipeline)
    idle = _idle(module, pipeline, measured)
    if idle <= threshold or any(ref not in measured or not measured[ref].ready for ref in refs):
        return ""
    load = _load(module, pipeline, measured) * (1 + rise) / max(1 - threshold, _ROUNDING)
    before = {ref: target[ref] for ref in refs}
    for ref in refs:
        needed = max(least[ref], ceil(load / _rate(pipeline, ref.stage) - _ROUNDING))
        target[ref] = min(target[ref], needed)
    if all(target[ref] == count for ref, count in before.items()):
        return ""
    return f"Module {module.name}: the accelerators of pipeline {pipeline.name} are idle for {idle:.1%} of the time" + (
        f"{_changes(module, before, target)}."
    )


def _idle(module: ModulePlan, pipeline: PooledPipeline, measured: Mapping[StageRef, MeasuredStage]) -> float:
    """Idle fraction of the pipeline's busiest stage; 0 without measurements."""
    return min((measured[ref].idle_fraction for ref in _refs(module, pipeline) if ref in measured), default=0.0)


def _load(module: ModulePlan, pipeline: PooledPipeline, measured: Mapping[StageRef, MeasuredStage]) -> float:
    """Samples per second that explain the load of the pipeline's busiest stage; 0 without measurements."""
    return max(
        (
            measured[ref].ready * (1 - measured[ref].idle_fraction) * _rate(pipeline, ref.stage)
            for ref in _refs(module, pipeline)
            if ref in measured
        ),
        default=0.0,
    )


def _total(module: ModulePlan, counts: Counts) -> float:
    """Samples per second that all pipelines of the module serve with these replicas."""
    return sum(_capacity(module, pipeline, counts) for pipeline in module.pipelines)


def _capacity(module: ModulePlan, pipeline: PooledPipeline, counts: Counts) -> float:
    """Samples per second that the pipeline serves with these replicas."""
    return min(counts[ref] * _rate(pipeline, ref.stage) for ref in _refs(module, pipeline))


def _rate(pipeline: PooledPipeline, position: int) -> float:
    """Samples per second of one replica of a stage."""
    return pipeline.batch_size * 1e6 / max(pipeline.stages[position].latency_micros, 1)


def _stages(module: ModulePlan) -> list[StageRef]:
    return [ref for pipeline in module.pipelines for ref in _refs(module, pipeline)]


def _refs(module: ModulePlan, pipeline: PooledPipeline) -> list[StageRef]:
    return [StageRef(module.name, pipeline.name, position) for position in range(len(pipeline.stages))]


def _changes(module: ModulePlan, before: Counts, after: Counts) -> str:
    """`: stage 0 of p0 from 2 to 3 replicas, ...`; empty if nothing changed."""
    changes = [
        f"stage {ref.stage} of {ref.pipeline} from {before[ref]} to {after[ref]} replicas"
        for ref in _stages(module)
        if ref in before and before[ref] != after[ref]
    ]
    return f": {', '.join(changes)}" if changes else ""


def _gpus(plan: PipelinePlan, counts: Counts) -> dict[str, int]:
    """Whole accelerators of these replicas, by pool."""
    return plan.spec.gpus({(ref.module, ref.pipeline, ref.stage): count for ref, count in counts.items()})


def _counts(targets: Sequence[StageTarget]) -> Counts:
    return {StageRef(t.module, t.pipeline, t.stage): t.replicas for t in targets}


def _decision(present: Counts, target: Counts, reason: str) -> AutoscaleDecision:
    return AutoscaleDecision(
        targets=tuple(StageTarget(*ref, replicas=count) for ref, count in target.items()),
        reason=reason,
        changed=target != present,
    )
