"""Which replicas a session gives up for sessions of higher priority, and the messages about it.

It gives up the replicas of its current plan for which those sessions leave no accelerators. It waits if they leave
too few for one replica of each stage. Its plan stays the same, and all replicas return when the other sessions need
less. This cannot oscillate: an autoscaler takes no accelerators of other sessions, and plans of higher priority do not
depend on what sessions of lower priority keep.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

from partita_api.conditions import ConditionType
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_operator.ports import StageTarget
from partita_operator.reconcile.capacity.accounting import outranked_limits, usable_pools
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.findings import condition, listed
from partita_operator.reconcile.reasons import Reason
from partita_planner.problem import NoPlan, NoPlanReason
from partita_runtime.autoscaling.replicas import planned_targets

_ADVICE: Final = "Raise spec.priority, add accelerators, or select other pools."

Targets = tuple[StageTarget, ...]


def give_way(
    session: InferenceSession, cluster: Cluster, plan: PipelinePlan, desired: Targets, searching: bool
) -> tuple[Targets, str]:
    """The replicas that the plan keeps of those `desired`, and a message if too many are missing.

    A session that waits keeps none. During a search for a plan the replicas stay, unless some are already given up.
    """
    limits = outranked_limits(session, cluster, plan.spec.gpus())
    left = within(plan, desired, limits)
    before = condition(session.status.conditions, ConditionType.ROLLED_OUT)
    if left == desired or (searching and (before is None or before.reason != Reason.OUTRANKED)):
        return desired, ""
    if left is not None and not _misses(left, desired, planned_targets(plan)):
        return left, ""
    needs = _accelerators(plan, desired)
    short = sorted(pool for pool, most in limits.items() if needs.get(pool, 0) > most)
    gets = " and ".join(f"{limits[pool]} of {needs[pool]} accelerators of pool {pool}" for pool in short)
    replicas = sum(t.replicas for t in desired)
    if left is not None:
        outcome = f"and serves with {sum(t.replicas for t in left)} of {replicas} replicas"
    else:
        outcome = "and waits until one replica of each stage fits"
    message = (
        f"Plan {plan.metadata.name} gets {gets}, {outcome}. Sessions of higher priority come first: "
        f"{_takers(session, cluster, short)}. {_ADVICE}"
    )
    return left or (), message


def within(plan: PipelinePlan, desired: Targets, limits: Mapping[str, int]) -> Targets | None:
    """As many of the `desired` replicas as the accelerators in `limits` allow, by pool; None if none can serve.

    Only pipelines with a stage on a pool that is short give way, all stages of them by one share, so that they stay
    matched; every stage keeps at least one replica. A pool without a limit has enough.
    """
    full = _accelerators(plan, desired)
    short = {pool for pool, gpus in full.items() if gpus > limits.get(pool, gpus)}
    if not short:
        return desired
    pools = {
        (module.name, pipeline.name): {stage.pool for stage in pipeline.stages}
        for module in plan.spec.modules
        for pipeline in module.pipelines
    }
    yielding = {where for where, used in pools.items() if used & short}

    def shrunk(share: tuple[int, int]) -> Targets:
        part, whole = share
        return tuple(
            StageTarget(t.module, t.pipeline, t.stage, max(1, -(-t.replicas * part // whole)))
            if (t.module, t.pipeline) in yielding
            else t
            for t in desired
        )

    def too_much(share: tuple[int, int]) -> bool:
        return any(gpus > limits.get(pool, gpus) for pool, gpus in _accelerators(plan, shrunk(share)).items())

    counts = {t.replicas for t in desired if (t.module, t.pipeline) in yielding}
    shares = sorted({(part, whole) for whole in counts for part in range(1, whole)}, key=lambda s: s[0] / s[1])
    fitting = bisect_right(shares, False, key=too_much)
    least = shares[fitting - 1] if fitting else (0, 1)
    return None if too_much(least) else shrunk(least)


def outranked_shortage(no_plan: NoPlan, session: InferenceSession, cluster: Cluster) -> str:
    """Which sessions of higher priority have the accelerators that a plan lacks; empty if none has them."""
    if no_plan.reason is not NoPlanReason.INSUFFICIENT_CAPACITY:
        return ""
    missing = no_plan.gpus_missing.keys() or usable_pools(session, cluster.pools).keys()
    takers = _takers(session, cluster, missing)
    return f"Sessions of higher priority come first: {takers}. {_ADVICE}" if takers else ""


def _takers(session: InferenceSession, cluster: Cluster, pools: Iterable[str]) -> str:
    """The sessions of higher priority and what they have of the pools, without names from other namespaces."""
    names = sorted(pools)
    above = {a.rank: a for pool in names for a in cluster.ledger.on(pool) if a.priority > session.spec.priority}
    found = [
        f"{_visible_name(other.key, session)} (priority {other.priority}) has {other.claimed[pool]} of pool {pool}"
        for _, other in sorted(above.items())
        for pool in names
        if other.claimed.get(pool, 0) > 0
    ]
    return listed(found)


def _visible_name(key: str, reader: InferenceSession) -> str:
    is_own = key.partition("/")[0] == reader.key.partition("/")[0]
    return key if is_own else "a session of another namespace"


def _accelerators(plan: PipelinePlan, targets: Targets) -> dict[str, int]:
    return plan.spec.gpus({(t.module, t.pipeline, t.stage): t.replicas for t in targets})


def _misses(left: Targets, desired: Targets, planned: Targets) -> bool:
    """Whether any stage has fewer replicas than planned, and fewer than it needs now."""
    replicas = {(t.module, t.pipeline, t.stage): t.replicas for t in planned}
    return any(
        has.replicas < min(wants.replicas, replicas.get((wants.module, wants.pipeline, wants.stage), wants.replicas))
        for has, wants in zip(left, desired, strict=True)
    )
