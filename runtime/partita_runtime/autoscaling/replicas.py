"""How many replicas each stage of the plan in force should have, from what its frontends measured.

Symphony's rule (section 4.2): deferred batching makes both signals honest, so with N accelerators a bad rate r
asks for N * r / (1 - r) more of them, and an idle fraction f gives back N * f. Here the rule is applied to the
samples per second that a pipeline can serve, so that its stages stay matched; an idle share up to the
threshold is kept for bursts, so that giving back never leads to the overload that would ask for more. Beyond
Symphony's rule, a load that rises counts as what it will be when new replicas serve, so that they are there
before anything is lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from types import MappingProxyType
from typing import Final

from partita_api.autoscaling import Autoscaling, AutoscalingMode
from partita_api.pipelineplan import ModulePlan, PipelinePlan, PooledPipeline
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.sleep import is_unused, keeps_asleep, replicas_for, room_missing
from partita_runtime.autoscaling.stages import MeasuredPlan, MeasuredStage, StageTarget
from partita_runtime.autoscaling.trend import expected_growth
from partita_runtime.scheduling.events import StageRef

MAX_GROWTH: Final = 4.0
"""Most capacity added in one step, as a multiple of what there is: beyond r = 80 % the rule says little."""

_ROUNDING: Final = 1e-9

Counts = dict[StageRef, int]


@dataclass(frozen=True)
class AutoscaleDecision:
    """What the autoscaler wants."""

    targets: tuple[StageTarget, ...]
    """Replicas of every stage of the plan, in the plan's order; the present ones if nothing is to change."""
    reason: str
    """Sentences for people: what was measured, and what follows."""
    changed: bool
    """Whether `targets` differ from the present ones."""


def planned_targets(plan: PipelinePlan) -> tuple[StageTarget, ...]:
    """Replicas of every stage as planned."""
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
    awake_seconds: float = inf,
    slo_seconds: float = 0.0,
) -> AutoscaleDecision:
    """The replicas that `plan` should have now.

    `targets` are the present ones (stages without one have their planned number), `free` is the number of whole
    accelerators that nobody uses, by pool, and `settled_seconds` is how long ago replicas last changed, by a step
    or by a roll-out. Every stage keeps between 1 and `settings.max_replicas` replicas, and what is added fits in
    `free`; but all stages have none while the session sleeps, as it may `awake_seconds` after its replicas came up.
    With `keeps_planned` no stage gives back what the plan says: its rate was declared, and may come any time.
    `rates` are the requests per second of late, by module; a module without them counts as steady. Requests that wait
    for replicas bring up as many as answer them within `slo_seconds`, or the planned ones if those are kept.
    """
    planned = _counts(planned_targets(plan))
    present = planned | _counts(targets)
    present = {ref: present[ref] for ref in planned}
    measured = signals if signals is not None and signals.plan == plan.metadata.name else None
    held = measured.held if measured is not None else 0
    wakened = planned if keeps_planned else replicas_for(held, planned, plan, slo_seconds)
    if not any(present.values()):
        return _while_asleep(settings, plan, present, wakened if keeps_asleep(settings) else planned, held, free)
    if settings.mode is AutoscalingMode.DISABLED:
        return _decision(present, planned, "Autoscaling is disabled: replicas are as planned.")
    if measured is not None and settings.scale_to_zero is not None:
        if is_unused(settings.scale_to_zero, measured, awake_seconds):
            return _fall_asleep(settings, present, settings.scale_to_zero.after_seconds)
        if held and keeps_asleep(settings):
            # Nothing is measured yet of the replicas that come up: they look idle.
            more = {ref: max(count, wakened[ref]) for ref, count in present.items()}
            return _decision(present, more, f"{_requests(held)} held by now: {_replicas(more)} are to serve them.")
    if settled_seconds < settings.cool_down_seconds:
        left = ceil(settings.cool_down_seconds - settled_seconds)
        return _decision(present, present, f"Replicas changed lately; the next step is {left} s away at the earliest.")
    if measured is None:
        return _decision(present, present, f"The frontends do not report on plan {plan.metadata.name} yet.")
    least = planned if keeps_planned else dict.fromkeys(present, 1)
    ahead, window = settings.look_ahead_seconds, settings.window_seconds
    growth = {module: expected_growth(history, ahead, window) for module, history in rates.items()}
    wanted, reasons = _follow_load(settings, plan, present, least, measured, free, growth)
    if settings.mode is AutoscalingMode.ADVISORY:
        advice = "Advice only, as autoscaling.mode is Advisory: " if wanted != present else ""
        return _decision(present, present, advice + " ".join(reasons))
    return _decision(present, wanted, " ".join(reasons))


