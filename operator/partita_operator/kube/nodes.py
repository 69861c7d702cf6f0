"""Kubernetes nodes, with the fields that pools need."""

from typing import Final

from partita_api.fields.label_selector import LabelSelector
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.resources import NodeResource
from partita_operator.kube.retries import retried
from partita_operator.reconcile.world import Node

_NOTICES: Final = (
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",  # Karpenter before 1.0
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
)
"""Taints of nodes that are about to go; what ends with a slash is the beginning of several."""


async def selected_nodes(client: KubernetesClient, selector: LabelSelector) -> tuple[Node, ...]:
    """The nodes that the selector matches, by name."""
    found = await retried(lambda: client.list(NodeResource, labels=str(selector)))
    return tuple(sorted((_node(raw) for raw in found), key=lambda node: node.name))


def _node(raw: Document) -> Node:
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    allocatable = status.get("allocatable") or {}
    return Node(
        name=meta["name"],
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ()),
        # Extended resources have whole amounts. Others, such as memory, are not accelerators.
        allocatable={name: int(amount) for name, amount in allocatable.items() if amount.isdigit()},
        labels=meta.get("labels") or {},
        uid=meta.get("uid", ""),
        cordoned=bool(spec.get("unschedulable")),
        departure=_departure(meta, spec),
    )


def _departure(meta: Document, spec: Document) -> str:
    """What says that a node is about to go; empty if nothing does."""
    if "deletionTimestamp" in meta:
        return "a deletion timestamp"
    keys = (taint["key"] for taint in spec.get("taints") or ())
    return next((f"taint {key}" for key in keys if _is_notice(key)), "")


def _is_notice(key: str) -> bool:
    return any(key.startswith(notice) if notice.endswith("/") else key == notice for notice in _NOTICES)
