"""PodDisruptionBudgets of worker groups: one pod at a time, and never a drain that waits forever."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.operator.kubectl import Kubectl, eventually, new_namespace

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_operator.engines.kuberay.budget_writer import BudgetWriter
from partita_operator.engines.kuberay.disruption_budgets import disruption_budgets
from partita_operator.engines.kuberay.rayservice_manifest import LABELS
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.reconcile.clock import timestamp

Json = dict[str, Any]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LONG_AGO, JUST_NOW = timestamp(NOW - timedelta(hours=1)), timestamp(NOW - timedelta(seconds=10))
IMAGE = "registry/pause:1"


def rayservice(replicas: int, cluster: str = "one", namespace: str = "vision", uid: str = "uid-of-it") -> Json:
    groups = [{"groupName": "t4-gpu", "replicas": replicas}]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "partita", "namespace": namespace, "uid": uid},
        "spec": {"rayClusterConfig": {"workerGroupSpecs": groups}},
        "status": {"activeServiceStatus": {"rayClusterName": cluster}} if cluster else {},
    }


def pod(ready: bool = True, since: str = LONG_AGO, group: str = "t4-gpu", phase: str = "Running", **meta: Any) -> Json:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": since}]
    metadata = {"labels": {"ray.io/group": group}, "creationTimestamp": LONG_AGO, **meta}
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions}}


def pending(since: str) -> Json:
    metadata = {"labels": {"ray.io/group": "t4-gpu"}, "creationTimestamp": since}
    return {"metadata": metadata, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("pods", "replicas", "least"),
    [
        pytest.param([pod()] * 3, 3, 2, id="all are ready"),
        pytest.param([pod()], 1, None, id="a single pod may always be evicted"),
        pytest.param([pod()] * 2 + [pod(group="frontends")], 2, 1, id="another group does not count"),
        pytest.param([pod()] * 3, 2, 1, id="a group that shrinks"),
        pytest.param([pod()] * 3, 0, None, id="a group that is not needed any more"),
        pytest.param([pod(), pod(), pending(JUST_NOW)], 3, 2, id="an eviction waits for a new pod"),
        pytest.param([pod(), pod(), pending(LONG_AGO)], 3, 1, id="but not forever"),
        pytest.param([pod(), pod(False, JUST_NOW)], 2, 1, id="an eviction waits for a pod that is not ready"),
        pytest.param([pod(), pod(False)], 2, None, id="but not for one that is not ready for long"),
        pytest.param([pod(), pod(), pod(deletionTimestamp=JUST_NOW)], 3, 2, id="a pod ends"),
        pytest.param([pod(), pod(), pod(deletionTimestamp=LONG_AGO)], 3, 1, id="a pod cannot end: its node is lost"),
        pytest.param([pod(), pod(phase="Failed")], 2, None, id="a failed pod does not count"),
        pytest.param([pod()], 3, None, id="pods that KubeRay does not make do not count"),
    ],
)
def test_one_pod_of_a_group_may_be_away(pods: list[Json], replicas: int, least: int | None) -> None:
    found = disruption_budgets(rayservice(replicas), pods, NOW)

    assert [budget["spec"]["minAvailable"] for budget in found] == ([] if least is None else [least])


def test_the_budget_is_for_the_ray_cluster_that_takes_requests() -> None:
    (budget,) = disruption_budgets(rayservice(2, "two"), [pod()] * 2, NOW)

    assert budget["spec"]["selector"] == {"matchLabels": {"ray.io/cluster": "two", "ray.io/group": "t4-gpu"}}
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["metadata"]["name"] == "partita-t4-gpu"
    assert budget["metadata"]["ownerReferences"][0]["uid"] == "uid-of-it"
    assert disruption_budgets(rayservice(2, ""), [pod()] * 2, NOW) == []
    assert disruption_budgets(None, [], NOW) == []


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Kubectl]:
    with new_namespace(control_plane.kubeconfig, f"budgets-{uuid4().hex[:8]}") as admin:
        yield admin


@pytest.fixture
async def client(namespace: Kubectl) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(await load_config(namespace.kubeconfig)) as opened:
        yield opened


def owner_of(namespace: Kubectl) -> str:
    """The uid of an object that stands for the RayService; Kubernetes would delete budgets without an owner."""
    namespace("create", "configmap", "partita")
    return str((namespace.get("configmap", "partita") or {})["metadata"]["uid"])


def made(namespace: Kubectl, uid: str, *pods: Json, now: datetime, cluster: str = "one") -> list[Json]:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    return disruption_budgets({**rayservice(2, cluster, namespace.namespace, uid), **kind}, pods, now)


def start_pod(namespace: Kubectl, name: str, *, ready: bool) -> None:
    """A pod of the group, with the status that a kubelet would report."""
    labels = {"ray.io/cluster": "one", "ray.io/group": "t4-gpu"}
    container = {"name": "c", "image": IMAGE}
    spec = {"containers": [container], "nodeName": "nowhere", "terminationGracePeriodSeconds": 0}
    namespace.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
    report(namespace, name, ready=ready)


def report(namespace: Kubectl, name: str, *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": timestamp(datetime.now(UTC))}]
    patch = json.dumps({"status": {"phase": "Running", "conditions": conditions}})
    namespace("patch", "pod", name, "--subresource=status", "--type=merge", "-p", patch)


def evicted(namespace: Kubectl, name: str) -> bool:
    """Whether Kubernetes evicts the pod, as `kubectl drain` requests it."""
    metadata = {"name": name, "namespace": namespace.namespace}
    body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
    path = f"/api/v1/namespaces/{namespace.namespace}/pods/{name}/eviction"
    return namespace.run("create", "--raw", path, "-f", "-", stdin=body).returncode == 0


def allowed(namespace: Kubectl) -> int:
    """Evictions that the disruption controller allows now; -1 while it has not seen the budget's specification."""
    (found,) = namespace.list("poddisruptionbudgets")
    status = found.get("status") or {}
    is_seen = status.get("observedGeneration") == found["metadata"]["generation"]
    return int(status["disruptionsAllowed"]) if is_seen else -1


