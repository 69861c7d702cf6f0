"""Which plan should serve now, with how many replicas, and the progress of its roll-out.

The desired plan is rolled out unless it is held back. Until there is one, the current plan stays. The current plan is
maintained with the spec that it was made from, because the session's present spec may not match it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from partita_api.conditions import ConditionType, is_true
from partita_api.inferencesession import InferenceSession
from partita_api.module_graph import with_measured
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_operator.pod_templates.session_pool import TemplateConflictError, session_pool
from partita_operator.ports import ServingSpec, ServingStatus, StageTarget
from partita_operator.reconcile.actions import Action, ApplyServing, DeletePlan, RemoveServing
from partita_operator.reconcile.capacity.ledger import plan_at_zero
from partita_operator.reconcile.capacity.priorities import give_way, within
from partita_operator.reconcile.clock import seconds_since
from partita_operator.reconcile.findings import listed, seconds_in_state
from partita_operator.reconcile.quality import QualityGate, check_state
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.client_access import ClientAccess
from partita_operator.reconcile.session.holds import Hold
from partita_operator.reconcile.session.planning import Planning, recorded_spec
from partita_operator.reconcile.session.pod_policy import forbidden_pods
from partita_operator.reconcile.versions import SessionVersions
from partita_operator.reconcile.world import SessionWorld
from partita_planner.problem import NoPlanReason
from partita_runtime.autoscaling.replicas import AutoscaleDecision, autoscale, planned_targets
from partita_runtime.autoscaling.scale_to_zero import missing_capacity
from partita_runtime.serving.deploy.epochs import CheckState

KEPT_FOR_ROLLBACK: Final = 3
MAX_HISTORY: Final = 10

StageKey = tuple[str, str, int]
"""(module, pipeline, position)."""


@dataclass(frozen=True)
class Rollout:
    """State of the plan that should serve now."""

    target: PipelinePlan | None = None
    """The plan that should serve now."""
    targets: tuple[StageTarget, ...] = ()
    """Its stages and their replicas."""
    desired: tuple[StageTarget, ...] = ()
    """Replicas of its stages without the limits by sessions of higher priority."""
    ready: Mapping[StageKey, int] = field(default_factory=dict)
    """Replicas of the target that are up."""
    serves: bool = False
    """Whether the frontends are up and use the target."""
    scaling: AutoscaleDecision | None = None
    """The autoscaler's decision, if it was called."""
    scaled: bool = False
    """Whether the replicas change in this pass."""
    outranked: str = ""
    """The message if sessions of higher priority leave too few accelerators for the target; else empty."""
    missing_to_start: str = ""
    """Accelerators that the target, which has scaled to zero, lacks to start."""
    obstacle: str = ""
    """The reason why the target cannot be applied."""
    hold: Hold | None = None
    """What holds the session back from the desired plan."""
    actions: tuple[Action, ...] = ()

    @property
    def missing(self) -> tuple[StageTarget, ...]:
        """Stages with fewer replicas than they should have."""
        return tuple(t for t in self.targets if self.ready.get(_key(t), 0) < t.replicas)

    @property
    def at_zero(self) -> bool:
        """Whether the target has scaled to zero."""
        return bool(self.targets) and not any(t.replicas for t in self.targets)

    @property
    def every_stage_up(self) -> bool:
        """Whether each stage has at least one replica."""
        return all(self.ready.get(_key(t), 0) >= 1 for t in self.targets)


def current_plan_name(world: SessionWorld) -> str | None:
    """Name of the current plan: the one that the frontends use, or used in their last report."""
    if world.serving is not None and world.serving.serving_plan is not None:
        return world.serving.serving_plan
    return world.session.status.current_plan.name if world.session.status.current_plan else None


