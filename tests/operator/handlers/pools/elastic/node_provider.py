"""A test double of a node autoscaler, of its cloud and of the kubelets: nodes come for pods that find none.

It makes a Node for each pod that the scheduler calls Unschedulable and that fits its template, after a delay and up to
a limit. It plays the kubelets of its nodes: bound pods are Running and Ready, deleted ones go. Not simulated: bin
packing, removal of empty nodes, and containers. The API server and the scheduler are real.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
from tests.operator.engines.control_loop import repeated

Json = dict[str, Any]
NOTICE: Final = "karpenter.sh/disrupted"
"""Karpenter's taint on a node that is about to go."""
_POLL_SECONDS: Final = 0.3
_LEASE_SECONDS: Final = 10.0
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}


@dataclass(frozen=True)
class NodeTemplate:
    """What nodes are like."""

    labels: Mapping[str, str] = field(default_factory=dict)
    accelerators: Mapping[str, int] = field(default_factory=dict)
    """Extended resources; their names are taints, too, as on nodes of clouds."""

    def fits(self, pod: Json) -> bool:
        """Whether the pod selects such a node, and requests an accelerator of it."""
        spec = pod["spec"]
        limits = [container.get("resources", {}).get("limits", {}) for container in spec["containers"]]
        requested = {name for limit in limits for name in limit if name in self.accelerators}
        return spec.get("nodeSelector", {}).items() <= self.labels.items() and bool(requested)


@dataclass
class NodeProvider:
    """In a `with playing()` block it works; all calls go to one API server."""

    api: httpx.Client
    template: NodeTemplate
    address: str
    """IP address of all pods."""
    prefix: str
    """What the names of its nodes begin with."""
    delay_seconds: float = 1.0
    most: int = 0
    """Nodes of the template that it may have; others never come."""
    problem: str = ""
    """Error of the last pass."""
    _nodes: dict[str, float] = field(default_factory=dict)
    """When the Lease of each node was renewed."""
    _brought: set[str] = field(default_factory=set)
    _due: dict[str, float] = field(default_factory=dict)
    """When the node of a pod is due; infinite once it came."""
    _number: int = 0

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Runs in a `with` block. At its end the nodes go, and with them their pods."""
        try:
            with repeated(self._pass, self._report, every_seconds=_POLL_SECONDS):
                yield
        finally:
            if self.problem:
                print(self.problem)
            for name in list(self._nodes):
                self.remove(name)

    def _report(self, problem: str) -> None:
        self.problem = problem

    def add(self, template: NodeTemplate) -> str:
        """Make a node that is ready at once; returns its name."""
        self._number += 1
        name = f"{self.prefix}-{self._number}"
        labels = {"kubernetes.io/hostname": name, **template.labels}
        taints = [{"key": key, "effect": "NoSchedule"} for key in template.accelerators]
        resources = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        resources |= {key: str(amount) for key, amount in template.accelerators.items()}
        ready = {"type": "Ready", "status": "True", "reason": "NodeProvider", "message": "a test double"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        self._call("POST", "/api/v1/nodes", json={**node, "spec": {"taints": taints}})
        status = {"capacity": resources, "allocatable": resources, "conditions": [ready | _times()]}
        self._call("PATCH", f"/api/v1/nodes/{name}/status", json={"status": status}, headers=_MERGE)
        self._renew(name)
        return name

    def give_notice(self, node: str) -> None:
        """The node is about to go."""
        found = self._call("GET", f"/api/v1/nodes/{node}")
        taints = [*found["spec"].get("taints", ()), {"key": NOTICE, "effect": "NoSchedule"}]
        self._call("PATCH", f"/api/v1/nodes/{node}", json={"spec": {"taints": taints}}, headers=_MERGE)

    def remove(self, node: str) -> None:
        """The node goes, and its pods with it."""
        self._nodes.pop(node, None)
        self._brought.discard(node)
        self._call("DELETE", f"/api/v1/nodes/{node}")
        for pod in self._pods():
            if pod["spec"].get("nodeName") == node:
                self._delete(pod)

    def _pass(self) -> None:
        pods = self._pods()
        self._bring([pod for pod in pods if _is_unschedulable(pod) and self.template.fits(pod)])
        for pod in pods:
            if pod["spec"].get("nodeName") in self._nodes:
                self._run(pod)
        for name, renewed in list(self._nodes.items()):
            if time.monotonic() - renewed > _LEASE_SECONDS:
                self._renew(name)

    def _bring(self, waiting: list[Json]) -> None:
        """One node for each pod that has waited long enough."""
        uids = [pod["metadata"]["uid"] for pod in waiting]
        now = time.monotonic()
        for uid in uids:
            self._due.setdefault(uid, now + self.delay_seconds)
            if self._due[uid] <= now and len(self._brought) < self.most:
                self._brought.add(self.add(self.template))
                self._due[uid] = float("inf")

    def _run(self, pod: Json) -> None:
        """What the kubelet does with a pod of its node."""
        if "deletionTimestamp" in pod["metadata"]:
            self._delete(pod)
        elif pod["status"]["phase"] == "Pending":
            running = {"running": {"startedAt": _now()}}
            containers = [
                {"name": c["name"], "image": c["image"], "imageID": "", "ready": True, "restartCount": 0}
                | {"started": True, "state": running}
                for c in pod["spec"]["containers"]
            ]
            types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            conditions = [{"type": type, "status": "True", "lastTransitionTime": _now()} for type in types]
            address = {"podIP": self.address, "podIPs": [{"ip": self.address}]}
            status = {"phase": "Running", "conditions": conditions, "containerStatuses": containers, **address}
            self._call("PATCH", f"{_path(pod)}/status", json={"status": status}, headers=_MERGE)

    def _delete(self, pod: Json) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._call("DELETE", _path(pod), json=options)

    def _renew(self, name: str) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": f"{_now()[:-1]}.000000Z"},
        }
        query = {"fieldManager": "node-provider", "force": "true"}
        self._call("PATCH", f"{_LEASES}/{name}", json=lease, headers=_APPLY, params=query)
        self._nodes[name] = time.monotonic()

    def _pods(self) -> list[Json]:
        items: list[Json] = self._call("GET", "/api/v1/pods")["items"]
        return items

    def _call(self, method: str, path: str, **options: Any) -> Json:
        answer = self.api.request(method, path, **options)
        if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            assert answer.is_success, f"{method} {path}: {answer.text}"
        found: Json = answer.json()
        return found


def _is_unschedulable(pod: Json) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "PodScheduled" and c["status"] == "False" and c.get("reason") == "Unschedulable"
        for c in pod["status"].get("conditions", ())
    )


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _times() -> dict[str, str]:
    return {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