def _while_asleep(
    settings: Autoscaling, plan: PipelinePlan, present: Counts, wakened: Counts, held: int, free: Mapping[str, int]
) -> AutoscaleDecision:
    """What a session without replicas does: it wakes for requests, if its plan still has room."""
    if keeps_asleep(settings) and not held:
        return _decision(present, present, "It sleeps, and no request is held.")
    why = f"{_requests(held)} held" if keeps_asleep(settings) else "It may not scale to zero any more"
    if missing := room_missing(plan, free):
        return _decision(present, present, f"{why}, but it cannot wake: {missing}.")
    return _decision(present, wakened, f"{why}: it wakes, and {_replicas(wakened)} come up.")


def _fall_asleep(settings: Autoscaling, present: Counts, seconds: int) -> AutoscaleDecision:
    if settings.mode is AutoscalingMode.ADVISORY:
        advice = "Advice only, as autoscaling.mode is Advisory: all replicas could be given back"
        return _decision(present, present, f"{advice}, since no request came for {seconds} s.")
    reason = f"No request came for {seconds} s: all replicas are given back. The next request is held and wakes it."
    return _decision(present, dict.fromkeys(present, 0), reason)


def _requests(count: int) -> str:
    return "1 request is" if count == 1 else f"{count} requests are"


def _replicas(counts: Counts) -> str:
    return f"{sum(counts.values())} replicas"


def _follow_load(
    settings: Autoscaling,
    plan: PipelinePlan,
    present: Counts,
    least: Counts,
    signals: MeasuredPlan,
    free: Mapping[str, int],
    growth: Mapping[str, float],
) -> tuple[Counts, list[str]]:
    measured = {StageRef(s.module, s.pipeline, s.stage): s for s in signals.stages}
    room = {pool: held + free.get(pool, 0) for pool, held in _gpus(plan, present).items()}
    wanted = {ref: min(count, settings.max_replicas) for ref, count in present.items()}
    reasons: list[str] = []
    for module in plan.spec.modules:
        seen = [measured[ref] for ref in _stages(module) if ref in measured]
        if not seen:
            continue
        bad_rate = max(stage.bad_rate for stage in seen)
        rise = growth.get(module.name, 0.0)
        expected = (1 + rise) * sum(_load(module, pipeline, measured) for pipeline in module.pipelines)
        if bad_rate > settings.bad_rate_threshold.fraction:
            problem = f"Module {module.name}: {bad_rate:.1%} of its requests were dropped or late"
            idle = min(_idle(module, pipeline, measured) for pipeline in module.pipelines)
            if idle > settings.idle_fraction_threshold.fraction:
                reasons.append(
                    f"{problem} although its GPUs are idle for {idle:.1%} of the time, so more of them would not help: "
                    "look at the network and at the profiles, or raise planner.marginPercent."
                )
                continue
            needed = _total(module, wanted) * min((1 + rise) / max(1 - bad_rate, _ROUNDING), 1 + MAX_GROWTH)
            reasons.append(_grow(settings, plan, module, wanted, measured, needed, room, problem))
        elif rise and expected > _total(module, wanted) * (1 + _ROUNDING):
            problem = f"Module {module.name}: its rate rises, by {rise:.0%} within {settings.look_ahead_seconds} s"
            reasons.append(_grow(settings, plan, module, wanted, measured, expected, room, problem))
        else:
            reasons += [
                _shrink(settings, module, pipeline, wanted, least, measured, rise) for pipeline in module.pipelines
            ]
    said = [reason for reason in reasons if reason]
    return wanted, said or ["Bad rate and idle fraction are within their thresholds."]


def _grow(
    settings: Autoscaling,
    plan: PipelinePlan,
    module: ModulePlan,
    wanted: Counts,
    measured: Mapping[StageRef, MeasuredStage],
    needed: float,
    room: Mapping[str, int],
    problem: str,
) -> str:
    """Adds what the module lacks of `needed` samples per second, its first pipelines first; says what was done."""
    stages = _stages(module)
    coming = sum(max(0, wanted[ref] - (measured[ref].ready if ref in measured else 0)) for ref in stages)
    if coming:
        return f"{problem}; {coming} replicas are still coming up."
    before = {ref: wanted[ref] for ref in stages}
    missing = needed - _total(module, wanted)
    for pipeline in module.pipelines:
        while missing > _ROUNDING:
            gained = _raise_bottleneck(settings, plan, module, pipeline, wanted, room)
            if not gained:
                break
            missing -= gained
    if missing > _ROUNDING:
        problem += "; autoscaling.maxReplicas or the free GPUs of its pools do not allow all that it needs"
    return f"{problem}{_changes(module, before, wanted)}."


