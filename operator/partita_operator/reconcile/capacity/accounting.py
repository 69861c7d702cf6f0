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
from partita_operator.reconcile.capacity.ledger import Account, account_of
from partita_operator.reconcile.world import Cluster


def selected_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The pools that the session's spec selects and that exist, by name; those being deleted too."""
    named = {name: pools[name] for name in session.spec.pools if name in pools} if session.spec.pools else pools
    return {name: pool for name, pool in sorted(named.items()) if session.spec.selects(pool.metadata)}


def usable_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The selected pools that a new plan may use: not being deleted, and with accelerators."""
    return {
        name: pool
        for name, pool in selected_pools(session, pools).items()
        if pool.metadata.deletion_timestamp is None and pool.status.capacity > 0
    }


def holding(session: InferenceSession, cluster: Cluster) -> Mapping[str, int]:
    """What a session holds by pool."""
    if cluster.sessions.get(session.key) is session:
        return cluster.ledger.accounts[session.key].held
    return account_of(session, cluster.plans_of(session)).held


def available(session: InferenceSession, cluster: Cluster, quotas: bool = True, taking: bool = False) -> dict[str, int]:
    """Whole accelerators that the session may plan with, by usable pool, its own included.

    Sessions of higher rank keep what they hold. Those of lower rank do as far as the pool's capacity, and the quota of
    the session's namespace, reach; with `taking`, those of lower priority keep nothing. Without `quotas`, namespaces
    have none.
    """
    own, namespace = holding(session, cluster), session.metadata.namespace or "default"
    known = cluster.ledger.accounts.get(session.key)

    def is_above(other: Account) -> bool:
        # A session that is not there yet comes last.
        return known is None or other.rank < known.rank

    def keeps(other: Account) -> bool:
        return is_above(other) or not taking or other.priority >= session.spec.priority

    def left(pool: str, limit: int, of_namespace: bool) -> int:
        """What is left of `limit` accelerators of the pool, which all sessions share or those of the namespace."""
        before, after = 0, 0
        for other in cluster.ledger.on(pool):
            if other.key == session.key or (of_namespace and other.namespace != namespace) or not keeps(other):
                continue
            if is_above(other):
                before += other.held.get(pool, 0)
            else:
                after += other.held.get(pool, 0)
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
    namespace = session.metadata.namespace or "default"
    equals = [cluster.sessions[a.key] for a in cluster.ledger.greedy if a.priority == session.spec.priority]
    entitled: dict[str, int] = {}
    for name, pool in usable_pools(session, cluster.pools).items():
        rivals = [s for s in equals if s.spec.selects(pool.metadata)]
        above = [a for a in cluster.ledger.on(name) if a.priority > session.spec.priority]
        taken = sum(a.goal.get(name, 0) for a in above)
        entitled[name] = _share(max(0, pool.status.capacity - taken), session, rivals)
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            rest = max(0, quota - sum(a.goal.get(name, 0) for a in above if a.namespace == namespace))
            rivals = [s for s in rivals if (s.metadata.namespace or "default") == namespace]
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
    accounts = cluster.ledger.on(pool)
    limits = _limits(cluster.pools[pool], accounts) if pool in cluster.pools else {}
    held = {a.key: min(a.held.get(pool, 0), limits.get(a.key, a.held.get(pool, 0))) for a in accounts}
    return {key: gpus for key, gpus in held.items() if gpus > 0}


def outranked_limits(session: InferenceSession, cluster: Cluster, pools: Iterable[str]) -> dict[str, int]:
    """The most of each of the pools that a session may keep where those of higher priority claim accelerators.

    A pool, or a namespace's quota of it, of which no session of higher priority claims anything sets no limit. What is
    left goes to the sessions of one priority by age.
    """
    account = cluster.ledger.accounts.get(session.key)
    limits: dict[str, int] = {}
    for name in pools:
        if account is None or name not in cluster.pools:
            continue
        there = cluster.ledger.on(name)
        accounts = there if account in there else sorted((*there, account), key=lambda a: a.rank)
        limit = _limits(cluster.pools[name], accounts).get(session.key)
        if limit is not None:
            limits[name] = limit
    return limits


def _limits(pool: GPUPool, accounts: Iterable[Account]) -> dict[str, int]:
    """The most that these sessions, by rank, may keep of a pool; those that nobody of higher priority limits are left
    out."""
    name = pool.metadata.name
    limits: dict[str, int] = {}
    # By namespace; "" stands for all namespaces together, whose quota is the pool's capacity.
    taken: Counter[str] = Counter()
    for _, level in groupby(accounts, key=lambda a: a.priority):
        above = Counter(taken)
        for account in level:
            quotas = {"": pool.status.capacity, account.namespace: pool.spec.quota(account.namespace)}
            rooms = [most - taken[of] for of, most in quotas.items() if most is not None and above[of] > 0]
            gained = account.claimed.get(name, 0)
            if rooms:
                limits[account.key] = max(0, min(rooms))
                gained = min(gained, limits[account.key])
            taken[""] += gained
            taken[account.namespace] += gained
    return limits
