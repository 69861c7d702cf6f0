"""The conditions of a session, in the order of the steps: profiles, plan, roll-out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.inferencesession import InferenceSession, Signals
from partita_operator.reconcile import commands
from partita_operator.reconcile.capacity.accounting import selected_pools
from partita_operator.reconcile.capacity.priorities import outranked_shortage
from partita_operator.reconcile.capacity.quotas import quota_shortage
from partita_operator.reconcile.findings import Finding, condition, listed, progress_findings
from partita_operator.reconcile.quality import QualityGate, quality_met
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.session.annotations import Rollback
from partita_operator.reconcile.session.client_access import ClientAccess
from partita_operator.reconcile.session.exposure.decision import Exposure
from partita_operator.reconcile.session.holds import held
from partita_operator.reconcile.session.plan_conditions import rollout_summary, scaled_to_zero_summary
from partita_operator.reconcile.session.planning import Planning
from partita_operator.reconcile.session.profiling.changed_content import ContentChanges
from partita_operator.reconcile.session.profiling.profiles import Pair, Profiling
from partita_operator.reconcile.session.rollout import Rollout
from partita_operator.reconcile.session.validation import SpecProblem
from partita_operator.reconcile.versions import SessionVersions
from partita_operator.reconcile.world import SessionWorld
from partita_planner.problem import NoPlan, NoPlanReason

_ROLL_OUT_REASONS: Final = frozenset(
    {
        Reason.ROLLED_OUT,
        Reason.ROLLING_OUT,
        Reason.WAITING_FOR_NODES,
        Reason.SCALING,
        Reason.SCALED_TO_ZERO,
        Reason.SCALING_FROM_ZERO,
    }
)


@dataclass(frozen=True)
class Pass:
    """The results of one pass over a session, step by step."""

    world: SessionWorld
    problem: SpecProblem | None
    """Why the later steps were skipped, if they were."""
    content: ContentChanges
    profiling: Profiling
    planning: Planning
    rollback: Rollback
    rollout: Rollout
    access: ClientAccess
    versions: SessionVersions
    quality: QualityGate
    exposure: Exposure
    current: str | None
    """Name of the current plan."""


def session_findings(step: Pass) -> tuple[Finding, ...]:
    """All conditions of the session."""
    profiled, planned = _profiled(step), _planned(step)
    rolled_out = _rolled_out(step, planned)
    ready, stalled = _ready(step, profiled, planned, rolled_out)
    settled = ready.status is True and rolled_out.status is True
    found = (step.exposure.finding, step.access.finding, step.versions.finding, _quality_met(step))
    return (
        profiled,
        planned,
        _with_remarks(rolled_out, step),
        held(step.rollout.hold, step.rollback),
        *(finding for finding in found if finding is not None),
        slo_met(step.world.session, step.world.signals.reported if step.world.signals else None),
        *progress_findings(ready, stalled=stalled, reconciling=not stalled and not settled),
    )


def _profiled(step: Pass) -> Finding:
    type = ConditionType.PROFILED
    if step.problem is not None:
        return _not_reached(type, step.problem)
    found = step.profiling
    if found.modules_without:
        retry = commands.retry_profiling(step.world.session.metadata)
        message = (
            f"No pool has a profile of {', '.join(found.modules_without)}: {_missing(found.missing)} Correct the "
            f"module or the pool. To try again without a change: {retry}"
        )
        return Finding(type, False, Reason.QUOTA_EXCEEDED if found.by_quota else Reason.PROFILING_FAILED, message)
    there, desired = len(found.ready), len(found.ready) + len(found.running) + len(found.missing)
    if found.running:
        names = [f"{module} on {pool}" for module, pool in found.running]
        message = f"{there} of {desired} profiles exist. In progress: {listed(names)}."
        if found.waiting:
            message += f" Not started: {_missing(found.waiting)}"
        message = f"{message} {_missing(found.missing)}".strip()
        return Finding(type, False, Reason.PROFILING, message)
    if found.missing:
        message = f"{there} of {desired} profiles exist, and plans use only these. {_missing(found.missing)}"
        return Finding(type, False, Reason.SOME_PROFILES_MISSING, message)
    message = f"{there} of {desired} profiles exist. {_warnings(step)}".strip()
    return Finding(type, True, Reason.PROFILES_READY, message)


def _planned(step: Pass) -> Finding:
    type, planning = ConditionType.PLANNED, step.planning
    if step.problem is not None:
        return _not_reached(type, step.problem)
    if planning.desired is not None:
        plan = planning.desired
        message = (
            f"Plan {plan.metadata.name} serves {plan.spec.throughput} requests/s for "
            f"{plan.spec.cost.allocated_per_hour} an hour ({plan.spec.solution.strategy})."
        )
        return Finding(type, True, Reason.PLAN_READY, message)
    if planning.no_plan is not None:
        if quota := quota_shortage(planning.no_plan, step.world.availability):
            return Finding(type, False, Reason.QUOTA_EXCEEDED, f"{quota} {planning.no_plan.message}")
        if outranked := outranked_shortage(planning.no_plan, step.world.session, step.world.cluster):
            return Finding(type, False, Reason.OUTRANKED, f"{outranked} {planning.no_plan.message}")
        message = " ".join([planning.no_plan.message, *_timed_out(step, planning.no_plan)])
        return Finding(type, False, planning.no_plan.reason, message)
    if step.rollout.hold is not None and step.rollout.hold.reason == Reason.PAUSED:
        return Finding(
            type,
            False,
            Reason.PAUSED,
            "Partita makes no plan, because the session is paused. The condition Held says how to resume.",
        )
    if step.profiling.running or step.profiling.modules_without:
        return Finding(type, False, Reason.WAITING_FOR_PROFILES, "Planning starts when the profiles are complete.")
    return Finding(type, False, Reason.PLANNING, "The planner searches for a plan.")


def _rolled_out(step: Pass, planned: Finding) -> Finding:
    type, rollout, desired = ConditionType.ROLLED_OUT, step.rollout, step.planning.desired
    if step.problem is not None:
        return _not_reached(type, step.problem)
    if step.world.serving is None:
        return Finding(type, ConditionStatus.UNKNOWN, Reason.ENGINE_UNAVAILABLE, step.world.problem)
    if rollout.outranked:
        return Finding(type, False, Reason.OUTRANKED, rollout.outranked)
    if desired is None:
        return Finding(type, False, planned.reason, f"No plan can be rolled out.{_still_serving(step)}")
    if rollout.hold is not None and rollout.hold.plan is not None:
        return Finding(type, False, rollout.hold.reason, f"{rollout.hold.message}{_still_serving(step)}")
    if step.world.problem:
        return Finding(type, False, Reason.ACTION_FAILED, f"{step.world.problem} Partita tries again.")
    summary = (
        f"Plan {desired.metadata.name}: {rollout_summary(rollout)} {rollout.obstacle or step.world.serving.message}"
    )
    if rollout.obstacle:
        return Finding(type, False, Reason.ROLLING_OUT, summary.strip())
    if rollout.serves and rollout.at_zero:
        return Finding(type, True, Reason.SCALED_TO_ZERO, scaled_to_zero_summary(rollout, step.world.serving.message))
    if rollout.serves and not rollout.missing:
        return Finding(type, True, Reason.ROLLED_OUT, summary.strip())
    if awaited := _awaited_nodes(step):
        return Finding(type, False, Reason.WAITING_FOR_NODES, f"{summary} {awaited}{_meanwhile(step)}")
    if rollout.serves and rollout.every_stage_up:
        return Finding(type, False, Reason.SCALING, summary.strip())
    if rollout.serves and _was_at_zero(step):
        return Finding(
            type, False, Reason.SCALING_FROM_ZERO, f"Requests are held until replicas are up. {summary}".strip()
        )
    return Finding(type, False, Reason.ROLLING_OUT, summary.strip())


def _quality_met(step: Pass) -> Finding | None:
    desired = step.planning.desired
    return quality_met(step.world, step.quality, desired.metadata.name if desired is not None else step.current)


def _awaited_nodes(step: Pass) -> str:
    """Which accelerators of the target are not present and come with nodes; empty if all are there."""
    target, pools = step.rollout.target, step.world.cluster.pools
    if target is None or not step.rollout.missing:
        return ""
    elastic = {name: pools[name].status.elastic for name in target.spec.gpus() if name in pools}
    return " ".join(
        f"{status.pending} accelerators of pool {name} are not present; their pods wait for nodes since "
        f"{status.pending_since}."
        for name, status in elastic.items()
        if status is not None and status.pending
    )


def _meanwhile(step: Pass) -> str:
    """The plan that serves while another one waits."""
    return _still_serving(step) if step.rollout.target and step.current != step.rollout.target.metadata.name else ""


def _timed_out(step: Pass, no_plan: NoPlan) -> Iterator[str]:
    """The pools whose requested nodes did not come, if a plan lacks accelerators."""
    if no_plan.reason is not NoPlanReason.INSUFFICIENT_CAPACITY:
        return
    for name, pool in selected_pools(step.world.session, step.world.cluster.pools).items():
        if pool.status.backs_off:
            yield f"Requested nodes of pool {name} did not come. The reason: {commands.describe_pool(name)}"


def _with_remarks(rolled_out: Finding, step: Pass) -> Finding:
    """RolledOut, with what is not as planned, such as replicas on the CPU; no other condition repeats it."""
    if step.world.serving is None or rolled_out.reason not in _ROLL_OUT_REASONS:
        return rolled_out
    return replace(rolled_out, message=" ".join([rolled_out.message, *map(str, step.world.serving.remarks)]))


def _ready(step: Pass, profiled: Finding, planned: Finding, rolled_out: Finding) -> tuple[Finding, bool]:
    """Ready, with what prevents it, and whether a person has to act."""
    if step.problem is not None:
        return _not_ready(step, step.problem.reason, step.problem.message), step.problem.stalled
    if step.rollout.outranked:
        return _not_ready(step, Reason.OUTRANKED, step.rollout.outranked), True
    if profiled.reason in (Reason.PROFILING_FAILED, Reason.QUOTA_EXCEEDED):
        return _not_ready(step, profiled.reason, profiled.message), step.profiling.gives_up
    if planned.status is False:
        because = profiled if planned.reason == Reason.WAITING_FOR_PROFILES else planned
        return _not_ready(step, because.reason, because.message), step.planning.no_plan is not None
    if step.world.serving is None:
        message = f"{step.world.problem} Replicas stay as they are. Partita tries again."
        return Finding(ConditionType.READY, ConditionStatus.UNKNOWN, Reason.ENGINE_UNAVAILABLE, message), False
    if step.access.nobody:
        reason = step.access.finding.reason if step.access.finding is not None else Reason.CLIENT_SECRET_MISSING
        return Finding(ConditionType.READY, False, reason, step.access.nobody), True
    at_target = step.rollout.serves and step.rollout.target == step.planning.desired
    if at_target and step.rollout.at_zero and step.rollout.missing_to_start:
        message = (
            f"The session has scaled to zero and cannot start replicas: {step.rollout.missing_to_start}. New requests "
            "are held and then refused. Free or add accelerators, or raise spec.priority."
        )
        return Finding(ConditionType.READY, False, Reason.CANNOT_SCALE_FROM_ZERO, message), True
    if at_target and step.rollout.at_zero:
        return Finding(ConditionType.READY, True, Reason.SCALED_TO_ZERO, rolled_out.message), False
    if at_target and step.rollout.every_stage_up:
        return Finding(ConditionType.READY, True, Reason.SERVING, rolled_out.message), False
    return Finding(ConditionType.READY, False, rolled_out.reason, rolled_out.message), False


def _was_at_zero(step: Pass) -> bool:
    before = condition(step.world.session.status.conditions, ConditionType.ROLLED_OUT)
    return before is not None and before.reason in (Reason.SCALED_TO_ZERO, Reason.SCALING_FROM_ZERO)


def _not_ready(step: Pass, reason: str, message: str) -> Finding:
    """Not ready for lack of a plan, with the last failure and the plan that keeps serving."""
    return Finding(ConditionType.READY, False, reason, f"{message} {step.world.problem}".strip() + _still_serving(step))


def slo_met(session: InferenceSession, signals: Signals | None) -> Finding:
    """Whether enough requests of the last window were answered in time."""
    type, unknown = ConditionType.SLO_MET, ConditionStatus.UNKNOWN
    if signals is None:
        return Finding(type, unknown, Reason.NO_SIGNALS, "No frontend has reported yet.")
    if signals.offered_rate.value == 0:
        return Finding(type, unknown, Reason.NO_TRAFFIC, "No requests arrived in the last window.")
    attained, target = 1 - float(signals.bad_rate), session.spec.slo.attainment
    met = attained >= target.fraction - 1e-9
    message = (
        f"{'At least' if met else 'Less than'} {target} of the requests were answered within "
        f"{session.spec.slo.latency_ms} ms over the last window."
    )
    if met:
        return Finding(type, True, Reason.SLO_MET, message)
    hint = f"To compare the load with the plan: {commands.explain(session.metadata)}"
    return Finding(type, False, Reason.SLO_MISSED, f"{message} {hint}")


def _not_reached(type: ConditionType, problem: SpecProblem) -> Finding:
    return Finding(type, ConditionStatus.UNKNOWN, problem.reason, "Not evaluated: the spec cannot be used.")


def _still_serving(step: Pass) -> str:
    return f" Plan {step.current} keeps serving." if step.current else ""


def _missing(missing: Mapping[Pair, str]) -> str:
    return listed([f"{module} on {pool}: {why}" for (module, pool), why in missing.items()], "; ")


def _warnings(step: Pass) -> str:
    """Warnings of the profiling runs, such as a model that cannot be cut into blocks; each once, with its modules."""
    said: dict[str, dict[str, None]] = {}
    for (module, _), key in step.profiling.ready.items():
        for line in step.world.profiles[key].environment.get("warnings", "").splitlines():
            said.setdefault(line, {})[module] = None
    return listed([f"{listed(list(modules))}: {line}" for line, modules in said.items()], "; ")
