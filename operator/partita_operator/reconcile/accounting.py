"""Who holds which accelerators, and how many a session may use.

A session holds what its plan in force and its pending plan need, pool by pool the larger of the two: a migration
re-uses what the session has. What a plan was promised stays with it while the autoscaler needs less of it.
Sessions are served in the order of their rank: their priority, then their age. Where a pool has shrunk, the lowest give
way; where a session of higher priority needs what they hold, those of lower priority do. A pool may have quotas, the
most that the sessions of one namespace may hold together, to which the same order applies. Accelerators are held whole,
as the planner counts them: none is shared by two sessions, or divided into vGPUs of two sizes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.world import Cluster


def by_rank(sessions: Iterable[InferenceSession]) -> list[InferenceSession]:
    """Highest priority first, then oldest, then by key: the order in which sessions are served."""
    return sorted(sessions, key=lambda s: (-s.spec.priority, s.metadata.creation_timestamp, s.key))


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
    return _largest(cluster, session, (_active(session), session.status.pending_plan))


def claim(session: InferenceSession, cluster: Cluster) -> dict[str, int]:
    """What a session may take from those of lower priority, by pool: what it holds, but for a plan that waits."""
    return _largest(cluster, session, (_active(session), _coming(session)))


def goal(session: InferenceSession, cluster: Cluster) -> dict[str, int]:
    """What a session was promised by the plan that it is heading for, by pool. It changes with its plans only."""
    plan = cluster.plans_of(session).get(_coming(session) or _active(session) or "")
    return dict(plan.spec.gpus()) if plan is not None else {}


def _active(session: InferenceSession) -> str | None:
    return session.status.active_plan.name if session.status.active_plan else None


def _coming(session: InferenceSession) -> str | None:
    """The pending plan, unless a person or a window holds it."""
    waits = session.status.preview is not None and session.status.preview.plan == session.status.pending_plan
    return None if waits else session.status.pending_plan


def _largest(cluster: Cluster, session: InferenceSession, names: Iterable[str | None]) -> dict[str, int]:
    plans = cluster.plans_of(session)
    held: dict[str, int] = {}
    for name in names:
        for pool, gpus in accelerators(plans[name]).items() if name in plans else ():
            held[pool] = max(held.get(pool, 0), gpus)
    return held


def available(session: InferenceSession, cluster: Cluster, quotas: bool = True, taking: bool = False) -> dict[str, int]:
    """Whole accelerators that the session may plan with, by usable pool, its own included.

    Sessions of higher rank keep what they hold. Those of lower rank do as far as the pool's capacity, and the quota of
    the session's namespace, reach; with `taking`, those of lower priority keep nothing. Without `quotas`, namespaces
    have none.
    """
    ordered = by_rank(cluster.sessions.values())
    position = next((i for i, s in enumerate(ordered) if s.key == session.key), len(ordered))
    higher = [(s.metadata.namespace, holding(s, cluster)) for s in ordered[:position]]
    lower = [
        (s.metadata.namespace, holding(s, cluster))
        for s in ordered[position + 1 :]
        if not taking or s.spec.priority >= session.spec.priority
    ]
    own, namespace = holding(session, cluster), session.metadata.namespace

    def left(pool: str, limit: int, of_namespace: bool) -> int:
        """What is left of `limit` accelerators of the pool, which all sessions share or those of the namespace."""
        before, after = (
            sum(held.get(pool, 0) for where, held in others if not of_namespace or where == namespace)
            for others in (higher, lower)
        )
        return limit - before - min(after, max(0, limit - before - own.get(pool, 0)))

    free: dict[str, int] = {}
    for name, entitled in entitlements(session, cluster, quotas).items():
        pool = cluster.pools[name]
        limits = [left(name, pool.status.capacity, of_namespace=False), entitled]
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            limits.append(left(name, quota, of_namespace=True))
        free[name] = max(0, min(limits))
    return free


def entitlements(session: InferenceSession, cluster: Cluster, quotas: bool = True) -> dict[str, int]:
    """Most accelerators of each usable pool that the session may ever use, whatever its equals hold now.

    That is what the plans of sessions of higher priority leave. Sessions that maximise throughput would each take all
    of it, or the whole quota of their namespace; those of one priority share it in proportion to their weights, to the
    whole accelerator.
    """
    namespace = session.metadata.namespace
    above = [
        (s.metadata.namespace, goal(s, cluster))
        for s in cluster.sessions.values()
        if s.spec.priority > session.spec.priority
    ]
    greedy = by_rank(
        s
        for s in cluster.sessions.values()
        if s.spec.objective.kind.seeks_throughput
        and s.spec.priority == session.spec.priority
        and s.metadata.deletion_timestamp is None
    )
    entitled: dict[str, int] = {}
    for name, pool in usable_pools(session, cluster.pools).items():
        rivals = [s for s in greedy if name in usable_pools(s, {name: pool})]
        taken = [(where, held.get(name, 0)) for where, held in above]
        entitled[name] = _share(max(0, pool.status.capacity - sum(gpus for _, gpus in taken)), session, rivals)
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            rest = max(0, quota - sum(gpus for where, gpus in taken if where == namespace))
            rivals = [s for s in rivals if s.metadata.namespace == namespace]
            entitled[name] = min(entitled[name], _share(rest, session, rivals))
    return entitled


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
    """Accelerators of the pool that each session has, by session key; sessions that have none are left out."""
    limits = outranked_limits(cluster)
    held = {}
    for session in by_rank(cluster.sessions.values()):
        gpus = holding(session, cluster).get(pool, 0)
        held[session.key] = min(gpus, limits.get(session.key, {}).get(pool, gpus))
    return {key: gpus for key, gpus in held.items() if gpus > 0}


def outranked_limits(cluster: Cluster) -> dict[str, dict[str, int]]:
    """The most that sessions may keep where those of higher priority claim accelerators, by session key and pool.

    A pool, or a namespace's quota of it, of which no session of higher priority claims anything sets no limit. What is
    left goes to the sessions of one priority by age.
    """
    if len({session.spec.priority for session in cluster.sessions.values()}) < 2:
        return {}
    levels = groupby(by_rank(cluster.sessions.values()), key=lambda s: s.spec.priority)
    limits: dict[str, dict[str, int]] = {}
    # By pool and namespace; "" stands for all namespaces together, whose quota is the pool's capacity.
    taken: Counter[tuple[str, str]] = Counter()
    for _, level in levels:
        above = Counter(taken)
        for session in level:
            namespace = session.metadata.namespace or "default"
            own = limits[session.key] = {}
            for name in {pool for pool, _ in above} & cluster.pools.keys():
                pool = cluster.pools[name]
                quotas = {(name, ""): pool.status.capacity, (name, namespace): pool.spec.quota(namespace)}
                rooms = [most - taken[of] for of, most in quotas.items() if most is not None and above[of] > 0]
                if rooms:
                    own[name] = max(0, min(rooms))
            for name, gpus in claim(session, cluster).items():
                gained = min(gpus, own.get(name, gpus))
                taken[name, ""] += gained
                taken[name, namespace] += gained
    return limits
