"""Which accelerators each session holds, and how many it may use.

A session holds what its current plan and its pending plan need, in each pool the larger of the two: a migration reuses
what the session has. A plan keeps its planned accelerators while the autoscaler needs less.

Sessions have an order: priority first, then age. If a pool shrinks, the last sessions give accelerators up. If a
session of higher priority needs accelerators, sessions of lower priority give them up. The quota of a namespace limits
what its sessions hold together, in the same order. Accelerators are counted whole, as in the planner: two sessions
never share one, and one accelerator has vGPUs of one size.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.capacity.ledger import Account, account_of


def selected_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The pools that the session's spec selects and that exist, by name; those being deleted too."""
    named = {name: pools[name] for name in session.spec.pools if name in pools} if session.spec.pools else pools
    return {name: pool for name, pool in sorted(named.items()) if session.spec.selects(pool.metadata)}


def usable_pools(session: InferenceSession, pools: Mapping[str, GPUPool]) -> dict[str, GPUPool]:
    """The selected pools that a new plan may use: they have accelerators and are not being deleted."""
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


@dataclass(frozen=True)
class Availability:
    """What one session may use in one state of the cluster, by pool; each answer is computed once."""

    session: InferenceSession
    cluster: Cluster

    @cached_property
    def entitled(self) -> Mapping[str, int]:
        """The most that it may ever use; see `entitlements`."""
        return entitlements(self.session, self.cluster)

    @cached_property
    def free(self) -> Mapping[str, int]:
        """What it may plan with if sessions of lower priority keep theirs."""
        return _available(self.session, self.cluster, self.entitled, quotas=True, taking=False)

    @cached_property
    def takeable(self) -> Mapping[str, int]:
        """What it may plan with if sessions of lower priority keep nothing."""
        return _available(self.session, self.cluster, self.entitled, quotas=True, taking=True)

    @cached_property
    def present(self) -> Mapping[str, int]:
        """As `free`, of the accelerators that are present; an elastic pool also has absent ones."""
        return _available(self.session, self.cluster, self.entitled, quotas=True, taking=False, present=True)

    @cached_property
    def free_without_quotas(self) -> Mapping[str, int]:
        """As `free`, if no namespace had a quota."""
        return available(self.session, self.cluster, quotas=False)


def available(session: InferenceSession, cluster: Cluster, quotas: bool = True, taking: bool = False) -> dict[str, int]:
    """Whole accelerators that the session may plan with, by usable pool, its own included.

    Sessions before it in the order keep what they hold. Sessions after it keep theirs as far as the pool's capacity and
    the quota of the namespace allow. With `taking`, sessions of lower priority keep nothing. Without `quotas`, no
    namespace has a quota.
    """
    return _available(session, cluster, entitlements(session, cluster, quotas), quotas, taking)


def _available(
    session: InferenceSession,
    cluster: Cluster,
    entitled: Mapping[str, int],
    quotas: bool,
    taking: bool,
    present: bool = False,
) -> dict[str, int]:
    own, namespace = holding(session, cluster), session.namespace
    known = cluster.ledger.accounts.get(session.key)

    def is_above(other: Account) -> bool:
        # A session that does not exist yet is the last.
        return known is None or other.rank < known.rank

    def keeps(other: Account) -> bool:
        return is_above(other) or not taking or other.priority >= session.spec.priority

    def left(pool: str, limit: int, of_namespace: bool) -> int:
        """What is left of `limit` accelerators, which all sessions of the pool share, or those of the namespace."""
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
    for name, most in entitled.items():
        pool = cluster.pools[name]
        most_of_pool = pool.status.present if present else pool.status.capacity
        limits = [left(name, most_of_pool, of_namespace=False), most]
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            limits.append(left(name, quota, of_namespace=True))
        free[name] = max(0, min(limits))
    return free


