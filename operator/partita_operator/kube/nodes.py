"""Kubernetes nodes, as far as pools look at them."""

from collections.abc import Mapping

from lightkube import AsyncClient
from lightkube.resources.core_v1 import Node as NodeResource

from partita_operator.kube.retries import retried
from partita_operator.reconcile.world import Node


async def nodes_with_labels(client: AsyncClient, labels: Mapping[str, str]) -> tuple[Node, ...]:
    """The nodes that have all of these labels, by name."""

    async def listed() -> list[NodeResource]:
        return [node async for node in client.list(NodeResource, labels=dict(labels))]

    nodes = [_node(resource) for resource in await retried(listed)]
    return tuple(sorted(nodes, key=lambda node: node.name))


def _node(resource: NodeResource) -> Node:
    status, meta = resource.status, resource.metadata
    conditions = (status.conditions if status else None) or []
    allocatable = (status.allocatable if status else None) or {}
    return Node(
        name=(meta.name if meta else None) or "",
        ready=any(c.type == "Ready" and c.status == "True" for c in conditions),
        # Extended resources come in whole units; memory and the like, which do not, are no accelerators.
        allocatable={name: int(amount) for name, amount in allocatable.items() if amount.isdigit()},
        labels=(meta.labels if meta else None) or {},
        uid=(meta.uid if meta else None) or "",
    )
