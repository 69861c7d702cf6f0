"""A test double of KubeRay's controller and of its pods: it starts real Ray nodes as processes.

For each RayService it makes a RayCluster, writes serveConfigV2 to Serve whenever its text changes, starts a Ray node
for each pod that a worker group of the RayCluster should have, with the group's Ray resources, and writes KubeRay's
conditions. The API server, Ray and Serve are real. Not simulated: pods, services, a second Ray cluster that takes over,
and the removal of pods. `test_kuberay_double.py` compares it with the real one.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from tests.operator.engines.control_loop import repeated

from partita_devtools.machine.ports import free_ports
from partita_devtools.machine.processes import is_running, spawn
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import NODE_LABEL, NodePorts, node_environment
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy
from partita_devtools.ray_cluster.state import RayClusterState

Json = dict[str, Any]
SERVICES: Final = "/apis/ray.io/v1/namespaces/{namespace}/rayservices"
CLUSTERS: Final = "/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
_POLL_SECONDS: Final = 0.5
_JOIN_SECONDS: Final = 180.0
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}


class KubeRayDouble:
    """Serves the RayServices of one namespace, all on one given Ray head; without one, none is ever up."""

    def __init__(self, api: httpx.Client, namespace: str, ray: RayCluster | None, logs: Path) -> None:
        self._api = api
        self._services = SERVICES.format(namespace=namespace)
        self._clusters = CLUSTERS.format(namespace=namespace)
        self._ray = ray
        self._logs = logs
        self._written: dict[str, str] = {}
        """The text that was last written to Serve, by RayService."""
        self._named: dict[str, str] = {}
        """The name of the RayCluster of each RayService, by uid."""
        self.nodes: dict[str, int] = {}
        """Ray nodes that were started, by worker group."""
        self.problem = ""
        """Error of the last pass."""

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Runs in a `with` block."""
        with repeated(self._look, self._report, every_seconds=_POLL_SECONDS):
            yield

    def _report(self, problem: str) -> None:
        self.problem = problem

    def _look(self) -> None:
        for service in self._call("GET", self._services)["items"]:
            if "deletionTimestamp" not in service["metadata"]:
                self._reconcile(service)

    def _reconcile(self, service: Json) -> None:
        name = service["metadata"]["name"]
        cluster = self._cluster_of(service)
        if cluster is None or self._ray is None:
            self._write_status(service, self._named[service["metadata"]["uid"]], {}, False)
            return
        self._start_nodes(cluster)
        text = service["spec"]["serveConfigV2"]
        if self._written.get(name) != text:
            # A pod does not share its ports; processes of this machine do.
            deploy(self._ray, json.loads(text))
            self._written[name] = text
        apps = self._ray.get(APPLICATIONS_PATH)["applications"]
        statuses = {app: {field: found[field] for field in ("status", "message")} for app, found in apps.items()}
        was_up = any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(service))
        is_up = was_up or (bool(apps) and all(found["status"] == "RUNNING" for found in apps.values()))
        self._write_status(service, cluster["metadata"]["name"], statuses, is_up)

    def _cluster_of(self, service: Json) -> Json | None:
        """The RayCluster of the specification, made or extended if need be; None while it has only a name."""
        meta, desired = service["metadata"], service["spec"]["rayClusterConfig"]
        name = self._named.get(meta["uid"])
        if name is None:
            return self._name_cluster(meta)
        url = f"{self._clusters}/{name}"
        found = self._api.get(url)
        if found.status_code == httpx.codes.NOT_FOUND:
            return self._make_cluster(name, service)
        cluster: Json = found.raise_for_status().json()
        known = len(cluster["spec"]["workerGroupSpecs"])
        if _compared(desired, known) != _compared(cluster["spec"], known):
            assert self._ray is None, "KubeRay would make a new Ray cluster for this"
            return self._name_cluster(meta)
        if len(desired["workerGroupSpecs"]) > known:  # then KubeRay replaces the whole specification of the cluster
            return self._call("PATCH", url, json={"spec": desired}, headers=_MERGE)
        return cluster

    def _name_cluster(self, meta: Json) -> None:
        """The status has the name of a RayCluster before there is one."""
        self._named[meta["uid"]] = f"{meta['name']}-{meta['uid'][:5]}-{meta['generation']}"

    def _make_cluster(self, name: str, service: Json) -> Json:
        meta = service["metadata"]
        owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": meta["name"], "uid": meta["uid"]}
        labels, owners = meta.get("labels"), [{**owner, "controller": True}]
        made = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
            "spec": service["spec"]["rayClusterConfig"],
        }
        return self._call("POST", self._clusters, json=made)

    def _start_nodes(self, cluster: Json) -> None:
        for group in cluster["spec"]["workerGroupSpecs"]:
            name = group["groupName"]
            while self.nodes.get(name, 0) < group["replicas"]:
                number = self.nodes.get(name, 0)
                self._start_node(f"{name}-{number}", group)
                self.nodes[name] = number + 1

    def _start_node(self, name: str, group: Json) -> None:
        """Does the same as `ray start` in a worker's container."""
        state = RayClusterState.read(self._ray.state_dir)
        assert state is not None
        ports = NodePorts(*free_ports(len(NodePorts.__dataclass_fields__)))
        parameters: Mapping[str, str] = group["rayStartParams"]
        (container,) = group["template"]["spec"]["containers"]
        command = [
            sys.executable,
            "-m",
            "partita_devtools.ray_cluster.node",
            "start",
            "--block",
            "--disable-usage-stats",
            f"--address={self._ray.address}",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={container['resources']['limits']['cpu']}",
            f"--num-gpus={parameters['num-gpus']}",
            f"--resources={json.loads(parameters['resources'])}",
            f"--object-store-memory={128 << 20}",
            f"--dashboard-agent-listen-port={ports.dashboard_agent}",
            f"--dashboard-agent-grpc-port={ports.metrics_agent}",
            f"--metrics-export-port={ports.metrics_export}",
            f"--runtime-env-agent-port={ports.runtime_env_agent}",
            "--min-worker-port=0",
            "--max-worker-port=0",
            f"--labels={NODE_LABEL}={name}",
        ]
        environment = node_environment(
            os.environ,
            state.config,
            ports,
            state.temp_dir,
            token=state.token,
            state_dir=self._ray.state_dir,
            node=name,
            pool=None,
        )
        log = self._logs / f"{name}.log"
        # With its marker the cluster ends it together with its own nodes.
        process = spawn(command, log=log, environment=environment, dies_with_parent=False)
        deadline = time.monotonic() + _JOIN_SECONDS
        # Ray nodes that start at the same time on one host disturb each other.
        while not any(node.alive and node.name == name for node in self._ray.nodes()):
            assert is_running(process), f"Ray node {name} ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"Ray node {name} has not joined: {log.read_text()[-2000:]}"
            time.sleep(_POLL_SECONDS)

    def _write_status(self, service: Json, cluster: str, applications: Json, is_up: bool) -> None:
        generation = service["metadata"]["generation"]
        ready = {
            "type": "Ready",
            "status": str(is_up),
            "reason": "NonZeroServeEndpoints" if is_up else "Initializing",
            "message": "Number of serve endpoints is greater than 0" if is_up else "RayService is initializing",
        }
        upgrade = {"type": "UpgradeInProgress", "status": "False", "reason": "NoPendingCluster", "message": "none"}
        before = {c["type"]: c for c in _conditions(service)}
        conditions = [
            {
                **condition,
                "observedGeneration": generation,
                "lastTransitionTime": before[condition["type"]]["lastTransitionTime"]
                if before.get(condition["type"], {}).get("status") == condition["status"]
                else "2026-01-01T00:00:00Z",
            }
            for condition in (ready, upgrade)
        ]
        part = {"rayClusterName": cluster, "applicationStatuses": applications}
        place = "activeServiceStatus" if is_up else "pendingServiceStatus"
        status = {"observedGeneration": generation, "conditions": conditions, place: part}
        if is_up:
            status["pendingServiceStatus"] = None
        url = f"{self._services}/{service['metadata']['name']}/status"
        self._call("PATCH", url, json={"status": status}, headers=_MERGE)

    def _call(self, method: str, path: str, **options: Any) -> Json:
        answer = self._api.request(method, path, **options)
        assert answer.is_success, f"{method} {path}: {answer.text}"
        found: Json = answer.json()
        return found


def _conditions(service: Json) -> list[Json]:
    found: list[Json] = service.get("status", {}).get("conditions", [])
    return found


def _compared(spec: Json, groups: int) -> Json:
    """What KubeRay compares of a cluster's specification: everything but numbers, of the first `groups`."""
    numbers = ("replicas", "minReplicas", "maxReplicas", "scaleStrategy")
    compared = [{k: v for k, v in group.items() if k not in numbers} for group in spec["workerGroupSpecs"][:groups]]
    return {**spec, "workerGroupSpecs": compared}
