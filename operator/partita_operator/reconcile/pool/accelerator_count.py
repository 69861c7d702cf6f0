"""How many accelerators a pool has: as declared, or counted from its nodes, its devices or the engine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor
from typing import Final

from partita_api.conditions import ConditionStatus
from partita_api.pool.devices import Devices
from partita_api.pool.unschedulable import UnschedulableStatus
from partita_operator.reconcile.pool.devices import allocatable_devices
from partita_operator.reconcile.pool.gpu_labels import DRAINING, unusable
from partita_operator.reconcile.pool.unschedulable import not_counted, unschedulable
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
    unschedulable: UnschedulableStatus | None = None
    """Those on nodes that take no new pods."""
    note: str = ""
    """What is not counted and why, without a full stop; empty if all is."""


def count_accelerators(world: PoolWorld, claimed: int) -> Count:
    """How many accelerators Partita may use: as declared, else those of the nodes, else those of the engine.

    Sessions use `claimed` accelerators now.
    """
    pool = world.pool
    ready_nodes = [node for node in world.nodes if node.ready]
    if pool.metadata.name in world.cluster.unreadable:
        message = world.cluster.unreadable[pool.metadata.name]
        return replace(
            Count(len(world.nodes), pool.status.capacity, ConditionStatus.FALSE, Reason.INVALID_SPEC, message),
            unschedulable=pool.status.unschedulable,
        )
    if pool.spec.devices is not None and world.offer is not None:
        return _count_devices(world, pool.spec.devices, world.offer, ready_nodes, claimed)
    if pool.spec.count is not None:
        return _declared(ready_nodes, pool.spec.count)
    if world.nodes or pool.spec.elastic is not None:
        return _count_units(world, ready_nodes, claimed)
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


def _count_units(world: PoolWorld, nodes: list[Node], claimed: int) -> Count:
    pool, resource = world.pool, world.pool.spec.resource_name
    useless = {node.name: why for node in nodes if (why := unusable(node, pool))}
    units = {node.name: node.allocatable.get(resource, 0) for node in nodes if node.name not in useless}
    if useless and not any(units.values()):
        return _counted(len(nodes), 0, _some_useless(useless), Reason.NO_ACCELERATORS)
    why_none = (
        f"{len(world.nodes)} nodes match, {len(nodes)} are ready, and no ready node has an allocatable "
        f"{resource}. Check the device plugin, or correct spec.resourceName"
    )
    return _of_nodes(world, nodes, units, claimed, len(nodes), why_none)


def _count_devices(world: PoolWorld, devices: Devices, offer: DeviceOffer, nodes: list[Node], claimed: int) -> Count:
    pool = world.pool
    if offer.problem:
        return replace(
            Count(len(nodes), pool.status.present, ConditionStatus.FALSE, Reason.DEVICES_UNREADABLE, offer.problem),
            unschedulable=pool.status.unschedulable,
        )
    if not offer.has_class:
        message = (
            f"There is no DeviceClass {devices.device_class_name}. Install the driver that brings it, or correct "
            "spec.devices.deviceClassName; these exist: kubectl get deviceclasses."
        )
        return Count(len(nodes), 0, ConditionStatus.FALSE, Reason.DEVICE_CLASS_MISSING, message)
    if pool.spec.count is not None:
        return _declared(nodes, pool.spec.count)
    usable = {node.name for node in nodes if DRAINING not in node.labels}
    units = Counter(device.node for device in allocatable_devices(devices, offer, usable))
    why_none = (
        f"The driver {devices.driver_name} offers {len(offer.devices)} devices, and none of them is on one of the "
        f"pool's {len(nodes)} ready nodes and has the attributes of spec.devices. Compare them with: "
        "kubectl get resourceslices -o yaml"
    )
    return _of_nodes(world, nodes, units, claimed, len(units), why_none)


def _of_nodes(
    world: PoolWorld, nodes: Sequence[Node], units: Mapping[str, int], claimed: int, number: int, why_none: str
) -> Count:
    """The accelerators (`units`, by node) of so many nodes, without those of unschedulable nodes that no plan uses."""
    found = unschedulable(world.pool.status.unschedulable, nodes, units, claimed)
    capacity = sum(units.values()) - (found.uncounted if found is not None else 0)
    note = not_counted(found, nodes)
    count = _counted(number, capacity, note or why_none, Reason.NO_ACCELERATORS)
    return replace(
        count,
        message=f"{count.message} {note}." if note and capacity else count.message,
        unschedulable=found,
        note=note,
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
