"""PodDisruptionBudgets for the worker pods of a namespace's Ray cluster. Pure.

A drain of nodes removes one pod of a group at a time, and waits until its replacement is ready, but only for a limited
time. The budgets have an integer minAvailable: for pods of a RayCluster, which has no scale subresource, Kubernetes
refuses every eviction under maxUnavailable or a percentage.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from partita_operator.engines.kuberay.rayservice_manifest import LABELS, NAME, worker_groups
from partita_operator.engines.kuberay.state import serving_cluster
from partita_operator.kube.rayservices import CLUSTER_LABEL, GROUP_LABEL
from partita_operator.reconcile.clock import seconds_since

Document = Mapping[str, Any]

REPLACEMENT_SECONDS: Final = 300.0
"""How long an eviction waits for a pod that is not ready. A pod that takes longer counts as lost."""


def disruption_budgets(rayservice: Document | None, pods: Iterable[Document], now: datetime) -> list[dict[str, Any]]:
    """A budget for each worker group with two or more pods, out of the `pods` of the Ray cluster that takes requests.

    A group with one pod has none: a budget would refuse its eviction forever.
    """
    cluster = serving_cluster(rayservice)
    if rayservice is None or not cluster:
        return []
    expected = Counter((pod["metadata"].get("labels") or {}).get(GROUP_LABEL) for pod in pods if _is_expected(pod, now))
    groups = {group["groupName"]: group["replicas"] for group in worker_groups(rayservice)}
    counts = {group: min(replicas, expected[group]) for group, replicas in groups.items()}
    return [_budget(rayservice, cluster, group, count - 1) for group, count in counts.items() if count > 1]


def _is_expected(pod: Document, now: datetime) -> bool:
    """Whether the pod is ready, or an eviction of others waits for it or for its replacement."""
    meta, status = pod["metadata"], pod.get("status") or {}
    if status.get("phase") in ("Failed", "Succeeded"):
        return False
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), None)
    if ended := meta.get("deletionTimestamp"):
        since = ended
    elif ready is not None and ready["status"] == "True":
        return True
    else:
        since = (ready or {}).get("lastTransitionTime") or meta["creationTimestamp"]
    return seconds_since(since, now) < REPLACEMENT_SECONDS


def _budget(rayservice: Document, cluster: str, group: str, least: int) -> dict[str, Any]:
    meta = rayservice["metadata"]
    owner = {
        "apiVersion": rayservice["apiVersion"],
        "kind": rayservice["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": f"{NAME}-{group}",
            "namespace": meta["namespace"],
            "labels": dict(LABELS),
            "ownerReferences": [owner],
        },
        "spec": {
            "minAvailable": least,
            "selector": {"matchLabels": {CLUSTER_LABEL: cluster, GROUP_LABEL: group}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
