"""What keeps a session from the plan that is wanted: a person who paused it or has to approve, or the hour.

The plan in force goes on meanwhile, and `status.preview` says what the plan that waits would change.
"""

from dataclasses import dataclass
from datetime import datetime

from partita_api.conditions import ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.meta import APPROVED_ANNOTATION
from partita_api.pipelineplan import PipelinePlan
from partita_api.plan_changes import PlannedChange, PlanPreview
from partita_operator.reconcile.capacity.accounting import available, fits
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.findings import Finding
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
    """Why the session does not have the plan that its spec leads to."""

    reason: Reason
    message: str
    plan: str | None = None
    """The plan that waits; None if none does."""
    until: datetime | None = None
    """When the hold ends by itself."""


def find_hold(
    world: SessionWorld, planning: Planning, rollback: Rollback, active: PipelinePlan | None, now: datetime
) -> Hold | None:
    """The first thing that holds the session back, if anything; `active` is the plan in force."""
    session, wanted = world.session, planning.wanted
    waiting = wanted.metadata.name if wanted is not None and wanted != active else None
    if (why := pause_reason(session)) is not None:
        return Hold(
            Reason.PAUSED,
            f"It is paused ({why[:200]}), so it is neither planned anew nor scaled. To go on: "
            f"{_command('resume', session)}",
            waiting,
        )
    if rollback.plan is not None:
        return Hold(
            Reason.ROLLED_BACK,
            f"It is rolled back to plan {rollback.plan.metadata.name} until its spec changes. To undo it: "
            f"{_command('rollback --undo', session)}",
        )
    if wanted is None or waiting is None:
        return None
    if not wanted.spec.approved:
        return Hold(Reason.AWAITING_APPROVAL, approval_hint(wanted, session), waiting)
    if active is None or _must_change(world, active) or _is_under_way(world, waiting):
        return None
    windows = session.spec.maintenance_windows
    if is_open(windows, now):
        return None
    until = next_beginning(windows, now)
    begins = timestamp(until) if until is not None else "never"
    return Hold(
        Reason.OUTSIDE_WINDOW, f"Plan {waiting} waits for the next maintenance window, {begins}.", waiting, until
    )


def approval_hint(plan: PipelinePlan, session: InferenceSession | None = None) -> str:
    """What to do about a plan that waits; `session` is the one that it is for, if it is at hand."""
    meta = plan.metadata
    hint = (
        f"Plan {meta.name} waits for approval: kubectl annotate isess {plan.spec.session.name} -n "
        f"{meta.namespace or 'default'} --overwrite {APPROVED_ANNOTATION}={meta.name}"
    )
    other = approved_plan(session) if session is not None else None
    return f"{hint} (what is approved now is another plan, {other[:100]})" if other else hint


def held(hold: Hold | None, rollback: Rollback) -> Finding:
    """The condition Held."""
    type = ConditionType.HELD
    if rollback.refusal:
        return Finding(type, False, Reason.ROLLBACK_REFUSED, rollback.refusal)
    if hold is not None:
        return Finding(type, True, hold.reason, hold.message)
    ended = " The rollback has ended, since the spec has changed." if rollback.lapsed else ""
    return Finding(type, False, Reason.SETTLED, f"Nothing holds it back.{ended}")


def preview(hold: Hold | None, wanted: PipelinePlan | None, active: PipelinePlan | None) -> PlanPreview | None:
    """What the plan that waits would change of the one in force; None if none waits."""
    if hold is None or wanted is None or hold.plan != wanted.metadata.name:
        return None
    changes = differences(active.spec, wanted.spec) if active is not None else ()
    return PlanPreview(
        plan=wanted.metadata.name,
        reason=hold.reason,
        not_before=timestamp(hold.until) if hold.until is not None else None,
        cost_per_hour=wanted.spec.cost.allocated_per_hour,
        current_cost_per_hour=active.spec.cost.allocated_per_hour if active else None,
        throughput=wanted.spec.throughput,
        current_throughput=active.spec.throughput if active else None,
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


def _must_change(world: SessionWorld, active: PipelinePlan) -> bool:
    """Whether the plan in force cannot go on as it is: what it holds is not there any more."""
    return not fits(active, available(world.session, world.cluster))


def _is_under_way(world: SessionWorld, plan: str) -> bool:
    """Whether replicas of the plan run already: a migration goes on when its window closes."""
    return world.serving is not None and any(running.plan == plan for running in world.serving.plans)


def _command(verb: str, session: InferenceSession) -> str:
    return f"kubectl partita {verb} isess/{session.metadata.name} -n {session.metadata.namespace or 'default'}"
