"""Planning from manifests and profiles alone: for previews, without a cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import PipelinePlanSpec, SessionRef
from partita_api.profile import Profile
from partita_api.session.module import Module
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned, PlanningProblem, Pool
from partita_planner.several_sessions.joint_planning import JointOutcome, Plan, plan_jointly


def plan_offline(
    pools: Sequence[GPUPool],
    sessions: Sequence[InferenceSession],
    profiles: Sequence[Profile],
    plan: Callable[[PlanningProblem], Outcome],
    current_plans: Mapping[str, PipelinePlanSpec] | None = None,
) -> Iterator[tuple[InferenceSession, Outcome]]:
    """Plans the sessions in their order; each may use the GPUs that the plans before it leave.

    `current_plans` serve now, by the session's key.
    """
    free = {pool.metadata.name: declared_capacity(pool) for pool in pools}
    present = {pool.metadata.name: declared_present(pool) for pool in pools}
    for session in sessions:
        problem = offline_problem(pools, session, profiles, free, present)
        serving = (current_plans or {}).get(session.key)
        outcome = _unknown_pools(session, pools) or plan(replace(problem, current_plan=serving))
        if isinstance(outcome, Planned):
            for name, used in outcome.plan.gpus().items():
                free[name] -= used
                present[name] = max(0, present[name] - used)
        yield session, outcome


def plan_offline_jointly(
    pools: Sequence[GPUPool], sessions: Sequence[InferenceSession], profiles: Sequence[Profile], plan: Plan
) -> JointOutcome:
    """Plans all sessions together, within the sum of their time limits.

    Raises JointPlanningError for sessions that cannot be planned together.
    """
    free = {pool.metadata.name: declared_capacity(pool) for pool in pools}
    if any(_unknown_pools(session, pools) for session in sessions):
        known = NoPlan(
            NoPlanReason.INVALID_SESSION, "Another session names an unknown GPUPool. See that session's reason."
        )
        return JointOutcome(tuple(_unknown_pools(session, pools) or known for session in sessions), None, None)
    problems = [offline_problem(pools, session, profiles, free) for session in sessions]
    return plan_jointly(problems, sum(s.spec.planner.time_limit_seconds for s in sessions), plan)


def offline_problem(
    pools: Sequence[GPUPool],
    session: InferenceSession,
    profiles: Sequence[Profile],
    free: Mapping[str, int],
    present: Mapping[str, int] | None = None,
) -> PlanningProblem:
    """The problem of one session at its declared rate, with so many GPUs `free` in each pool.

    So many of them are `present`, by default all.
    """
    there = free if present is None else present
    usable = [pool for pool in pools if session.spec.selects(pool.metadata)]
    meta = session.metadata
    return PlanningProblem(
        session=SessionRef(name=meta.name, uid=meta.uid, generation=meta.generation),
        spec=session.spec,
        rate=float(session.spec.rate.requests_per_second),
        pools=tuple(
            Pool.partly_present(p.metadata.name, p.spec, free[p.metadata.name], there[p.metadata.name]) for p in usable
        ),
        profiles={
            (module.name, pool.metadata.name): profile
            for module in with_size_classes(session.spec).modules
            for pool in usable
            if (profile := _profile_of(module, pool.metadata.name, session, profiles)) is not None
        },
    )


def declared_capacity(pool: GPUPool) -> int:
    """The GPUs that the manifest declares, else the capacity in its status."""
    if pool.spec.elastic is not None:
        return max(pool.spec.elastic.max_count, pool.status.capacity)
    return pool.status.capacity if pool.spec.count is None else pool.spec.count


def declared_present(pool: GPUPool) -> int:
    """How many of the declared GPUs are there. The manifest of an elastic pool does not say it; its status does."""
    return declared_capacity(pool) if pool.spec.elastic is None else pool.status.present


def _unknown_pools(session: InferenceSession, pools: Sequence[GPUPool]) -> NoPlan | None:
    known = [pool.metadata.name for pool in pools]
    unknown = [name for name in session.spec.pools if name not in known]
    if not unknown:
        return None
    return NoPlan(
        NoPlanReason.INVALID_SESSION,
        f"spec.pools names {', '.join(unknown)}, but the known GPUPools are: {', '.join(known) or 'none'}. "
        f"Add the pool's manifest, or correct the name.",
    )


def _profile_of(module: Module, pool: str, session: InferenceSession, profiles: Sequence[Profile]) -> Profile | None:
    """The profile of the module's model on the pool for the session's backend; of several, the most detailed one."""
    fitting = [
        p
        for p in profiles
        if (p.request.model, p.request.takes, p.request.pool, p.request.backend)
        == (module.model, module.takes, pool, session.spec.execution.backend)
    ]
    return max(fitting, key=lambda p: (len(p.batch_sizes), p.blocks, p.key), default=None)
