"""Node labels about GPUs: those of NVIDIA (GPU Feature Discovery, device plugin, mig-manager), and Partita's own.

A product has the name that its label gives.
"""

from collections.abc import Iterable
from typing import Final

from partita_api.fields.quantity import Quantity
from partita_api.gpupool import GPUPool, Hardware, SharingMode
from partita_api.meta import GROUP, MIG_DRAINING_LABEL
from partita_operator.reconcile.world import Node

PRODUCT: Final = "nvidia.com/gpu.product"
COUNT: Final = "nvidia.com/gpu.count"
MEMORY: Final = "nvidia.com/gpu.memory"
"""In MiB."""
MIG_CAPABLE: Final = "nvidia.com/mig.capable"
MIG_STRATEGY: Final = "nvidia.com/mig.strategy"
SHARING_SUFFIX: Final = ".sharing-strategy"
"""After a resource's name: how the device plugin shares it (none, mps or time-slicing)."""
GPU: Final = "nvidia.com/gpu"
MIG_RESOURCE: Final = "nvidia.com/mig-"

MIG_CONFIG: Final = "nvidia.com/mig.config"
"""The configuration that mig-manager is to apply."""
MIG_STATE: Final = "nvidia.com/mig.config.state"
"""How far it is: pending, rebooting, success or failed."""

CUT_BY: Final = f"{GROUP}/mig-pool"
"""The pool that cuts the node's GPUs."""
CUT_AS: Final = f"{GROUP}/mig-config"
"""The configuration that Partita last asked mig-manager for."""
DRAINING: Final = MIG_DRAINING_LABEL
"""The configuration that the node is about to get; no new replica is placed there."""

_MOST_PRODUCTS: Final = 16


def hardware(nodes: Iterable[Node]) -> tuple[Hardware, ...]:
    """What the nodes have, by product; nodes that are not labelled are left out."""
    by_product: dict[str, list[Node]] = {}
    for node in nodes:
        if PRODUCT in node.labels:
            by_product.setdefault(node.labels[PRODUCT][:63], []).append(node)
    return tuple(_hardware(product, by_product[product]) for product in sorted(by_product)[:_MOST_PRODUCTS])


def unusable(node: Node, pool: GPUPool) -> str:
    """Why the pool cannot use what the node offers; empty if it can."""
    if DRAINING in node.labels:
        return "waits to be cut into other slices"
    shared = sharing(node, pool.spec.resource_name)
    if shared:
        return (
            f"offers no whole accelerators, because its device plugin shares {pool.spec.resource_name} ({shared}): "
            "turn this sharing off"
        )
    if pool.spec.sharing.mode is SharingMode.MPS and has_slices(node):
        return "has MIG slices, and MPS cannot share slices: set sharing.mode MIG, or select other nodes"
    return ""


def sharing(node: Node, resource: str) -> str:
    """How the node's device plugin shares a resource; empty if it does not."""
    strategy = node.labels.get(f"{resource}{SHARING_SUFFIX}", "none")
    return "" if strategy == "none" else strategy


def has_slices(node: Node) -> bool:
    """Whether the node's GPUs are cut into slices, or are about to be."""
    offered = any(name.startswith(MIG_RESOURCE) and units > 0 for name, units in node.allocatable.items())
    return offered or CUT_AS in node.labels


def _hardware(product: str, nodes: list[Node]) -> Hardware:
    memory = [int(text) for node in nodes if (text := node.labels.get(MEMORY, "")).isdigit()]
    return Hardware(
        product=product,
        nodes=len(nodes),
        gpus_per_node=max(int(text) if (text := node.labels.get(COUNT, "")).isdigit() else 0 for node in nodes),
        memory=Quantity(f"{min(memory)}Mi") if memory else None,
        mig_capable=all(node.labels.get(MIG_CAPABLE) == "true" for node in nodes),
    )
