"""Kubernetes nodes, with the fields that pools need."""

from partita_api.fields.label_selector import LabelSelector
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.resources import NodeResource
from partita_operator.kube.retries import retried
from partita_operator.reconcile.world import Node


async def selected_nodes(client: KubernetesClient, selector: LabelSelector) -> tuple[Node, ...]:
    """The nodes that the selector matches, by name."""
    found = await retried(lambda: client.list(NodeResource, labels=str(selector)))
    return tuple(sorted((_node(raw) for raw in found), key=lambda node: node.name))


def _node(raw: Document) -> Node:
    meta, status = raw["metadata"], raw.get("status") or {}
    allocatable = status.get("allocatable") or {}
    return Node(
        name=meta["name"],
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        # Extended resources have whole amounts. Others, such as memory, are not accelerators.
        allocatable={name: int(amount) for name, amount in allocatable.items() if amount.isdigit()},
        labels=meta.get("labels") or {},
        uid=meta.get("uid", ""),
    )
