"""A session: from its spec to replicas that serve it, step by step.

finalizer -> is the spec valid -> profiles -> plan -> is it held back -> roll-out, check -> signals. Each step needs the
previous one. If a step is not possible, the current plan stays, and the conditions say what is missing.
"""

from datetime import datetime

from partita_api.conditions import ConditionType, is_true
from partita_api.inferencesession import InferenceSessionStatus, PlanSummary, Signals
from partita_api.meta import FINALIZER
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.actions import Action, AddFinalizer, Decision, Event
from partita_operator.reconcile.clock import BUSY_SECONDS, patience, timestamp
from partita_operator.reconcile.findings import events_of, seconds_in_state, with_findings
from partita_operator.reconcile.quality import quality_actions, quality_gate
from partita_operator.reconcile.reasons import Severity
from partita_operator.reconcile.session.annotations import find_rollback, pause_reason
from partita_operator.reconcile.session.client_access import client_access
from partita_operator.reconcile.session.conditions import Pass, session_findings
from partita_operator.reconcile.session.deletion import decide_deletion
from partita_operator.reconcile.session.exposure.decision import expose
from partita_operator.reconcile.session.exposure.policy import claims
from partita_operator.reconcile.session.holds import find_hold, preview
from partita_operator.reconcile.session.measured import measured
from partita_operator.reconcile.session.plan_conditions import plan_status
from partita_operator.reconcile.session.planning import (
    decide_plan,
    keep_current_plan,
    keep_planning,
    keep_rolled_back,
    rate_to_record,
)
from partita_operator.reconcile.session.profiling.changed_content import ContentChanges, content_changes
from partita_operator.reconcile.session.profiling.profiles import Profiling, assess_profiles, retry_asked_for
from partita_operator.reconcile.session.rollout import current_plan_name, history_after, outdated_plans, roll_out
from partita_operator.reconcile.session.traffic import signals_to_report
from partita_operator.reconcile.session.validation import find_problem
from partita_operator.reconcile.versions import session_versions
from partita_operator.reconcile.world import SessionWorld


def reconcile_session(world: SessionWorld, now: datetime) -> Decision[InferenceSessionStatus]:
    """The decision for the session now."""
    if world.session.metadata.deletion_timestamp is not None:
        return decide_deletion(world, now)
    if FINALIZER not in world.session.metadata.finalizers:
        return Decision(world.session.status, requeue_after=0.0, actions=(AddFinalizer(),))
    step = _take_steps(world, now)
    status = _status(step, now)
    return Decision(
        status,
        requeue_after=_requeue_after(step, status, now),
        actions=_actions(step, status, now),
        events=(
            *events_of(world.session.status.conditions, status.conditions),
            *_scaling_events(step),
            *step.content.events,
            *step.versions.events,
        ),
        plan_statuses={
            name: plan_status(plan, step.rollout, step.quality, world.serving, now)
            for name, plan in world.plans.items()
        },
    )


def _take_steps(world: SessionWorld, now: datetime) -> Pass:
    current_name = current_plan_name(world)
    current = world.plans.get(current_name) if current_name is not None else None
    problem = find_problem(world.session, world.cluster, world.settings)
    profiling = assess_profiles(world, now) if problem is None else Profiling(progress=world.session.status.profiling)
    rollback = find_rollback(world, current_name)
    paused = pause_reason(world.session) is not None
    kept = ContentChanges(world.session.status.confirmed_contents)
    content = content_changes(world) if problem is None and not paused else kept
    if rollback.plan is not None and not paused:
        planning = keep_rolled_back(world, rollback.plan)
    elif problem is not None or profiling.running or profiling.modules_without:
        planning = keep_planning(world)
    elif paused:
        planning = keep_current_plan(world, profiling, current)
    else:
        planning = decide_plan(world, profiling, current, now)
    gate = quality_gate(world)
    hold = find_hold(world, planning, rollback, current, gate, now)
    fallback = current if current is not None or paused else _approved_pending(world)
    access = client_access(world)
    versions = session_versions(world, now)
    rollout = roll_out(world, planning, fallback, hold, access, versions, gate, now)
    return Pass(
        world,
        problem,
        content,
        profiling,
        planning,
        rollback,
        rollout,
        access,
        versions,
        gate,
        expose(world),
        current_name,
    )


def _approved_pending(world: SessionWorld) -> PipelinePlan | None:
    """The pending plan from before the desired plan became uncertain."""
    pending = world.plans.get(world.session.status.pending_plan or "")
    return pending if pending is not None and pending.spec.approved else None


