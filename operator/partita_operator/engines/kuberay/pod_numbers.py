"""How many pods the groups of a running Ray cluster have. Pure.

KubeRay does not copy numbers of pods from a RayService to a running cluster, so Partita writes them. Missing pods are
requested at once. Ray's autoscaler removes pods that are not needed any more: it removes only pods without replicas,
while KubeRay would remove any. Pods that wait for a node have no replicas, and Partita names them to KubeRay.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from partita_api.gpupool import GPUPool
from partita_api.pool.ray_resource import shared_resource
from partita_operator.engines.kuberay.rayservice_manifest import worker_groups
from partita_operator.engines.kuberay.worker_groups import FRONTEND_RESOURCE, NUMBERS, WorkerGroup, pod_capacity
from partita_operator.kube.rayservices import GROUP_LABEL

Document = Mapping[str, Any]


def pods_elsewhere(clusters: Iterable[Document], namespace: str) -> dict[str, int]:
    """Pods by Ray resource that the RayClusters of other namespaces have, needed or not."""
    others = (cluster for cluster in clusters if cluster["metadata"]["namespace"] != namespace)
    return _by_resource(group for cluster in others for group in _live_groups(cluster))


def grows(present: Document | None, manifest: Document) -> bool:
    """Whether a group of the manifest has more pods than now."""
    now = {group["groupName"]: group["replicas"] for group in worker_groups(present)}
    return any(group["replicas"] > now.get(group["groupName"], 0) for group in worker_groups(manifest))


def scaling(
    cluster: Document,
    groups: Sequence[WorkerGroup],
    pods: Collection[Document] = (),
    pools: Iterable[GPUPool] = (),
    departing_nodes: Collection[str] = (),
) -> list[dict[str, Any]]:
    """JSON patch operations that give a running RayCluster the numbers of pods in `groups`; empty if it has them.

    As long as pods that are not needed exist, they count for what the pool's other groups may have. There are further
    pods in place of those that end, as far as the `pools` allow, and Ray's autoscaler keeps as many idle pods as there
    are `pods` on departing nodes. Pods that wait for a node and are not needed go.
    """
    desired = {group["groupName"]: group["replicas"] for group in groups}
    further = replacements(pods, groups, pools, departing_nodes)
    there, departing = Counter(_group(pod) for pod in pods), pods_on(departing_nodes, pods)
    room = _by_resource(groups)
    for resource, count in _by_resource(_live_groups(cluster)).items():
        room[resource] = max(0, room.get(resource, 0) - count)
    room[FRONTEND_RESOURCE] = sum(desired.values())  # frontends need no accelerator
    operations = []
    for at, group in enumerate(_live_groups(cluster)):
        name, resource = group["groupName"], pod_capacity(group).shared
        needed, more = desired.get(name, 0), further.get(name, 0)
        present = group.get("replicas") or 0
        # KubeRay counts the pods that end, too.
        target = max(needed, there[name]) + more if more else needed
        added = max(0, min(target - present, room[resource] + more))
        room[resource] -= min(added, room[resource])
        replicas = present + added
        if surplus := _surplus(group, needed, pods, departing_nodes):
            replicas = max(needed, min(present, there[name] - len(surplus)))
            operations.append(_set(at, "scaleStrategy", {"workersToDelete": surplus}))
        least = min(needed + departing[name], replicas)
        for field, value in zip(NUMBERS, (replicas, least, replicas), strict=True):
            if group.get(field) != value:
                operations.append(_set(at, field, value))
    if not operations:
        return []
    # Fails if the cluster has changed since it was read, for example by the autoscaler.
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": cluster["metadata"]["resourceVersion"]}
    return [version, *operations]


def _set(group: int, field: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/spec/workerGroupSpecs/{group}/{field}", "value": value}


def _surplus(group: WorkerGroup, needed: int, pods: Iterable[Document], departing_nodes: Collection[str]) -> list[str]:
    """Names of the pods that KubeRay is to remove from a live group: not needed, and without a node.

    Ray's autoscaler removes pods that have not started only after an hour, and meanwhile they would request nodes.
    Empty if there are none, or while earlier removals are not finished.
    """
    own = [pod for pod in pods if _group(pod) == group["groupName"]]
    staying = [pod for pod in own if not _ends(pod, departing_nodes)]
    removed = (group.get("scaleStrategy") or {}).get("workersToDelete") or ()
    if any(pod["metadata"]["name"] in removed for pod in own):
        return []
    waiting = sorted(pod["metadata"]["name"] for pod in staying if _node(pod) is None)
    return waiting[: max(0, len(staying) - needed)]


def replacements(
    pods: Collection[Document],
    groups: Sequence[WorkerGroup],
    pools: Iterable[GPUPool],
    departing_nodes: Collection[str] = (),
) -> dict[str, int]:
    """Further pods, by group, in place of those that end, as far as the `pools` have free accelerators.

    A pod that ends serves until its replicas run elsewhere, and KubeRay counts it until it is gone. Pods on departing
    nodes are about to end. `groups` have the pods that the applications need.
    """
    ending, staying = Counter[str](), Counter[str]()
    for pod in pods:
        (ending if _ends(pod, departing_nodes) else staying)[_group(pod)] += 1
    free = {FRONTEND_RESOURCE: inf} | _free(pods, groups, pools)
    further = {}
    for group in groups:
        name, resource = group["groupName"], pod_capacity(group).shared
        count = int(min(ending[name], group["replicas"] - staying[name], free.get(resource, 0.0)))
        if count > 0:
            further[name] = count
            free[resource] -= count
    return further


def _free(pods: Collection[Document], groups: Sequence[WorkerGroup], pools: Iterable[GPUPool]) -> dict[str, float]:
    """Accelerators of schedulable nodes for new pods, by resource; negative if more are in use than there are.

    Every pod that is there takes one, also one that ends or that no plan needs. What plans use beyond the pods that
    `groups` need is used elsewhere.
    """
    free: dict[str, float] = {}
    for pool in pools:
        resource, status = shared_resource(pool.ray_resource), pool.status
        own = [group for group in groups if pod_capacity(group).shared == resource]
        elsewhere = max(0.0, float(status.allocated) - sum(group["replicas"] for group in own))
        names = {group["groupName"] for group in own}
        there = sum(_group(pod) in names for pod in pods)
        free[resource] = status.capacity - elsewhere - there
        if status.unschedulable is not None:
            closed = pods_on(status.unschedulable.nodes, pods)
            free[resource] += sum(closed[name] for name in names) - status.unschedulable.cordoned_in_use
    return free


def is_up(group: str, pods: Iterable[Document]) -> bool:
    """Whether a pod of the group is ready."""
    conditions = [pod.get("status", {}).get("conditions") or () for pod in pods if _group(pod) == group]
    return any(c["type"] == "Ready" and c["status"] == "True" for found in conditions for c in found)


def pods_on(nodes: Collection[str], pods: Iterable[Document]) -> Counter[str]:
    """Number of pods on these nodes, by group."""
    return Counter(_group(pod) for pod in pods if _node(pod) in nodes)


def _ends(pod: Document, departing_nodes: Collection[str]) -> bool:
    return "deletionTimestamp" in pod["metadata"] or _node(pod) in departing_nodes


def _group(pod: Document) -> str:
    """The name of the pod's worker group."""
    return str((pod["metadata"].get("labels") or {}).get(GROUP_LABEL, ""))


def _node(pod: Document) -> str | None:
    """The name of the pod's node; None if it has none yet."""
    return (pod.get("spec") or {}).get("nodeName")


def _live_groups(cluster: Document) -> Sequence[WorkerGroup]:
    groups: Sequence[WorkerGroup] = cluster["spec"].get("workerGroupSpecs") or ()
    return groups


def _by_resource(groups: Iterable[WorkerGroup]) -> dict[str, int]:
    """Pods of all groups together that offer a Ray resource, with any pod template."""
    pods: dict[str, int] = {}
    for group in groups:
        resource = pod_capacity(group).shared
        pods[resource] = pods.get(resource, 0) + (group.get("replicas") or 0)
    return pods
