"""A packing as manifests: a mig-parted configuration for each kind of node, and a GPUPool for each profile.

mig-parted (https://github.com/NVIDIA/mig-parted) is what NVIDIA's GPU Operator runs on a node whose label
`nvidia.com/mig.config` names a configuration. With MIG strategy `mixed` its device plugin then offers each profile as a
separate resource, such as nvidia.com/mig-1g.10gb.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from partita_api.fields.label_selector import LabelSelector
from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, GPUPoolSpec, Sharing, SharingMode
from partita_api.meta import GROUP, ObjectMeta
from partita_api.pool.mig import MigGpus, MigNodes, MigPartitioning
from partita_planner.mig.layouts import Layout
from partita_planner.mig.packing import Packing

FLEET_LABEL: Final = f"{GROUP}/mig-fleet"
"""Node label: the fleet of the node."""
CONFIG_LABEL: Final = "nvidia.com/mig.config"
"""Node label: the configuration that mig-parted applies."""


@dataclass(frozen=True)
class Fleet:
    """The nodes that a packing is for."""

    name: str
    gpus_per_node: int = 8
    price_per_hour: Quantity | None = None
    """Price of one whole GPU."""
    bandwidth: Quantity | None = None
    """Network bandwidth of one node in bits per second."""


@dataclass(frozen=True)
class NodeConfig:
    """How all GPUs of some nodes are cut."""

    name: str
    nodes: int
    gpus: tuple[Layout, ...]
    """The GPUs that are cut, in the order of their index; others of the node stay whole."""


def node_configs(packing: Packing, fleet: Fleet) -> tuple[NodeConfig, ...]:
    """Configurations of nodes; GPUs of equal layouts are neighbours, which keeps configurations few."""
    layouts = [layout for layout, count in packing.layouts for _ in range(count)]
    nodes = Counter(tuple(layouts[i : i + fleet.gpus_per_node]) for i in range(0, len(layouts), fleet.gpus_per_node))
    return tuple(NodeConfig(f"{fleet.name}-{i}", count, gpus) for i, (gpus, count) in enumerate(nodes.items(), start=1))


def mig_parted_config(configs: tuple[NodeConfig, ...], fleet: Fleet) -> dict[str, Any]:
    """The document that mig-parted reads (`version: v1`), as plain data."""
    return {"version": "v1", "mig-configs": {c.name: _devices(c, fleet) for c in configs}}


def slice_pools(packing: Packing, fleet: Fleet) -> tuple[GPUPool, ...]:
    """A pool for each profile of the packing: its slices are the accelerators, priced by their compute slices."""
    configs = node_configs(packing, fleet)
    return tuple(_pool(name, count, packing, fleet, configs) for name, count in packing.slices.items())


def managed_pools(packing: Packing, fleet: Fleet) -> tuple[GPUPool, ...]:
    """The same pools if Partita manages the partitioning: the first has `spec.mig`, and slices are not declared."""
    first, *others = slice_pools(packing, fleet)
    cut = partitioning_of(packing, node_configs(packing, fleet), fleet.gpus_per_node)
    return (_with(first, count=None, mig=cut), *(_with(pool, count=None) for pool in others))


def partitioning_of(packing: Packing, configs: tuple[NodeConfig, ...], gpus_per_node: int) -> MigPartitioning:
    """A packing as `spec.mig` of a pool."""
    layouts = tuple(MigNodes(nodes=config.nodes, gpus=tuple(_alike(config))) for config in configs)
    return MigPartitioning(product=packing.product.name, gpus_per_node=gpus_per_node, layouts=layouts)


def _alike(config: NodeConfig) -> Iterator[MigGpus]:
    for layout in dict.fromkeys(config.gpus):
        yield MigGpus(count=config.gpus.count(layout), slices=dict(sorted(layout.counts.items())))


def _with(pool: GPUPool, **fields: object) -> GPUPool:
    return pool.model_copy(update={"spec": pool.spec.model_copy(update=fields)})


def _devices(config: NodeConfig, fleet: Fleet) -> list[dict[str, Any]]:
    """One entry for each layout on the node, and one for the GPUs that stay whole."""
    indices: dict[Layout, list[int]] = {}
    for index, layout in enumerate(config.gpus):
        indices.setdefault(layout, []).append(index)
    entries: list[dict[str, Any]] = [
        {"devices": devices, "mig-enabled": True, "mig-devices": dict(sorted(layout.counts.items()))}
        for layout, devices in indices.items()
    ]
    whole = list(range(len(config.gpus), fleet.gpus_per_node))
    return entries + ([{"devices": whole, "mig-enabled": False}] if whole else [])


def _pool(name: str, count: int, packing: Packing, fleet: Fleet, configs: tuple[NodeConfig, ...]) -> GPUPool:
    profile = packing.product.slice(name)
    spec = GPUPoolSpec(
        node_selector=LabelSelector(match_labels={FLEET_LABEL: fleet.name}),
        resource_name=profile.resource_name,
        count=count,
        gpus_per_node=max(sum(layout.counts.get(name, 0) for layout in config.gpus) for config in configs),
        memory=profile.memory,
        sharing=Sharing(mode=SharingMode.MIG),
    )
    given: dict[str, Quantity] = {}
    if fleet.price_per_hour is not None:
        share = fleet.price_per_hour.value * profile.compute / packing.product.compute
        given["price_per_hour"] = Quantity(share.quantize(Decimal("0.000001")))
    if fleet.bandwidth is not None:
        given["bandwidth"] = fleet.bandwidth
    pool_name = f"{fleet.name}-{name.replace('.', '-').replace('+', '-')}"
    return GPUPool(metadata=ObjectMeta(name=pool_name), spec=spec.model_copy(update=given))