def roll_out(
    world: SessionWorld,
    planning: Planning,
    fallback: PipelinePlan | None,
    hold: Hold | None,
    access: ClientAccess,
    versions: SessionVersions,
    gate: QualityGate,
    now: datetime,
) -> Rollout:
    """State of the plan that should serve now, and the actions for it; `fallback` serves until then."""
    desired = planning.desired
    waits = hold is not None and hold.plan is not None
    target = desired if desired is not None and desired.spec.approved and not waits else fallback
    if target is None or world.serving is None:
        present = _present_targets(world, target) if target else ()
        actions = _without_plan(world, planning) if target is None else ()
        return Rollout(target=target, targets=present, desired=present, hold=hold, actions=actions)
    ready = {
        (s.module, s.pipeline, s.stage): s.ready
        for plan in world.serving.plans
        if plan.plan == target.metadata.name
        for s in plan.stages
    }
    in_use = world.serving.serving_plan == target.metadata.name
    present = _without_absent(world, target, _present_targets(world, target))
    at_zero = not any(t.replicas for t in present)
    left, outranked = give_way(world.session, world.cluster, target, present, planning.searching)
    paused = hold is not None and hold.reason == Reason.PAUSED
    may_scale = in_use and not outranked and (at_zero or not paused)
    free = _free(target, left, world.availability.takeable if at_zero else world.availability.free)
    scaling = _scale(world, target, left, free, now) if may_scale else None
    targets = scaling.targets if scaling is not None else left
    as_desired = target == desired and not planning.rolled_back
    serves = planning.rolled_back or target.metadata.name == current_plan_name(world)
    check = check_state(gate, target.metadata.name, serves)
    spec = _serving_spec(world, target, targets, as_desired, access, versions, check)
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
    """The action that applies the target.

    A session without replicas is removed from the engine until it has some again.
    """
    if isinstance(spec, str):
        return ()
    if spec.targets:
        return (ApplyServing(spec),)
    return (RemoveServing(),) if serving.plans or serving.serving_plan or serving.frontend_ready else ()


def _without_plan(world: SessionWorld, planning: Planning) -> tuple[Action, ...]:
    """The action that removes replicas that never served, if there are too few accelerators for any plan.

    Their pods would take accelerators that the session does not hold any more, or request nodes that do not come.
    """
    short = planning.no_plan is not None and planning.no_plan.reason is NoPlanReason.INSUFFICIENT_CAPACITY
    runs = world.serving is not None and bool(world.serving.plans)
    return (RemoveServing(),) if short and runs and current_plan_name(world) is None else ()


def history_after(world: SessionWorld, current: str | None) -> tuple[str, ...]:
    """Earlier plans, newest first, when `current` is the plan that serves."""
    status = world.session.status
    before = status.current_plan.name if status.current_plan else None
    earlier = (before, *status.history) if before is not None and before != current else status.history
    return tuple(dict.fromkeys(name for name in earlier if name != current))[:MAX_HISTORY]


def outdated_plans(world: SessionWorld, kept: set[str | None], history: tuple[str, ...]) -> tuple[Action, ...]:
    """Actions that delete plans that are not in `kept`, not running, and not among the last ones of the history."""
    running = {plan.plan for plan in world.serving.plans} if world.serving is not None else set(world.plans)
    rollback = [name for name in history if name in world.plans][:KEPT_FOR_ROLLBACK]
    return tuple(DeletePlan(name) for name in sorted(set(world.plans) - kept - running - set(rollback)))


def _present_targets(world: SessionWorld, plan: PipelinePlan) -> tuple[StageTarget, ...]:
    """The replicas requested in the plan's status: by default as planned, and none while it has scaled to zero."""
    if plan_at_zero(world.session) == plan.metadata.name:
        return tuple(StageTarget(*_key(t), replicas=0) for t in planned_targets(plan))
    desired = {(s.module, s.pipeline, s.stage): s.desired for s in plan.status.stages}
    return tuple(StageTarget(*_key(t), replicas=desired.get(_key(t)) or t.replicas) for t in planned_targets(plan))


def _without_absent(
    world: SessionWorld, plan: PipelinePlan, targets: tuple[StageTarget, ...]
) -> tuple[StageTarget, ...]:
    """The targets without replicas that the autoscaler added for nodes that did not come; planned ones stay."""
    limits = {
        name: world.availability.free.get(name, 0)
        for name in plan.spec.gpus()
        if name in world.cluster.pools and world.cluster.pools[name].status.backs_off
    }
    if not limits:
        return targets
    fewer = {_key(t): t.replicas for t in within(plan, targets, limits) or ()}
    planned = {_key(t): t.replicas for t in planned_targets(plan)}
    return tuple(replace(t, replicas=min(t.replicas, max(fewer.get(_key(t), 0), planned[_key(t)]))) for t in targets)


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
        keeps_planned=world.session.spec.keeps_planned_replicas,
        rates={module.name: world.rates for module in target.spec.modules},
        ready_seconds=seconds_in_state(status.conditions, ConditionType.READY, now) if ready else 0.0,
        slo_seconds=world.session.spec.slo.latency_ms / 1000,
        keeping_pools=world.keeping_pools,
        provision_seconds=_provision_seconds(world, target, present),
    )