def _actions(step: Pass, status: InferenceSessionStatus, now: datetime) -> tuple[Action, ...]:
    """The order of actions:

    profiles before plans, new plans before the engine's target, and deletions of old plans last.
    """
    desired = step.planning.desired
    # While the desired plan is uncertain, no plan is deleted.
    outdated = (
        outdated_plans(step.world, {step.current, desired.metadata.name}, status.history) if desired is not None else ()
    )
    return (
        *step.profiling.actions,
        *step.content.actions,
        *step.planning.actions,
        *step.rollout.actions,
        *_checks(step, now),
        *step.exposure.actions,
        *outdated,
    )


def _checks(step: Pass, now: datetime) -> tuple[Action, ...]:
    """The check of the target's answers, once a replica of each stage is up."""
    rollout = step.rollout
    if rollout.target is None or not rollout.targets or rollout.at_zero or not rollout.every_stage_up:
        return ()
    return quality_actions(step.world, step.quality, rollout.target.metadata.name, now)


def _status(step: Pass, now: datetime) -> InferenceSessionStatus:
    world, before = step.world, step.world.session.status
    generation = world.session.metadata.generation
    return InferenceSessionStatus(
        observed_generation=generation,
        engine=world.session.spec.engine.type_or(world.settings.default_engine),
        url=step.exposure.url,
        cluster_url=step.exposure.cluster_url,
        grpc_address=step.exposure.grpc_address,
        http_address=step.exposure.http_address,
        claimed_hosts=claims(world, now),
        current_plan=_current_plan(step),
        pending_plan=_pending_plan(step),
        preview=preview(step.rollout.hold, step.planning.desired, world.plans.get(step.current or "")),
        history=history_after(world, step.current),
        profiling=step.profiling.progress,
        confirmed_contents=step.content.confirmed,
        planned_rate=rate_to_record(world) if step.problem is None else before.planned_rate,
        measured=measured(world) if step.problem is None else before.measured,
        last_handled_retry=_handled_retry(step),
        signals=_signals(step),
        versions=step.versions.statuses,
        version_shares=step.versions.shares,
        scale_to_zero_time=(before.scale_to_zero_time or timestamp(now)) if step.rollout.at_zero else None,
        last_scale_time=timestamp(now) if step.rollout.scaled else before.last_scale_time,
        conditions=with_findings(before.conditions, session_findings(step), generation, now),
    )


def _current_plan(step: Pass) -> PlanSummary | None:
    before = step.world.session.status.current_plan
    if step.current is None:
        return None
    plan = step.world.plans.get(step.current)
    if plan is None:
        return before if before is not None and before.name == step.current else None
    return PlanSummary(
        name=step.current, cost_per_hour=plan.spec.cost.allocated_per_hour, throughput=plan.spec.throughput
    )


def _pending_plan(step: Pass) -> str | None:
    """The desired plan if another one or none serves; the previous pending plan while the desired one is uncertain."""
    planning, before = step.planning, step.world.session.status.pending_plan
    if planning.desired is not None:
        name: str | None = planning.desired.metadata.name
    elif planning.created is not None:
        name = planning.created
    else:
        name = before if before in step.world.plans and planning.no_plan is None else None
    return name if name != step.current else None


def _handled_retry(step: Pass) -> str | None:
    if step.problem is not None:
        return step.world.session.status.last_handled_retry
    return retry_asked_for(step.world.session)


def _signals(step: Pass) -> Signals | None:
    if step.world.signals is None:
        return step.world.session.status.signals if step.world.serving is None else None
    scaling = step.rollout.scaling
    recommendation = scaling.reason[:1024] if scaling is not None else ""
    measured = step.world.signals.reported.model_copy(update={"recommendation": recommendation})
    return measured if step.rollout.scaled else signals_to_report(step.world.session, measured)


def _scaling_events(step: Pass) -> tuple[Event, ...]:
    scaling = step.rollout.scaling
    return (Event(Severity.NORMAL, "Scaled", scaling.reason),) if scaling is not None and scaling.changed else ()


def _requeue_after(step: Pass, status: InferenceSessionStatus, now: datetime) -> float:
    resync = step.world.settings.resync_seconds
    due = [resync, step.planning.requeue_after, step.profiling.requeue_after]
    if step.world.serving is None or step.world.problem:
        return patience(seconds_in_state(status.conditions, ConditionType.ROLLED_OUT, now), resync)
    # The request for which a session scales from zero waits until the operator has noticed it.
    if is_true(status.conditions, ConditionType.RECONCILING) or status.scale_to_zero_time is not None:
        due.append(min(BUSY_SECONDS, resync))
    return min(seconds for seconds in due if seconds is not None)
