"""Whether the session needs another plan, and how the plan is made.

A plan is made from inputs: the relevant parts of the session's spec, the pools, the profiles and the rate. Their digest
is in the plan's name. The desired plan is the one with the digest of the present inputs. So a plan is made only when an
input changes, and earlier inputs lead to the earlier plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from partita_api.digests import canonical_json, digest
from partita_api.fields.approval import Approval
from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import InferenceSession, InferenceSessionSpec, RateSource
from partita_api.measured import Measured
from partita_api.meta import INPUTS_ANNOTATION, SESSION_LABEL, SESSION_SPEC_ANNOTATION, ObjectMeta
from partita_api.pipelineplan import PipelinePlan, PipelinePlanSpec, ProfileRef, SessionRef
from partita_api.pool.ray_resource import template_digest
from partita_operator.ports import ServingSignals
from partita_operator.reconcile.actions import Action, ApprovePlan, CancelSolve, CreatePlan, DeletePlan, KeepPlan, Solve
from partita_operator.reconcile.capacity.accounting import fits, usable_pools
from partita_operator.reconcile.session.annotations import approved_plan, pause_reason
from partita_operator.reconcile.session.measured import measured, planned_spec
from partita_operator.reconcile.session.profiling.profiles import Profiling
from partita_operator.reconcile.world import Search, SessionWorld
from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem, Pool
from partita_runtime.autoscaling.load_level import RateHistory, lasting_level

SEARCH_AGAIN_SECONDS: Final = 300.0
"""Pause after a failed search (time limit, solver error) until the same search is repeated."""

_SPEC_THAT_PLANS_DEPEND_ON: Final = {"slo", "modules", "edges", "objective", "planner", "execution", "availability"}
_PLANNER_SETTINGS_THAT_DO_NOT_MATTER: Final = {"approval", "time_limit_seconds"}
_POOL_SPEC_THAT_PLANS_DEPEND_ON: Final = {
    "gpus_per_node",
    "price_per_hour",
    "power_watts",
    "bandwidth",
    "memory",
    "sharing",
    "emulation",
}


@dataclass(frozen=True)
class Planning:
    """Which plan the session should have."""

    desired: PipelinePlan | None = None
    """The plan of the present inputs, if it exists."""
    created: str | None = None
    """Name of the plan that this pass creates."""
    no_plan: NoPlan | None = None
    """The reason for no plan, if it is known."""
    searching: bool = False
    """Whether a search for it is in progress, or has just found it."""
    rolled_back: bool = False
    """Whether `desired` is an earlier plan of a rollback, and not the plan of the present inputs."""
    actions: tuple[Action, ...] = ()
    requeue_after: float | None = None


def with_measured_rate(
    history: RateHistory, session: InferenceSession, signals: ServingSignals | None, seconds: float
) -> RateHistory:
    """The history with the measurement at `seconds` of a monotonic clock.

    It begins with the first request, also after the session scaled to zero: a time without requests says nothing of
    the rate.
    """
    if session.status.scale_to_zero_time is not None:
        return RateHistory()
    if signals is None or (not history.samples and signals.reported.offered_rate.value == 0):
        return history
    return history.add(seconds, float(signals.reported.offered_rate))


def planned_rate(world: SessionWorld) -> float:
    """Requests per second to plan for: the declared rate, or the last lasting level."""
    rate, known = world.session.spec.rate, world.session.status.planned_rate
    if rate.source is RateSource.DECLARED:
        return float(rate.requests_per_second)
    level = float(known) if known is not None else float(rate.requests_per_second)
    if pause_reason(world.session) is not None:
        return level
    lasting = lasting_level(world.rates, level) or level
    return max(lasting, level) if world.keeping_pools else lasting


def inputs_digest(world: SessionWorld, profiling: Profiling) -> str:
    """Digest of everything that a plan of the session depends on, except for the accelerators of other sessions."""
    session, pools = world.session, world.cluster.pools
    spec = planned_spec(world).model_dump(
        mode="json",
        include=_SPEC_THAT_PLANS_DEPEND_ON,
        exclude={"planner": _PLANNER_SETTINGS_THAT_DO_NOT_MATTER},
    )
    arrivals = session.spec.rate.model_dump(mode="json", include={"arrival", "gamma_shape"})
    return digest(
        {
            "session": spec,
            "arrivals": arrivals,
            "rate": planned_rate(world),
            "pools": {
                name: {
                    "spec": pools[name].spec.model_dump(mode="json", include=_POOL_SPEC_THAT_PLANS_DEPEND_ON),
                    "gpus": gpus,
                }
                for name, gpus in world.availability.entitled.items()
            },
            "profiles": {
                f"{module}/{pool}": " ".join(filter(None, (key, world.profiles[key].content)))
                for (module, pool), key in sorted(profiling.ready.items())
            },
            # Replicas move to pods of another template as they move to another plan.
            **({"pods": pods} if (pods := template_digest(session.spec.pod_template)) else {}),
        }
    )


def decide_plan(world: SessionWorld, profiling: Profiling, current: PipelinePlan | None, now: datetime) -> Planning:
    """The plan for the present inputs, or the step that makes it. `current` is the plan that serves."""
    inputs = inputs_digest(world, profiling)
    desired = next((plan for plan in world.plans.values() if _answers(plan, inputs)), None)
    if desired is not None and (desired == current or fits(desired, world.availability.takeable)):
        return _approve(world.session, desired)
    if desired is not None:
        # A plan kept for a rollback, whose accelerators other sessions hold now.
        return Planning(actions=(DeletePlan(desired.metadata.name),), requeue_after=0.0)
    if leftover := _foreign_plan(world, plan_name(world.session, inputs)):
        return Planning(actions=(DeletePlan(leftover),), requeue_after=0.0)
    question, free, answer = _question(world, inputs, now)
    if answer is None:
        return Planning(searching=True, actions=(Solve(question, _problem(world, profiling, free, current)),))
    match answer.outcome:
        case None:
            return Planning(searching=True)
        case NoPlan() as no_plan:
            return Planning(no_plan=no_plan, requeue_after=_seconds_left(answer, now))
        case Planned(plan=spec) if current is not None and _same_replicas(world, current, spec, profiling):
            notes = {INPUTS_ANNOTATION: inputs, SESSION_SPEC_ANNOTATION: canonical_json(world.session.spec)}
            return Planning(searching=True, actions=(KeepPlan(current.metadata.name, notes),), requeue_after=0.0)
        case Planned(plan=spec):
            plan = _plan(world, spec, inputs, profiling)
            return Planning(created=plan.metadata.name, searching=True, actions=(CreatePlan(plan),), requeue_after=0.0)


def _question(world: SessionWorld, inputs: str, now: datetime) -> tuple[str, Mapping[str, int], Search | None]:
    """The search: its key, the accelerators to plan with, and the answer so far.

    By default these are the free accelerators. If they are too few, the session is also planned with `takeable`, the
    accelerators of sessions with lower priority. A session that maximises throughput uses them at once, because it
    never has enough.
    """
    free, takeable = world.availability.free, world.availability.takeable
    takes = digest({"inputs": inputs, "takeable": dict(sorted(takeable.items()))})
    answer = world.search if world.search is not None and not _is_stale(world.search, now) else None
    if free == takeable or world.session.spec.objective.type.seeks_throughput:
        return takes, takeable, answer if answer is not None and answer.key == takes else None
    free_key = digest({"inputs": inputs, "free": dict(sorted(free.items()))})
    if answer is not None and answer.key == free_key:
        short = isinstance(answer.outcome, NoPlan) and answer.outcome.reason is NoPlanReason.INSUFFICIENT_CAPACITY
        return (takes, takeable, None) if short else (free_key, free, answer)
    if answer is not None and answer.key == takes:
        return takes, takeable, answer
    return free_key, free, None


def keep_current_plan(world: SessionWorld, profiling: Profiling, current: PipelinePlan | None) -> Planning:
    """No new plan: the current plan is desired if it is the plan of the present inputs."""
    answers = current is not None and _answers(current, inputs_digest(world, profiling))
    return Planning(desired=current if answers else None, actions=keep_planning(world).actions)


def keep_rolled_back(world: SessionWorld, plan: PipelinePlan) -> Planning:
    """An earlier plan is desired; the request for a rollback also approves it."""
    approval = () if plan.spec.approved else (ApprovePlan(plan.metadata.name),)
    return Planning(desired=plan, rolled_back=True, actions=(*keep_planning(world).actions, *approval))


def keep_planning(world: SessionWorld) -> Planning:
    """No planning now; a search in progress is cancelled."""
    searching = world.search is not None and world.search.outcome is None
    return Planning(actions=(CancelSolve(),) if searching else ())


def plan_name(session: InferenceSession, inputs: str) -> str:
    """The name of the plan of these inputs."""
    return f"{session.metadata.name}-{inputs[:8]}"


def rate_to_record(world: SessionWorld) -> Quantity | None:
    """The measured rate that plans are made for. The status keeps it for the next operator."""
    if world.session.spec.rate.source is RateSource.DECLARED:
        return None
    level = planned_rate(world)
    if world.session.status.planned_rate is None and level == world.session.spec.rate.requests_per_second:
        return None
    return Quantity(level)


def recorded_spec(plan: PipelinePlan) -> InferenceSessionSpec | None:
    """The session's spec that `plan` was made from; None if the plan does not record it."""
    try:
        return InferenceSessionSpec.model_validate_json(plan.metadata.annotations.get(SESSION_SPEC_ANNOTATION, ""))
    except ValidationError:
        return None


