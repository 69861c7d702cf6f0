"""How many accelerators a pool has: as declared, or counted from its nodes, its devices or the engine."""

from dataclasses import dataclass
from math import floor
from typing import Final

from partita_api.conditions import ConditionStatus
from partita_api.gpupool import GPUPool
from partita_api.pool.devices import Devices
from partita_operator.reconcile.pool.devices import allocatable_devices
from partita_operator.reconcile.pool.gpu_labels import DRAINING, unusable
from partita_operator.reconcile.reasons import Reason
from partita_operator.reconcile.world import DeviceOffer, Node, PoolWorld

_ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Count:
    """How many accelerators there are."""

    nodes: int
    capacity: int
    status: ConditionStatus
    reason: Reason
    message: str


def count_accelerators(world: PoolWorld) -> Count:
    """How many accelerators Partita may use: as declared, else those of the nodes, else those of the engine."""
    pool = world.pool
    ready_nodes = [node for node in world.nodes if node.ready]
    if pool.metadata.name in world.cluster.unreadable:
        message = world.cluster.unreadable[pool.metadata.name]
        return Count(len(world.nodes), pool.status.capacity, ConditionStatus.FALSE, Reason.INVALID_SPEC, message)
    if pool.spec.devices is not None and world.offer is not None:
        return _count_devices(pool, pool.spec.devices, world.offer, ready_nodes)
    if pool.spec.count is not None:
        return _declared(ready_nodes, pool.spec.count)
    if world.nodes or pool.spec.elastic is not None:
        useless = {node.name: why for node in ready_nodes if (why := unusable(node, pool))}
        usable = [node for node in ready_nodes if node.name not in useless]
        capacity = sum(node.allocatable.get(pool.spec.resource_name, 0) for node in usable)
        if useless and not capacity:
            return _counted(len(ready_nodes), 0, _some_useless(useless), Reason.NO_ACCELERATORS)
        return _counted(
            len(ready_nodes),
            capacity,
            f"{len(world.nodes)} nodes match, {len(ready_nodes)} are ready, and no ready node has an allocatable "
            f"{pool.spec.resource_name}. Check the device plugin, or correct spec.resourceName",
            Reason.NO_ACCELERATORS,
        )
    if world.engine_capacity is None:
        return Count(
            0,
            pool.status.present,
            ConditionStatus.UNKNOWN,
            Reason.ENGINE_UNAVAILABLE,
            f"No Kubernetes node matches, and the Ray cluster does not answer: {world.problem}",
        )
    capacity = floor(world.engine_capacity.get(pool.ray_resource, 0.0) + _ROUNDING)
    return _counted(
        0,
        capacity,
        f"No Kubernetes node has the labels {pool.node_selector}, and no Ray node has the resource "
        f"{pool.ray_resource}. Label the nodes, start Ray nodes with that resource, or set spec.count",
        Reason.NO_NODES,
    )


def _count_devices(pool: GPUPool, claimed: Devices, offer: DeviceOffer, nodes: list[Node]) -> Count:
    if offer.problem:
        return Count(len(nodes), pool.status.present, ConditionStatus.FALSE, Reason.DEVICES_UNREADABLE, offer.problem)
    if not offer.has_class:
        message = (
            f"There is no DeviceClass {claimed.device_class_name}. Install the driver that brings it, or correct "
            "spec.devices.deviceClassName; these exist: kubectl get deviceclasses."
        )
        return Count(len(nodes), 0, ConditionStatus.FALSE, Reason.DEVICE_CLASS_MISSING, message)
    if pool.spec.count is not None:
        return _declared(nodes, pool.spec.count)
    draining = {node.name for node in nodes if DRAINING in node.labels}
    found = allocatable_devices(claimed, offer, {node.name for node in nodes} - draining)
    return _counted(
        len({device.node for device in found}),
        len(found),
        f"The driver {claimed.driver_name} offers {len(offer.devices)} devices, and none of them is on one of the "
        f"pool's {len(nodes)} ready nodes and has the attributes of spec.devices. Compare them with: "
        "kubectl get resourceslices -o yaml",
        Reason.NO_ACCELERATORS,
    )


def _declared(nodes: list[Node], count: int) -> Count:
    return _counted(len(nodes), count, "spec.count is 0. Raise it", Reason.NO_COUNT)


def _some_useless(useless: dict[str, str]) -> str:
    first, why = next(iter(useless.items()))
    others = f"; {len(useless) - 1} other nodes are not usable" if len(useless) > 1 else ""
    return f"Node {first} {why}{others}"


def _counted(nodes: int, capacity: int, why_none: str, reason: Reason) -> Count:
    if capacity == 0:
        return Count(nodes, 0, ConditionStatus.FALSE, reason, f"{why_none}.")
    return Count(nodes, capacity, ConditionStatus.TRUE, Reason.AVAILABLE, f"Partita may use {capacity} accelerators.")
