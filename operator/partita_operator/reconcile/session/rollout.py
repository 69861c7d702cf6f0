"""Which plan should serve now, with how many replicas, and how far that has come.

The wanted plan is rolled out unless something holds it back; until there is one, the plan in force stays. A plan in
force is kept up with the spec that it was made from, since the session's present spec may not fit it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from partita_api.conditions import ConditionType, is_true
from partita_api.inferencesession import InferenceSession, RateSource
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_operator.ports import ServingSpec, ServingStatus, StageTarget
from partita_operator.reconcile.actions import Action, ApplyServing, DeletePlan, RemoveServing
from partita_operator.reconcile.capacity.ledger import plan_at_zero
from partita_operator.reconcile.capacity.priorities import give_way
from partita_operator.reconcile.clock import seconds_since
from partita_operator.reconcile.findings import seconds_in_state
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.holds import Hold
from partita_operator.reconcile.session.planning import Planning, recorded_spec
from partita_operator.reconcile.world import SessionWorld
from partita_runtime.autoscaling.replicas import AutoscaleDecision, autoscale, planned_targets
from partita_runtime.autoscaling.sleep import missing_capacity

KEPT_FOR_ROLLBACK: Final = 3
MAX_HISTORY: Final = 10

StageKey = tuple[str, str, int]
"""(module, pipeline, position)."""


@dataclass(frozen=True)
class Rollout:
    """How the plan that should serve now stands."""

    target: PipelinePlan | None = None
    """The plan that should serve now."""
    targets: tuple[StageTarget, ...] = ()
    """Its stages and their replicas."""
    desired: tuple[StageTarget, ...] = ()
    """What its stages would have but for sessions of higher priority; they come back to it."""
    ready: Mapping[StageKey, int] = field(default_factory=dict)
    """Replicas of the target that are up."""
    serves: bool = False
    """Whether the frontends are up and use the target."""
    scaling: AutoscaleDecision | None = None
    """What the autoscaler wants, if it was asked."""
    scaled: bool = False
    """Whether the replicas change in this pass."""
    outranked: str = ""
    """What there is to say if sessions of higher priority leave too little of the target."""
    missing_to_start: str = ""
    """What the target, which is asleep, lacks of accelerators to wake."""
    obstacle: str = ""
    """Why the target cannot be applied."""
    hold: Hold | None = None
    """What keeps the session from the wanted plan."""
    actions: tuple[Action, ...] = ()

    @property
    def missing(self) -> tuple[StageTarget, ...]:
        """Stages with fewer replicas than they should have."""
        return tuple(t for t in self.targets if self.ready.get(_key(t), 0) < t.replicas)

    @property
    def at_zero(self) -> bool:
        """Whether the target should have no replicas, since nobody asks for any."""
        return bool(self.targets) and not any(t.replicas for t in self.targets)

    @property
    def every_stage_up(self) -> bool:
        """Whether each stage has at least one replica."""
        return all(self.ready.get(_key(t), 0) >= 1 for t in self.targets)


def current_plan_name(world: SessionWorld) -> str | None:
    """Name of the plan in force: what the frontends use, or used when they were last seen."""
    if world.serving is not None and world.serving.serving_plan is not None:
        return world.serving.serving_plan
    return world.session.status.current_plan.name if world.session.status.current_plan else None


def roll_out(
    world: SessionWorld, planning: Planning, fallback: PipelinePlan | None, hold: Hold | None, now: datetime
) -> Rollout:
    """How the plan that should serve now stands, and what to do for it; `fallback` is what serves until then."""
    desired = planning.desired
    waits = hold is not None and hold.plan is not None
    target = desired if desired is not None and desired.spec.approved and not waits else fallback
    if target is None or world.serving is None:
        present = _present_targets(world, target) if target else ()
        return Rollout(target=target, targets=present, desired=present, hold=hold)
    ready = {
        (s.module, s.pipeline, s.stage): s.ready
        for plan in world.serving.plans
        if plan.plan == target.metadata.name
        for s in plan.stages
    }
    in_use = world.serving.serving_plan == target.metadata.name
    present = _present_targets(world, target)
    at_zero = not any(t.replicas for t in present)
    left, outranked = give_way(world, target, present, planning.searching)
    paused = hold is not None and hold.reason == Reason.PAUSED
    may_scale = in_use and not outranked and (at_zero or not paused)
    free = _free(target, left, world.availability.takeable if at_zero else world.availability.free)
    scaling = _scale(world, target, left, free, now) if may_scale else None
    targets = scaling.targets if scaling is not None else left
    spec = _serving_spec(world, target, targets, target == desired and not planning.rolled_back)
    return Rollout(
        target=target,
        targets=targets,
        desired=present if outranked else targets,
        ready=ready,
        serves=in_use and world.serving.frontend_ready,
        scaling=scaling,
        scaled=scaling is not None and scaling.changed,
        outranked=outranked,
        missing_to_start=missing_capacity(target, free) if at_zero else "",
        obstacle=spec if isinstance(spec, str) else "",
        hold=hold,
        actions=_apply(spec, world.serving),
    )


def _apply(spec: ServingSpec | str, serving: ServingStatus) -> tuple[Action, ...]:
    """What makes it so; a session that is left without replicas is taken down until it has some again."""
    if isinstance(spec, str):
        return ()
    if spec.targets:
        return (ApplyServing(spec),)
    return (RemoveServing(),) if serving.plans or serving.serving_plan or serving.frontend_ready else ()


def history_after(world: SessionWorld, current: str | None) -> tuple[str, ...]:
    """Earlier plans, newest first, now that `active` is in force."""
    status = world.session.status
    before = status.current_plan.name if status.current_plan else None
    earlier = (before, *status.history) if before is not None and before != current else status.history
    return tuple(dict.fromkeys(name for name in earlier if name != current))[:MAX_HISTORY]


def outdated_plans(world: SessionWorld, kept: set[str | None], history: tuple[str, ...]) -> tuple[Action, ...]:
    """Removal of plans that are neither in `kept`, nor running, nor among the last ones of the history."""
    running = {plan.plan for plan in world.serving.plans} if world.serving is not None else set(world.plans)
    rollback = [name for name in history if name in world.plans][:KEPT_FOR_ROLLBACK]
    return tuple(DeletePlan(name) for name in sorted(set(world.plans) - kept - running - set(rollback)))


def _present_targets(world: SessionWorld, plan: PipelinePlan) -> tuple[StageTarget, ...]:
    """The replicas that the plan's status asks for; as planned where it asks for none, and none while it sleeps."""
    if plan_at_zero(world.session) == plan.metadata.name:
        return tuple(StageTarget(*_key(t), replicas=0) for t in planned_targets(plan))
    desired = {(s.module, s.pipeline, s.stage): s.desired for s in plan.status.stages}
    return tuple(StageTarget(*_key(t), replicas=desired.get(_key(t)) or t.replicas) for t in planned_targets(plan))