def _provision_seconds(world: SessionWorld, target: PipelinePlan, present: tuple[StageTarget, ...]) -> float:
    """The longest time until a node comes, of the pools that have no present accelerator left for the target."""
    left = _free(target, present, world.availability.present)
    pools = [world.cluster.pools[name] for name in target.spec.gpus() if name in world.cluster.pools]
    return max((pool.provision_seconds for pool in pools if left.get(pool.metadata.name, 0) < 1), default=0.0)


def _free(target: PipelinePlan, present: tuple[StageTarget, ...], usable: Mapping[str, int]) -> dict[str, int]:
    """Accelerators by pool that are `usable` for the session and that the target does not use now.

    To scale from zero, they include those of sessions of lower priority, because the plan holds them. An autoscaler
    that only adds replicas does not use these.
    """
    used = target.spec.gpus({_key(t): t.replicas for t in present})
    return {pool: usable.get(pool, 0) - used.get(pool, 0) for pool in usable.keys() | used.keys()}


def _serving_spec(
    world: SessionWorld,
    target: PipelinePlan,
    targets: tuple[StageTarget, ...],
    as_desired: bool,
    access: ClientAccess,
    versions: SessionVersions,
    check: CheckState | None,
) -> ServingSpec | str:
    """The target for the engine, or the reason why there is none."""
    if access.unknown:
        return f"Its applications stay as they are. {access.unknown}"
    session = _session_of(target, world.session, as_desired)
    if session is None:
        return f"Plan {target.metadata.name} does not record its spec. Its replicas stay as they are."
    profiles: dict[tuple[str, str], Profile] = {}
    for ref in target.spec.profiles:
        if ref.key not in world.profiles:
            return f"The profile of module {ref.module} on pool {ref.pool} is missing. Partita makes it again."
        profiles[ref.module, ref.pool] = profile = world.profiles[ref.key]
        if ref.content != profile.content:
            return (
                f"The model of {ref.module} has other content on pool {ref.pool} than when plan {target.metadata.name} "
                "was made. Its replicas stay as they are."
            )
    names = sorted(target.spec.gpus())
    if gone := [name for name in names if name not in world.cluster.pools]:
        return f"GPUPool {', '.join(gone)} of plan {target.metadata.name} does not exist any more."
    template = session.spec.pod_template
    # A plan from before the policy changed, or whose record was edited.
    if forbidden := forbidden_pods(session.spec, world.settings.pod_templates):
        return (
            f"Its pods stay as they are, because the platform does not allow them any more: {listed(forbidden, '; ')}."
        )
    try:
        pools = {name: session_pool(world.cluster.pools[name], template) for name in names}
    except TemplateConflictError as conflict:
        return f"Its pods stay as they are: {conflict}."
    departing = frozenset(node for pool in world.cluster.pools.values() for node in pool.status.departing_nodes)
    request_log = world.settings.request_log.granted(world.session.spec.frontend.request_log)
    return ServingSpec(
        session, target, targets, profiles, pools, departing, access.allowed, versions.routes, request_log, check
    )


def _session_of(plan: PipelinePlan, session: InferenceSession, as_desired: bool) -> InferenceSession | None:
    """The session as the frontends of `plan` see it: as it was when the plan was made, and as measured then.

    The autoscaling settings are the present ones; all of the spec is, if the plan is the desired one.
    """
    spec = session.spec if as_desired else recorded_spec(plan)
    if spec is None:
        return None
    measured = with_measured(spec, plan.spec.measured)
    return session.model_copy(update={"spec": measured.model_copy(update={"autoscaling": session.spec.autoscaling})})


def _key(target: StageTarget) -> StageKey:
    return target.module, target.pipeline, target.stage
