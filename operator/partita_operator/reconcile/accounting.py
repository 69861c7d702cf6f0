"""Who holds which accelerators, and how many a session may use.

A session holds what its plan in force and its pending plan need, pool by pool the larger of the two: a migration
re-uses what the session has. What a plan was promised stays with it while the autoscaler needs less of it.
Sessions are served in the order of their age; where a pool has shrunk, the youngest give way. A pool may have quotas,
the most that the sessions of one namespace may hold together, to which the same order applies. Accelerators are held
whole, as the planner counts them: none is shared by two sessions, or divided into vGPUs of two sizes.
"""

from collections.abc import Iterable, Mapping, Sequence

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.world import Cluster


def by_age(sessions: Iterable[InferenceSession]) -> list[InferenceSession]:
    """Oldest first, then by key: the order in which sessions are served."""
    return sorted(sessions, key=lambda s: (s.metadata.creation_timestamp, s.key))


def selected_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The pools that the session's spec selects and that exist, by name; those being deleted too."""
    return {name: pool for name, pool in sorted(pools.items()) if session.spec.selects(pool.metadata)}


def usable_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The selected pools that a new plan may use: not being deleted, and with accelerators."""
    return {
        name: pool
        for name, pool in selected_pools(session, pools).items()
        if pool.metadata.deletion_timestamp is None and pool.status.capacity > 0
    }


def accelerators(plan: PipelinePlan) -> dict[str, int]:
    """What a plan holds by pool: at least its planned replicas, and more where the autoscaler added some."""
    planned = {
        (module.name, pipeline.name, position): stage.replicas
        for module in plan.spec.modules
        for pipeline in module.pipelines
        for position, stage in enumerate(pipeline.stages)
    }
    desired = {(s.module, s.pipeline, s.stage): s.desired for s in plan.status.stages}
    return plan.spec.gpus({stage: max(count, desired.get(stage, 0)) for stage, count in planned.items()})


def holding(session: InferenceSession, cluster: Cluster) -> dict[str, int]:
    """What a session holds by pool."""
    status = session.status
    plans = cluster.plans_of(session)
    held: dict[str, int] = {}
    for name in (status.active_plan.name if status.active_plan else None, status.pending_plan):
        for pool, gpus in accelerators(plans[name]).items() if name in plans else ():
            held[pool] = max(held.get(pool, 0), gpus)
    return held


def available(session: InferenceSession, cluster: Cluster, quotas: bool = True) -> dict[str, int]:
    """Whole accelerators that the session may plan with, by usable pool, its own included.

    Older sessions keep what they hold. Younger ones do as far as the pool's capacity, and the quota of the session's
    namespace, reach. Without `quotas`, namespaces have none.
    """
    ordered = by_age(cluster.sessions.values())
    position = next((i for i, s in enumerate(ordered) if s.key == session.key), len(ordered))
    older = [(s.metadata.namespace, holding(s, cluster)) for s in ordered[:position]]
    younger = [(s.metadata.namespace, holding(s, cluster)) for s in ordered[position + 1 :]]
    own, namespace = holding(session, cluster), session.metadata.namespace

    def left(pool: str, limit: int, of_namespace: bool) -> int:
        """What is left of `limit` accelerators of the pool, which all sessions share or those of the namespace."""
        before, after = (
            sum(held.get(pool, 0) for where, held in others if not of_namespace or where == namespace)
            for others in (older, younger)
        )
        return limit - before - min(after, max(0, limit - before - own.get(pool, 0)))

    free: dict[str, int] = {}
    for name, pool in usable_pools(session, cluster.pools).items():
        limits = [left(name, pool.status.capacity, of_namespace=False), entitlement(session, name, cluster, quotas)]
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            limits.append(left(name, quota, of_namespace=True))
        free[name] = max(0, min(limits))
    return free


def entitlement(session: InferenceSession, pool: str, cluster: Cluster, quotas: bool = True) -> int:
    """Most accelerators of a pool that the session may ever use, whatever others hold now.

    Sessions that maximise throughput would each take the whole pool, or the whole quota of their namespace; they share
    it in proportion to their weights, to the whole accelerator. All others may use everything.
    """
    found = cluster.pools[pool]
    greedy = [
        s
        for s in by_age(cluster.sessions.values())
        if s.spec.objective.kind.seeks_throughput
        and s.metadata.deletion_timestamp is None
        and pool in usable_pools(s, cluster.pools)
    ]
    share = _share(found.status.capacity, session, greedy)
    quota = found.spec.quota(session.metadata.namespace) if quotas else None
    if quota is None:
        return share
    return min(share, _share(quota, session, [s for s in greedy if s.metadata.namespace == session.metadata.namespace]))


def _share(gpus: int, session: InferenceSession, greedy: Sequence[InferenceSession]) -> int:
    """What the session may use of what `greedy` sessions share by weight; all of it if it is not one of them."""
    total = sum(s.spec.objective.weight for s in greedy)
    passed = 0
    for other in greedy:
        upto = passed + other.spec.objective.weight
        if other.key == session.key:
            return gpus * upto // total - gpus * passed // total
        passed = upto
    return gpus


def fits(plan: PipelinePlan, free: Mapping[str, int]) -> bool:
    """Whether the planned replicas of `plan` fit into what is available."""
    return not short_of(plan, free)


def short_of(plan: PipelinePlan, free: Mapping[str, int]) -> dict[str, int]:
    """Accelerators by pool that the planned replicas of `plan` need beyond what is available."""
    return {pool: gpus - free.get(pool, 0) for pool, gpus in plan.spec.gpus().items() if gpus > free.get(pool, 0)}


def users(pool: str, cluster: Cluster) -> dict[str, int]:
    """Accelerators of the pool that each session holds, by session key; sessions that hold none are left out."""
    held = {session.key: holding(session, cluster).get(pool, 0) for session in by_age(cluster.sessions.values())}
    return {key: gpus for key, gpus in held.items() if gpus > 0}