def _scale(
    world: SessionWorld,
    target: PipelinePlan,
    present: tuple[StageTarget, ...],
    free: Mapping[str, int],
    now: datetime,
) -> AutoscaleDecision:
    status = world.session.status
    ready = is_true(status.conditions, ConditionType.READY)
    settled = seconds_in_state(status.conditions, ConditionType.ROLLED_OUT, now)
    if status.last_scale_time is not None:
        settled = min(settled, seconds_since(status.last_scale_time, now))
    return autoscale(
        world.session.spec.autoscaling,
        target,
        present,
        world.signals,
        free,
        settled,
        keeps_planned=world.session.spec.rate.source is RateSource.DECLARED,
        rates={module.name: world.rates for module in target.spec.modules},
        awake_seconds=seconds_in_state(status.conditions, ConditionType.READY, now) if ready else 0.0,
        slo_seconds=world.session.spec.slo.latency_ms / 1000,
    )


def _free(target: PipelinePlan, present: tuple[StageTarget, ...], usable: Mapping[str, int]) -> dict[str, int]:
    """Accelerators by pool that are `usable` for the session and that the target does not use now.

    To scale from zero, they include those of sessions of lower priority: the plan was promised them. An autoscaler that
    only adds replicas takes none of these.
    """
    used = target.spec.gpus({_key(t): t.replicas for t in present})
    return {pool: usable.get(pool, 0) - used.get(pool, 0) for pool in usable.keys() | used.keys()}


def _serving_spec(
    world: SessionWorld, target: PipelinePlan, targets: tuple[StageTarget, ...], as_desired: bool
) -> ServingSpec | str:
    """What the engine should make so, or why that cannot be said."""
    session = world.session if as_desired else _session_of(target, world.session)
    if session is None:
        return f"Plan {target.metadata.name} does not record its spec. Its replicas stay as they are."
    profiles: dict[tuple[str, str], Profile] = {}
    for ref in target.spec.profiles:
        if ref.key not in world.profiles:
            return f"The profile of module {ref.module} on pool {ref.pool} is gone and is being made again."
        profiles[ref.module, ref.pool] = world.profiles[ref.key]
    names = sorted(target.spec.gpus())
    if gone := [name for name in names if name not in world.cluster.pools]:
        return f"GPUPool {', '.join(gone)} of plan {target.metadata.name} is gone."
    return ServingSpec(
        session=session,
        plan=target,
        targets=targets,
        profiles=profiles,
        pools={name: world.cluster.pools[name] for name in names},
    )


def _session_of(plan: PipelinePlan, session: InferenceSession) -> InferenceSession | None:
    """The session as it was when `plan` was made, but for how it is autoscaled."""
    recorded = recorded_spec(plan)
    if recorded is None:
        return None
    spec = recorded.model_copy(update={"autoscaling": session.spec.autoscaling})
    return session.model_copy(update={"spec": spec})


def _key(target: StageTarget) -> StageKey:
    return target.module, target.pipeline, target.stage
