"""The reconciler of a pool: its accelerators, their users, MIG slices, and deletion."""

from datetime import datetime
from typing import Final

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPoolStatus
from partita_api.meta import FINALIZER
from partita_operator.reconcile.actions import AddFinalizer, Decision, RemoveFinalizer
from partita_operator.reconcile.capacity.accounting import claims, users
from partita_operator.reconcile.capacity.quotas import quota_use
from partita_operator.reconcile.clock import MAX_PATIENCE_SECONDS
from partita_operator.reconcile.findings import Finding, events_of, progress_findings, with_findings
from partita_operator.reconcile.pool.accelerator_count import Count, count_accelerators
from partita_operator.reconcile.pool.gpu_labels import hardware
from partita_operator.reconcile.pool.mig_rollout import Partitioning, partition
from partita_operator.reconcile.pool.provisioning import Provisioning, provisioning
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import PoolWorld

NODES_PER_PASS: Final = 20
"""Up to so many nodes, a pass is due every `resync_seconds`; with more, less often, since each pass lists all nodes."""


def reconcile_pool(world: PoolWorld, now: datetime) -> Decision[GPUPoolStatus]:
    """The next status of the pool, and the actions for its deletion and its MIG slices."""
    pool = world.pool
    held = users(pool.metadata.name, world.cluster)
    deleted = pool.metadata.deletion_timestamp is not None
    guarded = FINALIZER in pool.metadata.finalizers
    if not guarded and not deleted:
        return Decision(pool.status, requeue_after=0.0, actions=(AddFinalizer(),))
    partitioning = partition(world, now)
    claimed = claims(pool.metadata.name, world.cluster)
    provided = provisioning(pool, count_accelerators(world, claimed), claimed, now)
    status = _status(world, held, provided, partitioning, now)
    actions = partitioning.actions
    if deleted and guarded and not held:
        actions = (*actions, RemoveFinalizer())
    return Decision(
        status,
        requeue_after=_requeue_after(world, provided, partitioning),
        actions=actions,
        events=events_of(pool.status.conditions, status.conditions),
    )


def _status(
    world: PoolWorld, held: dict[str, int], provided: Provisioning, partitioning: Partitioning, now: datetime
) -> GPUPoolStatus:
    meta, before, count = world.pool.metadata, world.pool.status, provided.count
    allocated = sum(held.values())
    findings = (*_findings(world, count, held, partitioning), *((provided.finding,) if provided.finding else ()))
    conditions = with_findings(before.conditions, findings, meta.generation, now)
    if partitioning.finding is None:
        conditions = tuple(c for c in conditions if c.type != ConditionType.PARTITIONED)
    if provided.status is None:
        conditions = tuple(c for c in conditions if c.type != ConditionType.PROVISIONED)
    return GPUPoolStatus(
        observed_generation=meta.generation,
        nodes=count.nodes,
        capacity=count.capacity,
        allocated=Quantity(allocated),
        free=Quantity(max(0, count.capacity - allocated)),
        idle_fraction=_idle_fraction(world, held),
        sessions=tuple(sorted(held))[:256],
        quotas=quota_use(world.pool, held),
        elastic=provided.status,
        unschedulable=count.unschedulable,
        hardware=hardware(world.nodes),
        partitioning=partitioning.status,
        conditions=conditions,
    )


def _findings(world: PoolWorld, count: Count, held: dict[str, int], partitioning: Partitioning) -> tuple[Finding, ...]:
    """All conditions. While nodes are not all cut, Stalled and Reconciling are about the cutting."""
    ready = _ready(world, count, held)
    cut = partitioning.finding
    if cut is None or cut.status is True:
        retries = count.reason is Reason.PROVISIONING_TIMED_OUT
        progress = progress_findings(
            ready,
            stalled=count.status == ConditionStatus.FALSE and not retries,
            reconciling=world.pool.metadata.deletion_timestamp is not None
            or count.status == ConditionStatus.UNKNOWN
            or retries,
        )
        return (*progress, cut) if cut is not None else progress
    return (ready, *progress_findings(cut, stalled=partitioning.stalled, reconciling=not partitioning.stalled))


def _requeue_after(world: PoolWorld, provided: Provisioning, partitioning: Partitioning) -> float:
    resync = world.settings.resync_seconds
    if provided.status is not None and provided.status.pending:
        return resync
    if partitioning.actions or (partitioning.finding is not None and partitioning.finding.status is not True):
        return resync
    return min(max(resync, MAX_PATIENCE_SECONDS), resync * max(1.0, len(world.nodes) / NODES_PER_PASS))


def _ready(world: PoolWorld, count: Count, held: dict[str, int]) -> Finding:
    if world.pool.metadata.deletion_timestamp is None:
        return Finding(ConditionType.READY, count.status, count.reason, count.message)
    if held:
        return Finding(
            ConditionType.READY,
            False,
            Reason.IN_USE,
            f"The pool is not deleted yet, because sessions use it: {', '.join(sorted(held))}. "
            "Delete them, or let them select other pools.",
        )
    return Finding(ConditionType.READY, False, Reason.DELETING, "No session uses the pool, and Partita deletes it.")


def _idle_fraction(world: PoolWorld, held: dict[str, int]) -> Quantity | None:
    """Mean of the idle fractions that the pool's sessions report, weighted by what they hold of it."""
    weighted, weights = 0.0, 0.0
    for key, gpus in held.items():
        signals = world.cluster.sessions[key].status.signals
        if signals is not None:
            weighted += gpus * float(signals.idle_fraction)
            weights += gpus
    return Quantity(round(weighted / weights, 3)) if weights else None