def _answers(plan: PipelinePlan, inputs: str) -> bool:
    return inputs in (plan.spec.inputs_digest, plan.metadata.annotations.get(INPUTS_ANNOTATION))


def _same_replicas(world: SessionWorld, current: PipelinePlan, found: PipelinePlanSpec, profiling: Profiling) -> bool:
    """Whether the current plan equals the found one, including what its replicas load: then no replica moves."""
    before, session = recorded_spec(current), world.session
    return (
        before is not None
        and (before.modules, before.edges, before.execution, before.pod_template)
        == (session.spec.modules, session.spec.edges, session.spec.execution, session.spec.pod_template)
        and current.spec.modules == found.modules
        and (current.spec.measured or Measured()).endpoints == (measured(world) or Measured()).endpoints
        and all(
            profiling.ready.get((ref.module, ref.pool)) == ref.key and ref.content == world.profiles[ref.key].content
            for ref in current.spec.profiles
        )
    )


def _approve(session: InferenceSession, desired: PipelinePlan) -> Planning:
    approved = session.spec.planner.approval is Approval.AUTOMATIC or approved_plan(session) == desired.metadata.name
    approve = approved and not desired.spec.approved
    return Planning(desired=desired, actions=(ApprovePlan(desired.metadata.name),) if approve else ())


