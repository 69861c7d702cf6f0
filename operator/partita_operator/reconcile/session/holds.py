"""What holds a pending plan back: a pause, a rollback, a missing approval, wrong answers, or a closed window.

The current plan keeps serving, and `status.preview` shows what the pending plan would change.
"""

from dataclasses import dataclass
from datetime import datetime

from partita_api.conditions import ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.session.plan_changes import PlannedChange, PlanPreview
from partita_operator.reconcile import commands
from partita_operator.reconcile.capacity.accounting import fits
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.findings import Finding
from partita_operator.reconcile.quality import QualityGate
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.annotations import Rollback, approved_plan, pause_reason
from partita_operator.reconcile.session.maintenance import is_open, next_beginning
from partita_operator.reconcile.session.planning import Planning
from partita_operator.reconcile.world import SessionWorld
from partita_planner.explain.difference import differences

MAX_CHANGES = 64
_MAX_TEXT = 253


@dataclass(frozen=True)
class Hold:
    """Why the session does not get its pending plan."""

    reason: Reason
    message: str
    plan: str | None = None
    """The plan that waits; None if no plan waits."""
    until: datetime | None = None
    """When the hold ends by itself."""


def find_hold(
    world: SessionWorld,
    planning: Planning,
    rollback: Rollback,
    current: PipelinePlan | None,
    gate: QualityGate,
    now: datetime,
) -> Hold | None:
    """The first thing that holds the session back, if anything; `current` is the current plan."""
    session, desired = world.session, planning.desired
    waiting = desired.metadata.name if desired is not None and desired != current else None
    if (why := pause_reason(session)) is not None:
        return Hold(
            Reason.PAUSED,
            f"The session is paused ({why[:200]}): its plan and its replicas stay as they are. To resume: "
            f"{commands.resume(session.metadata)}",
            waiting,
        )
    if rollback.plan is not None:
        return Hold(
            Reason.ROLLED_BACK,
            f"The session is rolled back to plan {rollback.plan.metadata.name} until its spec changes. To undo this: "
            f"{commands.undo_rollback(session.metadata)}",
        )
    if desired is None or waiting is None:
        return None
    if not desired.spec.approved:
        return Hold(Reason.AWAITING_APPROVAL, approval_hint(desired, session), waiting)
    if (obstacle := gate.obstacle(waiting)) is not None:
        return Hold(*obstacle, waiting)
    if current is None or _must_change(world, current) or _is_under_way(world, waiting):
        return None
    windows = session.spec.maintenance_windows
    if is_open(windows, now):
        return None
    until = next_beginning(windows, now)
    if until is None:
        message = f"Plan {waiting} waits, and no further maintenance window follows. Correct spec.maintenanceWindows."
    else:
        message = f"Plan {waiting} waits for the next maintenance window, {timestamp(until)}."
    return Hold(Reason.OUTSIDE_WINDOW, message, waiting, until)


def approval_hint(plan: PipelinePlan, session: InferenceSession | None = None) -> str:
    """How to approve a plan that waits; `session` is its session, if it is known."""
    meta = plan.metadata
    hint = f"Plan {meta.name} waits for approval. To approve it: {commands.approve_plan(plan.spec.session.name, meta)}"
    other = approved_plan(session) if session is not None else None
    return f"{hint} The annotation approves another plan, {other[:100]}." if other else hint


def held(hold: Hold | None, rollback: Rollback) -> Finding:
    """The condition Held."""
    type = ConditionType.HELD
    if rollback.refusal:
        return Finding(type, False, Reason.ROLLBACK_REFUSED, rollback.refusal)
    if hold is not None:
        return Finding(type, True, hold.reason, hold.message)
    ended = " The rollback ended because the spec changed." if rollback.lapsed else ""
    return Finding(type, False, Reason.SETTLED, f"Nothing holds the session back.{ended}")


def preview(hold: Hold | None, desired: PipelinePlan | None, current: PipelinePlan | None) -> PlanPreview | None:
    """What the plan that waits would change in the current plan; None if no plan waits."""
    if hold is None or desired is None or hold.plan != desired.metadata.name:
        return None
    changes = differences(current.spec, desired.spec) if current is not None else ()
    return PlanPreview(
        plan=desired.metadata.name,
        reason=hold.reason,
        not_before=timestamp(hold.until) if hold.until is not None else None,
        cost_per_hour=desired.spec.cost.allocated_per_hour,
        current_cost_per_hour=current.spec.cost.allocated_per_hour if current else None,
        throughput=desired.spec.throughput,
        current_throughput=current.spec.throughput if current else None,
        changes=tuple(
            PlannedChange(
                where=change.where[:_MAX_TEXT],
                what=change.what,
                before=change.before[:_MAX_TEXT] if change.before is not None else None,
                after=change.after[:_MAX_TEXT] if change.after is not None else None,
            )
            for change in changes[:MAX_CHANGES]
        ),
    )


def _must_change(world: SessionWorld, current: PipelinePlan) -> bool:
    """Whether the current plan has lost accelerators that it needs."""
    return not fits(current, world.availability.free)


def _is_under_way(world: SessionWorld, plan: str) -> bool:
    """Whether replicas of the plan run already: a migration continues when its window closes."""
    return world.serving is not None and any(running.plan == plan for running in world.serving.plans)