@pytest.mark.apiserver
async def test_kubernetes_evicts_one_pod_at_a_time_and_then_waits_for_a_limited_time(
    namespace: Kubectl, client: KubernetesClient
) -> None:
    budgets, uid = BudgetWriter(client, LABELS), owner_of(namespace)

    async def check(now: datetime) -> None:
        pods = namespace.list("pods")
        assert await budgets.write(namespace.namespace, uid, made(namespace, uid, *pods, now=now)) == ""

    for name in ("a", "b"):
        start_pod(namespace, name, ready=True)
    await check(datetime.now(UTC))
    await eventually(lambda: allowed(namespace), lambda count: count == 1)
    assert evicted(namespace, "a")
    await eventually(lambda: namespace.get("pod", "a"), lambda found: found is None)

    start_pod(namespace, "a-again", ready=False)
    await check(datetime.now(UTC))
    assert not evicted(namespace, "b"), "its replacement is not ready"

    await check(datetime.now(UTC) + timedelta(seconds=301))
    assert namespace.list("poddisruptionbudgets") == []
    assert evicted(namespace, "b"), "the replacement takes too long"


@pytest.mark.apiserver
async def test_budgets_are_repaired_and_nothing_is_written_at_rest(
    namespace: Kubectl, client: KubernetesClient
) -> None:
    budgets, uid = BudgetWriter(client, LABELS), owner_of(namespace)
    desired = made(namespace, uid, pod(), pod(), now=NOW)
    assert await budgets.write(namespace.namespace, uid, desired) == ""
    namespace("patch", "pdb", "partita-t4-gpu", "--type=merge", "-p", '{"spec":{"minAvailable":2}}')

    assert await budgets.write(namespace.namespace, uid, desired) == ""
    (repaired,) = namespace.list("poddisruptionbudgets")
    assert repaired["spec"]["minAvailable"] == 1
    assert await budgets.write(namespace.namespace, uid, desired) == ""
    assert namespace.list("poddisruptionbudgets")[0]["metadata"]["generation"] == repaired["metadata"]["generation"]

    moved = made(namespace, uid, pod(), pod(), now=NOW, cluster="two")
    assert await budgets.write(namespace.namespace, uid, moved) == ""
    assert namespace.list("poddisruptionbudgets")[0]["spec"]["selector"]["matchLabels"]["ray.io/cluster"] == "two"


@pytest.mark.apiserver
async def test_a_budget_of_somebody_else_stays(namespace: Kubectl, client: KubernetesClient) -> None:
    uid = owner_of(namespace)
    namespace("create", "pdb", "partita-t4-gpu", "--selector=app=theirs", "--min-available=1")
    theirs = (namespace.get("pdb", "partita-t4-gpu") or {})["spec"]

    desired = made(namespace, uid, pod(), pod(), now=NOW)
    problem = await BudgetWriter(client, LABELS).write(namespace.namespace, uid, desired)

    assert "partita-t4-gpu exists and does not belong to" in problem
    assert (namespace.get("pdb", "partita-t4-gpu") or {})["spec"] == theirs
