"""The status of a session's plans: which plan serves, the state of its stages, and whether it may be rolled out."""

from collections.abc import Iterator
from datetime import datetime

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.pipelineplan import PipelinePlan, PipelinePlanStatus, StageStatus
from partita_operator.ports import ServingStatus, StageReadiness
from partita_operator.reconcile.findings import Finding, progress_findings, with_findings
from partita_operator.reconcile.quality import QualityGate
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.holds import approval_hint
from partita_operator.reconcile.session.rollout import Rollout


def plan_status(
    plan: PipelinePlan, rollout: Rollout, gate: QualityGate, serving: ServingStatus | None, now: datetime
) -> PipelinePlanStatus:
    """The status of `plan`, with the desired replicas if the plan should serve, and the result of its check."""
    is_target = rollout.target is not None and rollout.target.metadata.name == plan.metadata.name
    stages = tuple(_stages(plan, rollout, serving)) if serving is not None or is_target else plan.status.stages
    findings = (_approved(plan), *_progress(plan, rollout, serving, is_target))
    return PipelinePlanStatus(
        observed_generation=plan.metadata.generation,
        stages=stages,
        quality=gate.results.get(plan.metadata.name, plan.status.quality if gate.quality is not None else None),
        conditions=with_findings(plan.status.conditions, findings, plan.metadata.generation, now),
    )


def _stages(plan: PipelinePlan, rollout: Rollout, serving: ServingStatus | None) -> Iterator[StageStatus]:
    name = plan.metadata.name
    known = {(s.module, s.pipeline, s.stage): s for s in plan.status.stages}
    is_target = rollout.target is not None and rollout.target.metadata.name == name
    desired = {(t.module, t.pipeline, t.stage): t.replicas for t in rollout.desired} if is_target else {}
    running: dict[tuple[str, str, int], StageReadiness] | None = None
    if serving is not None:
        running = {(s.module, s.pipeline, s.stage): s for p in serving.plans if p.plan == name for s in p.stages}
    for module, pipeline, position, stage in plan.spec.stages():
        key = (module.name, pipeline.name, position)
        before, now = known.get(key), running.get(key) if running is not None else None
        # While the engine does not answer, the last observation stays.
        ready = before.ready if running is None and before else now.ready if now else 0
        yield StageStatus(
            module=module.name,
            pipeline=pipeline.name,
            stage=position,
            pool=stage.pool,
            desired=desired.get(key, before.desired if before else stage.replicas),
            ready=ready,
            message=now.message[:1024] if now else "",
        )


def _approved(plan: PipelinePlan) -> Finding:
    if plan.spec.approved:
        return Finding(ConditionType.APPROVED, True, Reason.APPROVED, "The plan may be rolled out.")
    return Finding(ConditionType.APPROVED, False, Reason.AWAITING_APPROVAL, approval_hint(plan))


def _progress(
    plan: PipelinePlan, rollout: Rollout, serving: ServingStatus | None, is_target: bool
) -> tuple[Finding, ...]:
    """Ready, RolledOut, Stalled and Reconciling."""
    if not is_target:
        return _not_the_target(plan, rollout)
    if serving is None:
        unknown, message = ConditionStatus.UNKNOWN, "The serving engine does not answer."
        return _findings(unknown, unknown, Reason.ENGINE_UNAVAILABLE, message, reconciling=True)
    if rollout.serves and rollout.at_zero:
        return _findings(True, True, Reason.SCALED_TO_ZERO, scaled_to_zero_summary(rollout))
    complete = rollout.serves and not rollout.missing
    usable = rollout.serves and rollout.every_stage_up
    if rollout.outranked:
        return _findings(usable and bool(rollout.targets), False, Reason.OUTRANKED, rollout.outranked, stalled=True)
    summary = rollout_summary(rollout)
    rolled_out = Finding(
        ConditionType.ROLLED_OUT, complete, Reason.ROLLED_OUT if complete else Reason.ROLLING_OUT, summary
    )
    ready = Finding(ConditionType.READY, usable, Reason.SERVING if usable else Reason.ROLLING_OUT, summary)
    return (rolled_out, *progress_findings(ready, stalled=False, reconciling=not complete))


def _not_the_target(plan: PipelinePlan, rollout: Rollout) -> tuple[Finding, ...]:
    if rollout.hold is not None and rollout.hold.plan == plan.metadata.name:
        return _findings(False, False, rollout.hold.reason, rollout.hold.message, reconciling=True)
    if not plan.spec.approved:
        return _findings(False, False, Reason.AWAITING_APPROVAL, approval_hint(plan), reconciling=True)
    return _findings(True, False, Reason.SUPERSEDED, "Another plan serves. This plan is kept for a rollback.")


def _findings(
    ready: ConditionStatus | bool,
    rolled_out: ConditionStatus | bool,
    reason: Reason,
    message: str,
    *,
    stalled: bool = False,
    reconciling: bool = False,
) -> tuple[Finding, ...]:
    """All four with the same reason and message."""
    return (
        Finding(ConditionType.ROLLED_OUT, rolled_out, reason, message),
        *progress_findings(Finding(ConditionType.READY, ready, reason, message), stalled, reconciling),
    )


def scaled_to_zero_summary(rollout: Rollout, besides: str = "") -> str:
    """One sentence about a plan without replicas."""
    name = rollout.target.metadata.name if rollout.target is not None else ""
    return f"Plan {name} has scaled to zero. The next request is held until its replicas are up. {besides}".strip()


def rollout_summary(rollout: Rollout) -> str:
    """One sentence about the progress of the roll-out."""
    desired = sum(t.replicas for t in rollout.targets)
    up = sum(min(t.replicas, rollout.ready.get((t.module, t.pipeline, t.stage), 0)) for t in rollout.targets)
    text = f"{up} of {desired} replicas are up"
    if rollout.missing:
        lacking = ", ".join(
            f"{t.module}/{t.pipeline}/{t.stage} has {rollout.ready.get((t.module, t.pipeline, t.stage), 0)} of "
            f"{t.replicas}"
            for t in rollout.missing[:4]
        )
        text += f" ({lacking}{', ...' if len(rollout.missing) > 4 else ''})"
    if not rollout.serves:
        text += "; the frontends do not use the plan yet"
    return f"{text}."