def entitlements(session: InferenceSession, cluster: Cluster, quotas: bool = True) -> dict[str, int]:
    """The most accelerators of each usable pool that the session may ever use, whatever sessions of its priority hold.

    That is what the plans of sessions of higher priority leave. Sessions of one priority that maximise throughput share
    it, and the quota of their namespace, in proportion to their weights, in whole accelerators.
    """
    namespace = session.namespace
    equals = [cluster.sessions[a.key] for a in cluster.ledger.greedy if a.priority == session.spec.priority]
    entitled: dict[str, int] = {}
    for name, pool in usable_pools(session, cluster.pools).items():
        sharing = [s for s in equals if s.spec.selects(pool.metadata)]
        above = [a for a in cluster.ledger.on(name) if a.priority > session.spec.priority]
        taken = sum(a.goal.get(name, 0) for a in above)
        entitled[name] = _share(max(0, pool.status.capacity - taken), session, sharing)
        quota = pool.spec.quota(namespace) if quotas else None
        if quota is not None:
            rest = max(0, quota - sum(a.goal.get(name, 0) for a in above if a.namespace == namespace))
            sharing = [s for s in sharing if s.namespace == namespace]
            entitled[name] = min(entitled[name], _share(rest, session, sharing))
    return entitled


def _share(gpus: int, session: InferenceSession, greedy: Sequence[InferenceSession]) -> int:
    """The session's share of what `greedy` sessions share by weight; all of it if the session is not one of them."""
    total = sum(s.spec.objective.weight for s in greedy)
    passed = 0
    for other in greedy:
        end = passed + other.spec.objective.weight
        if other.key == session.key:
            return gpus * end // total - gpus * passed // total
        passed = end
    return gpus


def fits(plan: PipelinePlan, free: Mapping[str, int]) -> bool:
    """Whether the planned replicas of `plan` fit into the accelerators that are available."""
    return not short_of(plan, free)


def short_of(plan: PipelinePlan, free: Mapping[str, int]) -> dict[str, int]:
    """Accelerators by pool that the planned replicas of `plan` need beyond what is available."""
    return {pool: gpus - free.get(pool, 0) for pool, gpus in plan.spec.gpus().items() if gpus > free.get(pool, 0)}


def users(pool: str, cluster: Cluster) -> dict[str, int]:
    """Accelerators of the pool that each session has, by session key; without sessions that have none."""
    held = _within_limits(pool, cluster, lambda account: account.held)
    return {key: gpus for key, gpus in held.items() if gpus > 0}


def claims(pool: str, cluster: Cluster) -> int:
    """Accelerators of the pool that sessions use, without those of plans that are held back."""
    return sum(_within_limits(pool, cluster, lambda account: account.claimed).values())


def _within_limits(pool: str, cluster: Cluster, gpus: Callable[[Account], Mapping[str, int]]) -> dict[str, int]:
    """Accelerators of the pool by session key: what `gpus` says of its account, at most what it may keep."""
    accounts = cluster.ledger.on(pool)
    limits = _limits(cluster.pools[pool], accounts) if pool in cluster.pools else {}
    counted = {account.key: gpus(account).get(pool, 0) for account in accounts}
    return {key: min(count, limits.get(key, count)) for key, count in counted.items()}


def outranked_limits(session: InferenceSession, cluster: Cluster, pools: Iterable[str]) -> dict[str, int]:
    """The most that a session may keep of each pool in which sessions of higher priority claim accelerators.

    Other pools and quotas set no limit. Sessions of one priority share what is left in the order of their age.
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
    """The most that each of these sessions may keep of a pool; without those that no higher priority limits."""
    name = pool.metadata.name
    limits: dict[str, int] = {}
    # By namespace. "" stands for all namespaces together; their quota is the capacity of the pool.
    taken: Counter[str] = Counter()
    for _, level in groupby(accounts, key=lambda a: a.priority):
        above = Counter(taken)
        for account in level:
            quotas = {"": pool.status.capacity, account.namespace: pool.spec.quota(account.namespace)}
            left = [most - taken[of] for of, most in quotas.items() if most is not None and above[of] > 0]
            gained = account.claimed.get(name, 0)
            if left:
                limits[account.key] = max(0, min(left))
                gained = min(gained, limits[account.key])
            taken[""] += gained
            taken[account.namespace] += gained
    return limits
