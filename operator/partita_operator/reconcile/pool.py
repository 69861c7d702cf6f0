"""A pool: how many accelerators it has, who holds them, and whether it may go."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from math import floor

from partita_api.conditions import ConditionStatus, ConditionType
from partita_api.gpupool import GPUPoolStatus
from partita_api.meta import FINALIZER, GROUP
from partita_api.quantity import Quantity
from partita_operator.reconcile.accounting import users
from partita_operator.reconcile.actions import Action, AddFinalizer, Decision, RemoveFinalizer
from partita_operator.reconcile.findings import Finding, events_of, progress_findings, with_findings
from partita_operator.reconcile.quotas import quota_use
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import PoolWorld

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Count:
    """How many accelerators there are."""

    nodes: int
    capacity: int
    status: ConditionStatus
    reason: Reason
    message: str


def node_selector(pool: str, labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that find a pool's nodes."""
    return dict(labels) or {f"{GROUP}/pool": pool}


def reconcile_pool(world: PoolWorld, now: datetime) -> Decision[GPUPoolStatus]:
    """The pool's status, and whether it may be deleted."""
    pool = world.pool
    held = users(pool.metadata.name, world.cluster)
    deleted = pool.metadata.deletion_timestamp is not None
    guarded = FINALIZER in pool.metadata.finalizers
    if not guarded and not deleted:
        return Decision(pool.status, requeue_after=0.0, actions=(AddFinalizer(),))
    status = _status(world, held, now)
    actions: tuple[Action, ...] = (RemoveFinalizer(),) if deleted and guarded and not held else ()
    return Decision(
        status,
        requeue_after=world.settings.resync_seconds,
        actions=actions,
        events=events_of(pool.status.conditions, status.conditions),
    )


def _status(world: PoolWorld, held: dict[str, int], now: datetime) -> GPUPoolStatus:
    meta, before = world.pool.metadata, world.pool.status
    count = count_accelerators(world)
    allocated = sum(held.values())
    findings = progress_findings(
        _ready(world, count, held),
        stalled=count.status == ConditionStatus.FALSE,
        reconciling=meta.deletion_timestamp is not None or count.status == ConditionStatus.UNKNOWN,
    )
    return GPUPoolStatus(
        observed_generation=meta.generation,
        nodes=count.nodes,
        capacity=count.capacity,
        allocated=Quantity(allocated),
        free=Quantity(max(0, count.capacity - allocated)),
        idle_fraction=_idle_fraction(world, held),
        sessions=tuple(sorted(held))[:256],
        quotas=quota_use(world.pool, held),
        conditions=with_findings(before.conditions, findings, meta.generation, now),
    )


def count_accelerators(world: PoolWorld) -> Count:
    """How many accelerators Partita may use: as declared, else what the nodes have, else what the engine has."""
    pool = world.pool
    ready_nodes = [node for node in world.nodes if node.ready]
    if pool.metadata.name in world.cluster.unreadable:
        message = world.cluster.unreadable[pool.metadata.name]
        return Count(len(world.nodes), pool.status.capacity, ConditionStatus.FALSE, Reason.INVALID_SPEC, message)
    if pool.spec.count is not None:
        return _counted(len(ready_nodes), pool.spec.count, "spec.count is 0; raise it", Reason.NO_COUNT)
    if world.nodes:
        capacity = sum(node.allocatable.get(pool.spec.resource_name, 0) for node in ready_nodes)
        return _counted(
            len(ready_nodes),
            capacity,
            f"{len(world.nodes)} nodes match, {len(ready_nodes)} are ready, and none of those has an allocatable "
            f"{pool.spec.resource_name}; see whether the device plugin runs, or correct spec.resourceName",
            Reason.NO_ACCELERATORS,
        )
    if world.engine_capacity is None:
        return Count(
            0,
            pool.status.capacity,
            ConditionStatus.UNKNOWN,
            Reason.ENGINE_UNAVAILABLE,
            f"No Kubernetes node matches, and the Ray cluster cannot be asked: {world.problem}",
        )
    capacity = floor(world.engine_capacity.get(pool.ray_resource, 0.0) + _ROUNDING)
    selector = ",".join(f"{k}={v}" for k, v in node_selector(pool.metadata.name, pool.spec.node_selector).items())
    return _counted(
        0,
        capacity,
        f"No Kubernetes node has the labels {selector}, and no Ray node has the resource {pool.ray_resource}; "
        "label the nodes, start Ray nodes with that resource, or set spec.count",
        Reason.NO_NODES,
    )


def _counted(nodes: int, capacity: int, why_none: str, reason: Reason) -> Count:
    if capacity == 0:
        return Count(nodes, 0, ConditionStatus.FALSE, reason, f"{why_none}.")
    return Count(nodes, capacity, ConditionStatus.TRUE, Reason.AVAILABLE, f"{capacity} accelerators may be used.")


def _ready(world: PoolWorld, count: Count, held: dict[str, int]) -> Finding:
    if world.pool.metadata.deletion_timestamp is None:
        return Finding(ConditionType.READY, count.status, count.reason, count.message)
    if held:
        return Finding(
            ConditionType.READY,
            False,
            Reason.IN_USE,
            f"Its deletion waits for the sessions that use it: {', '.join(sorted(held))}. "
            "Delete them or let them select other pools.",
        )
    return Finding(ConditionType.READY, False, Reason.DELETING, "No session uses it; it is being deleted.")


def _idle_fraction(world: PoolWorld, held: dict[str, int]) -> Quantity | None:
    """Mean of the idle fractions that the pool's sessions report, weighted by what they hold of it."""
    weighted, weights = 0.0, 0.0
    for key, gpus in held.items():
        signals = world.cluster.sessions[key].status.signals
        if signals is not None:
            weighted += gpus * float(signals.idle_fraction)
            weights += gpus
    return Quantity(round(weighted / weights, 3)) if weights else None
