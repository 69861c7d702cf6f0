"""Which nodes a pool may cut into MIG slices, and why it may not cut others."""

from collections.abc import Iterable
from typing import Final

from partita_api.gpupool import GPUPool, SharingMode
from partita_api.pool.mig import MigPartitioning
from partita_operator.reconcile.pool.gpu_labels import COUNT, CUT_BY, GPU, MIG_CAPABLE, MIG_STRATEGY, sharing
from partita_operator.reconcile.world import Node
from partita_planner.mig.partitioning import named

_MIXED: Final = "mixed"
_MOST_LABEL_CHARACTERS: Final = 63


def mark(pool: GPUPool) -> str:
    """What a node's label says of the pool that cuts it: its name, as far as that can be a label's value."""
    name = pool.metadata.name
    return name if len(name) <= _MOST_LABEL_CHARACTERS else named(name, name)


def on_node(pool: GPUPool, node: Node) -> bool:
    """Whether the pool's selector finds the node."""
    if pool.spec.emulation is not None:
        return False
    return pool.node_selector.matches(node.labels)


def refusal(node: Node, spec: MigPartitioning, others: Iterable[GPUPool]) -> str:
    """Why a pool may not cut the node, given the other pools; empty if it may."""
    labels = node.labels
    for other in others:
        if other.spec.mig is not None and labels.get(CUT_BY) == mark(other):
            return f"is cut by GPUPool {other.metadata.name}"
        if other.spec.sharing.mode is SharingMode.MPS and on_node(other, node):
            return (
                f"also belongs to GPUPool {other.metadata.name}, which divides GPUs by MPS: label separate nodes "
                "for each pool"
            )
    if shared := sharing(node, GPU):
        return (
            f"has a device plugin that shares its GPUs ({shared}), which excludes MIG: remove its label "
            "nvidia.com/device-plugin.config"
        )
    if labels.get(MIG_CAPABLE) != "true":
        return f"has no label {MIG_CAPABLE}=true of GPU Feature Discovery"
    if labels.get(MIG_STRATEGY, _MIXED) != _MIXED:
        return f"has MIG strategy {labels[MIG_STRATEGY]}: set mig.strategy=mixed of the GPU Operator"
    if labels.get(COUNT, str(spec.gpus_per_node)) != str(spec.gpus_per_node):
        return f"has {labels[COUNT]} GPUs, but mig.gpusPerNode is {spec.gpus_per_node}"
    return ""