def _foreign_plan(world: SessionWorld, name: str) -> str | None:
    """A plan of that name that belongs to an earlier session of the same name."""
    return name if f"{world.session.metadata.namespace}/{name}" in world.cluster.plans else None


def _problem(
    world: SessionWorld, profiling: Profiling, free: Mapping[str, int], current: PipelinePlan | None
) -> PlanningProblem:
    pools, present = usable_pools(world.session, world.cluster.pools), world.availability.present
    return PlanningProblem(
        session=_reference(world.session),
        spec=planned_spec(world),
        rate=planned_rate(world),
        pools=tuple(Pool.partly_present(name, pool.spec, free[name], present[name]) for name, pool in pools.items()),
        profiles={pair: world.profiles[key] for pair, key in sorted(profiling.ready.items())},
        current_plan=current.spec if current else None,
    )


def _reference(session: InferenceSession) -> SessionRef:
    meta = session.metadata
    return SessionRef(name=meta.name, uid=meta.uid, generation=meta.generation)


def _plan(world: SessionWorld, spec: PipelinePlanSpec, inputs: str, profiling: Profiling) -> PipelinePlan:
    session = world.session
    used = {(m.name, stage.pool) for m in spec.modules for p in m.pipelines for stage in p.stages}
    return PipelinePlan(
        metadata=ObjectMeta(
            name=plan_name(session, inputs),
            namespace=session.metadata.namespace,
            labels={SESSION_LABEL: session.metadata.name},
            annotations={SESSION_SPEC_ANNOTATION: canonical_json(session.spec)},
        ),
        spec=spec.model_copy(
            update={
                "approved": session.spec.planner.approval is Approval.AUTOMATIC,
                "session": _reference(session),
                "inputs_digest": inputs,
                "measured": measured(world),
                "profiles": tuple(
                    ProfileRef(module=pair[0], pool=pair[1], key=key, content=world.profiles[key].content)
                    for pair, key in sorted(profiling.ready.items())
                    if pair in used
                ),
            }
        ),
    )


def _is_stale(answer: Search, now: datetime) -> bool:
    left = _seconds_left(answer, now)
    return left is not None and left <= 0


def _seconds_left(answer: Search, now: datetime) -> float | None:
    """Seconds until the same search is repeated; None if it is not."""
    failed = isinstance(answer.outcome, NoPlan) and answer.outcome.reason in (
        NoPlanReason.TIME_LIMIT,
        NoPlanReason.INVALID_PLAN,
    )
    if not failed or answer.finished is None:
        return None
    return SEARCH_AGAIN_SECONDS - (now - answer.finished).total_seconds()