def _raise_bottleneck(
    settings: Autoscaling,
    plan: PipelinePlan,
    module: ModulePlan,
    pipeline: PooledPipeline,
    wanted: Counts,
    room: Mapping[str, int],
) -> float:
    """One more replica for every stage that limits the pipeline; samples per second gained, 0 if it cannot be.

    `room` is the number of whole accelerators that the plan may take, by pool.
    """
    capacity = _capacity(module, pipeline, wanted)
    refs = _refs(module, pipeline)
    limiting = [ref for ref in refs if wanted[ref] * _rate(pipeline, ref.stage) <= capacity * (1 + _ROUNDING)]
    if any(wanted[ref] >= settings.max_replicas for ref in limiting):
        return 0.0
    raised = wanted | {ref: wanted[ref] + 1 for ref in limiting}
    before = _gpus(plan, wanted)
    if any(gpus > max(room[pool], before[pool]) for pool, gpus in _gpus(plan, raised).items()):
        return 0.0
    wanted.update(raised)
    return _capacity(module, pipeline, wanted) - capacity


def _shrink(
    settings: Autoscaling,
    module: ModulePlan,
    pipeline: PooledPipeline,
    wanted: Counts,
    least: Counts,
    measured: Mapping[StageRef, MeasuredStage],
    rise: float,
) -> str:
    """Gives back what the pipeline's busiest stage has idle beyond the threshold; says what was done, if anything.

    `rise` is the share by which the load will grow meanwhile.
    """
    threshold = settings.idle_fraction_threshold.fraction
    refs = _refs(module, pipeline)
    idle = _idle(module, pipeline, measured)
    if idle <= threshold or any(ref not in measured or not measured[ref].ready for ref in refs):
        return ""
    load = _load(module, pipeline, measured) * (1 + rise) / max(1 - threshold, _ROUNDING)
    before = {ref: wanted[ref] for ref in refs}
    for ref in refs:
        needed = max(least[ref], ceil(load / _rate(pipeline, ref.stage) - _ROUNDING))
        wanted[ref] = min(wanted[ref], needed)
    if all(wanted[ref] == count for ref, count in before.items()):
        return ""
    return f"Module {module.name}: the GPUs of pipeline {pipeline.name} are idle for {idle:.1%} of the time" + (
        f"{_changes(module, before, wanted)}."
    )


def _idle(module: ModulePlan, pipeline: PooledPipeline, measured: Mapping[StageRef, MeasuredStage]) -> float:
    """Idle fraction of the pipeline's busiest stage; 0 where nothing was measured."""
    return min((measured[ref].idle_fraction for ref in _refs(module, pipeline) if ref in measured), default=0.0)


def _load(module: ModulePlan, pipeline: PooledPipeline, measured: Mapping[StageRef, MeasuredStage]) -> float:
    """Samples per second with which the pipeline's busiest stage would be as busy as it was; 0 where none is known."""
    return max(
        (
            measured[ref].ready * (1 - measured[ref].idle_fraction) * _rate(pipeline, ref.stage)
            for ref in _refs(module, pipeline)
            if ref in measured
        ),
        default=0.0,
    )


def _total(module: ModulePlan, counts: Counts) -> float:
    """Samples per second that all pipelines of the module can serve with these replicas."""
    return sum(_capacity(module, pipeline, counts) for pipeline in module.pipelines)


def _capacity(module: ModulePlan, pipeline: PooledPipeline, counts: Counts) -> float:
    """Samples per second that the pipeline can serve with these replicas."""
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
    """Whole accelerators that so many replicas take, by pool."""
    return plan.spec.gpus({(ref.module, ref.pipeline, ref.stage): count for ref, count in counts.items()})


def _counts(targets: Sequence[StageTarget]) -> Counts:
    return {StageRef(t.module, t.pipeline, t.stage): t.replicas for t in targets}


def _decision(present: Counts, wanted: Counts, reason: str) -> AutoscaleDecision:
    return AutoscaleDecision(
        targets=tuple(StageTarget(*ref, replicas=count) for ref, count in wanted.items()),
        reason=reason,
        changed=wanted != present,
    )
