"""Deletion of a session: first its applications, then its profiling runs, then its finalizer.

Kubernetes deletes its plans, which it owns. Its profiles stay for other sessions.
"""

from datetime import datetime

from partita_api.conditions import ConditionType
from partita_api.inferencesession import InferenceSessionStatus
from partita_api.meta import FINALIZER
from partita_operator.reconcile import commands
from partita_operator.reconcile.actions import Action, CancelSolve, Decision, RemoveFinalizer, RemoveServing
from partita_operator.reconcile.clock import BUSY_SECONDS, patience
from partita_operator.reconcile.findings import Finding, progress_findings, seconds_in_state, with_findings
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.profiling.profiles import unneeded_runs
from partita_operator.reconcile.world import SessionWorld


def decide_deletion(world: SessionWorld, now: datetime) -> Decision[InferenceSessionStatus]:
    """The next step of the session's removal."""
    if FINALIZER not in world.session.metadata.finalizers:
        return Decision(world.session.status, requeue_after=world.settings.resync_seconds)
    actions: tuple[Action, ...] = (CancelSolve(), *unneeded_runs(world))
    gone = world.serving is not None and not world.has_applications
    if gone:
        actions += (RemoveFinalizer(),)
    elif world.serving is not None:
        actions += (RemoveServing(),)
    status = _status(world, gone, now)
    away = seconds_in_state(status.conditions, ConditionType.READY, now)
    pause = BUSY_SECONDS if world.serving is not None else patience(away, world.settings.resync_seconds)
    return Decision(status, requeue_after=pause, actions=actions)


def _status(world: SessionWorld, gone: bool, now: datetime) -> InferenceSessionStatus:
    meta = world.session.metadata
    if gone:
        message = "All applications are removed."
    elif world.serving is None:
        message = (
            f"The applications cannot be removed yet: {world.problem} If the engine never comes back, remove the "
            f"finalizers: {commands.remove_finalizers(meta)}"
        )
    else:
        message = f"Partita removes the applications. {world.problem}".strip()
    ready = Finding(ConditionType.READY, False, Reason.DELETING, message)
    findings = progress_findings(ready, stalled=False, reconciling=True)
    status = world.session.status
    return status.model_copy(
        update={
            "observed_generation": meta.generation,
            "conditions": with_findings(status.conditions, findings, meta.generation, now),
        }
    )
