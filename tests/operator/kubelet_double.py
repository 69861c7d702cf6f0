"""A test double of a Kubernetes node: it simulates the scheduler and the kubelet, without containers.

It registers a Node with labels and extended resources, and takes pods that request such a node. It runs their commands
as local processes (see `kubelet_double_pod`), reports their states, and serves their logs to the API server over HTTPS
as a kubelet does. The API server, the Jobs and their logs are real; the node is not. Not simulated: images, probes,
networking, CPU and memory requests.
"""

from __future__ import annotations

import datetime
import json
import shutil
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import httpx
from tests.operator.kubelet_double_pod import Json, PodRun, base_environment

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.certificates import issue_server_certificate

_SYNC_EVERY_S = 0.25
_LEASE_EVERY_S = 5.0
_DEFAULT_CAPACITY = {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "100Gi", "pods": "110"}


class KubeletDouble:
    """A node that exists from `start` (or the start of a `with` block) to `stop`.

    `capacity` has its extended resources, such as `{"nvidia.com/gpu": 4}`. It takes a pod only if the requested
    resources are free. `entrypoint` is the command of containers without a command. `environment` is added to that of
    every container. `work_dir` has logs and volumes; those of a deleted pod are removed.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        name: str,
        *,
        work_dir: Path,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, int] | None = None,
        entrypoint: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}
        self.capacity = dict(capacity or {})
        self._authority = control_plane.authority
        self._work_dir = work_dir
        self._entrypoint = entrypoint
        self._environment = {**base_environment(), **(environment or {})}
        self._api = httpx.Client(
            base_url=control_plane.url,
            headers={"Authorization": f"Bearer {control_plane.token}"},
            verify=ssl.create_default_context(cafile=str(control_plane.authority.certificate)),
            timeout=10.0,
            trust_env=False,
        )
        self._runs: dict[str, PodRun] = {}
        self._stopping = threading.Event()
        self._loop = threading.Thread(target=self._sync_until_stopped, name=f"node-{name}", daemon=True)
        self._logs: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Register the node as ready, and start to take pods."""
        self._logs = self._serve_logs()
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels},
        }
        self._api.post("/api/v1/nodes", json=node).raise_for_status()
        self._patch(f"/api/v1/nodes/{self.name}/status", {"status": self._node_status()}).raise_for_status()
        self._loop.start()

    def stop(self) -> None:
        """Kill the node's pods, and remove it and them from the API server."""
        self.crash()
        pods = self._bound_pods()
        for pod in pods:
            self._delete(pod)
        self._api.delete(f"/api/v1/nodes/{self.name}").raise_for_status()
        self._api.close()

    def crash(self) -> None:
        """Stop as a machine that loses power: processes are killed, and the API server receives no report."""
        self._stopping.set()
        if self._loop.ident is not None:
            self._loop.join()
        for run in self._runs.values():
            run.kill()
        if self._logs is not None:
            self._logs.shutdown()
            self._logs.server_close()
            self._logs = None

    def _sync_until_stopped(self) -> None:
        lease_renewed = -_LEASE_EVERY_S
        while not self._stopping.wait(_SYNC_EVERY_S):
            try:
                if time.monotonic() - lease_renewed >= _LEASE_EVERY_S:
                    self._renew_lease()
                    lease_renewed = time.monotonic()
                self._sync()
            except httpx.HTTPError:
                # The API server is away: running pods continue, and the next round tries again.
                continue

    def _sync(self) -> None:
        bound = {pod["metadata"]["uid"]: pod for pod in self._bound_pods()}
        for uid in self._runs.keys() - bound.keys():
            self._runs.pop(uid).kill()
        for uid, pod in bound.items():
            run = self._runs.get(uid)
            if "deletionTimestamp" in pod["metadata"]:
                if run is not None and run.is_alive():
                    run.terminate(float(pod["metadata"].get("deletionGracePeriodSeconds", 30)))
                else:
                    self._delete(pod)
            elif run is None and pod["status"].get("phase", "Pending") == "Pending":
                self._runs[uid] = self._run(pod)
        free = self._free(list(bound.values()))
        for pod in self._pods("spec.nodeName="):
            if self._accepts(pod, free) and self._bind(pod):
                free = {name: free[name] - amount for name, amount in self._requests(pod).items()}

    def _run(self, pod: Json) -> PodRun:
        run = PodRun(
            pod,
            api=self._api,
            authority=self._authority.certificate,
            directory=self._pod_directory(pod),
            entrypoint=self._entrypoint,
            environment=self._environment,
        )
        run.start()
        return run

    def _pod_directory(self, pod: Json) -> Path:
        return self._work_dir / str(pod["metadata"]["uid"])

    def _pods(self, field_selector: str) -> list[Json]:
        answer = self._api.get("/api/v1/pods", params={"fieldSelector": field_selector})
        pods: list[Json] = answer.raise_for_status().json()["items"]
        return pods

    def _bound_pods(self) -> list[Json]:
        return self._pods(f"spec.nodeName={self.name}")

    def _accepts(self, pod: Json, free: Mapping[str, int]) -> bool:
        spec = pod["spec"]
        selector: Json = spec.get("nodeSelector", {})
        return (
            "deletionTimestamp" not in pod["metadata"]
            and all(self.labels.get(key) == value for key, value in selector.items())
            and self._matches_affinity(spec.get("affinity", {}).get("nodeAffinity", {}))
            and all(amount <= free.get(name, 0) for name, amount in self._requests(pod, every=True).items())
        )

    def _matches_affinity(self, affinity: Json) -> bool:
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is None:
            return True
        return any(
            all(self._satisfies(expression) for expression in term.get("matchExpressions", []))
            for term in required["nodeSelectorTerms"]
        )

    def _satisfies(self, expression: Json) -> bool:
        present = expression["key"] in self.labels
        listed = self.labels.get(expression["key"]) in expression.get("values", [])
        answers = {"In": listed, "NotIn": not listed, "Exists": present, "DoesNotExist": not present}
        return answers[expression["operator"]]

    def _requests(self, pod: Json, *, every: bool = False) -> dict[str, int]:
        """The pod's requests of this node's extended resources; with `every`, of all extended resources."""
        total: dict[str, int] = dict.fromkeys(self.capacity, 0)
        for container in pod["spec"]["containers"]:
            resources = container.get("resources", {})
            for name, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
                if name in self.capacity or (every and "/" in name):
                    total[name] = total.get(name, 0) + int(amount)
        return total

    def _free(self, bound: list[Json]) -> dict[str, int]:
        free = dict(self.capacity)
        for pod in bound:
            if pod["status"].get("phase") not in ("Succeeded", "Failed"):
                for name, amount in self._requests(pod).items():
                    free[name] -= amount
        return free

    def _bind(self, pod: Json) -> bool:
        """Bind the pod here; False if it is already bound or gone."""
        metadata = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.name},
        }
        answer = self._api.post(f"{_path(pod)}/binding", json=binding)
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.NOT_FOUND):
            return False
        answer.raise_for_status()
        return True

    def _delete(self, pod: Json) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        answer = self._api.request("DELETE", _path(pod), json=options)
        if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            answer.raise_for_status()
        self._runs.pop(pod["metadata"]["uid"], None)
        shutil.rmtree(self._pod_directory(pod), ignore_errors=True)

    def _renew_lease(self) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now}
        answer = self._patch(f"{leases}/{self.name}", {"spec": spec})
        if answer.status_code == httpx.codes.NOT_FOUND:
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name},
                "spec": spec,
            }
            answer = self._api.post(leases, json=lease)
        answer.raise_for_status()

    def _patch(self, path: str, patch: Json) -> httpx.Response:
        headers = {"Content-Type": "application/merge-patch+json"}
        return self._api.patch(path, content=json.dumps(patch), headers=headers)

    def _node_status(self) -> Json:
        assert self._logs is not None
        resources = {**_DEFAULT_CAPACITY, **{name: str(amount) for name, amount in self.capacity.items()}}
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "capacity": resources,
            "allocatable": resources,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.server_address[1]}},
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletDouble",
                    "message": "a test double",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
        }

    def _serve_logs(self) -> ThreadingHTTPServer:
        pair = issue_server_certificate(self._authority, self._work_dir / "pki", self.name)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        find = self._find_run

        class LogHandler(_LogHandler):
            find_run = staticmethod(find)

        server = ThreadingHTTPServer(("127.0.0.1", 0), LogHandler)
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, name=f"logs-{self.name}", daemon=True).start()
        return server

    def _find_run(self, namespace: str, name: str) -> PodRun | None:
        for run in list(self._runs.values()):
            metadata = run.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return run
        return None


class _LogHandler(BaseHTTPRequestHandler):
    """`GET /containerLogs/<namespace>/<pod>/<container>`, with `follow`, `tailLines` and `limitBytes`."""

    @staticmethod
    def find_run(namespace: str, name: str) -> PodRun | None:
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer with the container's output so far, or follow it."""
        url = urlsplit(self.path)
        options = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        run = self.find_run(parts[1], parts[2]) if len(parts) == 4 and parts[0] == "containerLogs" else None
        log = run.log(parts[3]) if run is not None else None
        if run is None or log is None or not log.exists():
            self.send_error(httpx.codes.NOT_FOUND, "no such container here")
            return
        self.send_response(httpx.codes.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        with log.open("rb") as output:
            content = output.read()
            if "tailLines" in options:
                count = int(options["tailLines"])
                content = b"".join(content.splitlines(keepends=True)[-count:]) if count else b""
            self.wfile.write(content[: int(options.get("limitBytes", len(content)))])
            while options.get("follow") == "true":
                alive = run.is_alive()
                more = output.read()
                self.wfile.write(more)
                self.wfile.flush()
                if not alive and not more:
                    return
                time.sleep(0.1)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
