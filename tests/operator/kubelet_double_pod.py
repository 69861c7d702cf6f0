"""One pod of the kubelet double: its containers run as processes of this machine, without any image.

There are no containers and no mount namespaces: a volume is a directory of the pod. If a command, an argument or an
environment variable names a mount path, the process gets that directory instead. In place of the mounted
service-account token it gets a `KUBECONFIG` for the same account, so RBAC is real. `image` is ignored; `python` is the
interpreter of the tests.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from partita_devtools.machine.kubeconfig import write_kubeconfig

_POLL_S = 0.05
_RESTART_DELAY_S = 1.0
_MESSAGE_BYTES = 4096

Json = dict[str, Any]


class PodNotPlayedError(Exception):
    """The pod requests something that the double does not simulate; the message names it."""


@dataclass
class _Container:
    spec: Json
    log: Path
    message: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: str = ""
    ended: float = 0.0
    restarts: int = 0
    terminated: Json | None = None

    @property
    def name(self) -> str:
        return str(self.spec["name"])


class PodRun(threading.Thread):
    """Runs one pod from start to end and updates its status.

    `entrypoint` is the command of a container without a command, in place of an image's entry point.
    """

    def __init__(
        self,
        pod: Json,
        *,
        api: httpx.Client,
        authority: Path,
        directory: Path,
        entrypoint: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(name=f"pod-{pod['metadata']['name']}", daemon=True)
        self.pod = pod
        self._api = api
        self._authority = authority
        self._directory = directory
        self._entrypoint = list(entrypoint)
        self._environment = dict(environment)
        self._grace_s: float | None = None
        self._killed = False
        self._started_at = _now()
        self._deadline_exceeded = False
        self._init = [self._container(spec) for spec in pod["spec"].get("initContainers", [])]
        self._containers = [self._container(spec) for spec in pod["spec"]["containers"]]
        self._paths: dict[str, str] = {}

    @property
    def _namespace(self) -> str:
        return str(self.pod["metadata"]["namespace"])

    def log(self, container: str) -> Path | None:
        """The file with a container's output; None if the pod lacks this container."""
        return next((c.log for c in [*self._init, *self._containers] if c.name == container), None)

    def terminate(self, grace_s: float) -> None:
        """End the pod: SIGTERM now, SIGKILL after `grace_s` seconds."""
        if self._grace_s is None:
            self._grace_s = grace_s

    def kill(self) -> None:
        """Kill the pod's processes at once and report nothing more, as after a loss of its machine."""
        self._killed = True
        self.terminate(0.0)
        self.join()

    def run(self) -> None:
        """Run the pod."""
        try:
            self._prepare()
            deadline_s = self.pod["spec"].get("activeDeadlineSeconds")
            deadline = None if deadline_s is None else time.monotonic() + deadline_s
            for container in self._init:
                self._start(container)
                self._watch([container], deadline, restart="Never")
                if container.terminated is None or container.terminated["exitCode"] != 0:
                    self._publish("Failed")
                    return
            for container in self._containers:
                self._start(container)
            self._publish("Running")
            self._watch(self._containers, deadline, restart=self.pod["spec"].get("restartPolicy", "Always"))
            succeeded = all(c.terminated is not None and c.terminated["exitCode"] == 0 for c in self._containers)
            self._publish("Succeeded" if succeeded and not self._deadline_exceeded else "Failed")
        except PodNotPlayedError as error:
            for container in self._containers:
                container.terminated = _terminated(128, "CreateContainerConfigError", str(error), _now())
            self._publish("Failed")

    def _container(self, spec: Json) -> _Container:
        directory = self._directory / spec["name"]
        directory.mkdir(parents=True, exist_ok=True)
        return _Container(spec, log=directory / "log", message=directory / "termination-message")

    def _watch(self, containers: list[_Container], deadline: float | None, restart: str) -> None:
        """Wait until the containers have finally ended; restart and end them by the pod's spec."""
        terminating_since: float | None = None
        while True:
            for container in containers:
                self._notice_end(container)
                if self._grace_s is None and _is_due_for_restart(container, restart):
                    container.restarts += 1
                    self._start(container)
                    self._publish("Running")
            running = [c for c in containers if c.process is not None]
            waits = [c for c in containers if self._grace_s is None and _will_restart(c, restart)]
            if not running and not waits:
                return
            if deadline is not None and time.monotonic() > deadline and self._grace_s is None:
                self._deadline_exceeded = True
                self._grace_s = float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))
            if self._grace_s is not None:
                if terminating_since is None:
                    terminating_since = time.monotonic()
                    _signal(running, signal.SIGTERM)
                if time.monotonic() - terminating_since >= self._grace_s:
                    _signal(running, signal.SIGKILL)
            time.sleep(_POLL_S)

    def _start(self, container: _Container) -> None:
        spec = container.spec
        environment = self._container_environment(spec)
        argv = [
            self._local(_expand(word, environment))
            for word in [*(spec.get("command") or self._entrypoint), *spec.get("args", [])]
        ]
        if not argv:
            raise PodNotPlayedError(f"container {container.name} has no command and there are no images here")
        if argv[0] in ("python", "python3"):
            argv[0] = sys.executable
        container.message.unlink(missing_ok=True)
        with container.log.open("ab") as output:
            try:
                container.process = subprocess.Popen(
                    argv,
                    env=self._environment
                    | self._credentials()
                    | {name: self._local(value) for name, value in environment.items()},
                    cwd=container.log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"{error}\n".encode())
                container.terminated = _terminated(127, "ContainerCannotRun", str(error), _now())
                container.ended = time.monotonic()
                return
        container.started_at, container.terminated = _now(), None

    def _notice_end(self, container: _Container) -> None:
        process = container.process
        if process is None or process.poll() is None:
            return
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        _signal([container], signal.SIGKILL)
        container.process = None
        container.ended = time.monotonic()
        message = container.message.read_text(encoding="utf-8") if container.message.exists() else ""
        if not message and code and container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = container.log.read_bytes()[-_MESSAGE_BYTES // 2 :].decode(errors="replace")
        reason = "Completed" if code == 0 else "Error"
        container.terminated = _terminated(code, reason, message[:_MESSAGE_BYTES], container.started_at)

    def _prepare(self) -> None:
        """Make the volumes and the account's kubeconfig, and record the directory of each path."""
        volumes: dict[str, Path] = {}
        for volume in self.pod["spec"].get("volumes", []):
            directory = self._directory / "volumes" / volume["name"]
            if self._fill_volume(volume, directory):
                volumes[volume["name"]] = directory
        for container in [*self._init, *self._containers]:
            for mount in container.spec.get("volumeMounts", []):
                if mount["name"] in volumes:
                    directory = volumes[mount["name"]] / mount.get("subPath", "")
                    self._paths[mount["mountPath"].rstrip("/")] = str(directory)
            message_path = container.spec.get("terminationMessagePath", "/dev/termination-log")
            self._paths[message_path] = str(container.message)

    def _fill_volume(self, volume: Json, directory: Path) -> bool:
        """Make a volume's directory; False for the token volume, which the kubeconfig replaces."""
        kinds = volume.keys() - {"name"}
        if kinds == {"projected"} or (kinds == {"secret"} and "-token-" in volume["secret"]["secretName"]):
            return False
        directory.mkdir(parents=True, exist_ok=True)
        if kinds == {"configMap"}:
            for key, value in self._object("configmaps", volume["configMap"]["name"]).get("data", {}).items():
                (directory / key).write_text(value, encoding="utf-8")
        elif kinds == {"secret"}:
            for key, value in self._object("secrets", volume["secret"]["secretName"]).get("data", {}).items():
                (directory / key).write_bytes(base64.b64decode(value))
        elif kinds not in ({"emptyDir"}, set()):
            raise PodNotPlayedError(f"volume {volume['name']}: the double has no {', '.join(kinds)} volumes")
        return True

    def _container_environment(self, spec: Json) -> dict[str, str]:
        environment: dict[str, str] = {}
        for source in spec.get("envFrom", []):
            for kind, key in (("configmaps", "configMapRef"), ("secrets", "secretRef")):
                if key in source:
                    data = self._object(kind, source[key]["name"]).get("data", {})
                    for name, value in data.items():
                        plain = base64.b64decode(value).decode() if kind == "secrets" else value
                        environment[source.get("prefix", "") + name] = plain
        for entry in spec.get("env", []):
            if "valueFrom" in entry:
                environment[entry["name"]] = self._value_from(entry["valueFrom"])
            else:
                environment[entry["name"]] = _expand(entry.get("value", ""), environment)
        return environment

    def _value_from(self, source: Json) -> str:
        if "fieldRef" in source:
            return self._field(source["fieldRef"]["fieldPath"])
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            return str(self._object("configmaps", reference["name"])["data"][reference["key"]])
        if "secretKeyRef" in source:
            reference = source["secretKeyRef"]
            return base64.b64decode(self._object("secrets", reference["name"])["data"][reference["key"]]).decode()
        raise PodNotPlayedError(f"environment from {', '.join(source)} is not played")

    def _field(self, path: str) -> str:
        indexed = re.fullmatch(r"(metadata\.(?:labels|annotations))\['(.+)'\]", path)
        parts = [*indexed[1].split("."), indexed[2]] if indexed else path.split(".")
        if parts in (["status", "podIP"], ["status", "hostIP"]):
            return "127.0.0.1"
        value: Any = self.pod
        for part in parts:
            value = value.get(part, "")
        return str(value)

    def _object(self, kind: str, name: str) -> Json:
        answer = self._request("GET", f"{kind}/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise PodNotPlayedError(f"{kind} {self._namespace}/{name} not found")
        found: Json = answer.raise_for_status().json()
        return found

    def _credentials(self) -> dict[str, str]:
        """Environment with the path of the pod's kubeconfig, which is always a path of this machine."""
        if not self.pod["spec"].get("automountServiceAccountToken", True):
            return {}
        return {"KUBECONFIG": str(self._kubeconfig())}

    def _kubeconfig(self) -> Path:
        path = self._directory / "kubeconfig"
        if not path.exists():
            account = self.pod["spec"].get("serviceAccountName", "default")
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            answer = self._request("POST", f"serviceaccounts/{account}/token", request)
            token = answer.raise_for_status().json()["status"]["token"]
            write_kubeconfig(path, str(self._api.base_url).rstrip("/"), self._authority, token, self._namespace)
        return path

    def _local(self, text: str) -> str:
        """`text` with the directories of this machine in place of mount paths."""
        if not self._paths:
            return text
        alternatives = "|".join(re.escape(path) for path in sorted(self._paths, key=len, reverse=True))
        pattern = rf"(?<![\w/.-])(?:{alternatives})(?![\w.-])"
        return re.sub(pattern, lambda match: self._paths[match[0]], text)

    def _publish(self, phase: str) -> None:
        """Write the pod's status, if the pod still exists."""
        if self._killed:
            return
        ready = "True" if phase == "Running" else "False"
        status = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": self._started_at,
            "reason": "DeadlineExceeded" if self._deadline_exceeded else None,
            "conditions": [
                {"type": kind, "status": value, "lastTransitionTime": _now()}
                for kind, value in (
                    ("PodScheduled", "True"),
                    ("Initialized", "True"),
                    ("ContainersReady", ready),
                    ("Ready", ready),
                )
            ],
            "initContainerStatuses": [_container_status(container) for container in self._init],
            "containerStatuses": [_container_status(container) for container in self._containers],
        }
        patch = {"metadata": {"uid": self.pod["metadata"]["uid"]}, "status": status}
        answer = self._request("PATCH", f"pods/{self.pod['metadata']['name']}/status", patch)
        if answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.CONFLICT):
            answer.raise_for_status()

    def _request(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        """The API server's answer for a path below the pod's namespace. Waits while the server is away."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        while True:
            try:
                return self._api.request(
                    method,
                    f"/api/v1/namespaces/{self._namespace}/{path}",
                    content=None if body is None else json.dumps(body),
                    headers={"Content-Type": kind},
                )
            except httpx.TransportError:
                if self._killed:
                    raise
                time.sleep(0.2)


def base_environment() -> dict[str, str]:
    """Variables of every container process, in addition to its own: enough to run this interpreter."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONUNBUFFERED": "1",
    }


def _will_restart(container: _Container, policy: str) -> bool:
    if container.process is not None or container.terminated is None:
        return False
    return policy == "Always" or (policy == "OnFailure" and container.terminated["exitCode"] != 0)


def _is_due_for_restart(container: _Container, policy: str) -> bool:
    return _will_restart(container, policy) and time.monotonic() - container.ended >= _RESTART_DELAY_S


def _signal(containers: list[_Container], signal_number: signal.Signals) -> None:
    for container in containers:
        if container.process is not None:
            try:
                os.killpg(container.process.pid, signal_number)
            except ProcessLookupError:
                continue


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Kubernetes' `$(NAME)` substitution; unknown names stay as they are."""
    return re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), text)


def _terminated(code: int, reason: str, message: str, started_at: str) -> Json:
    state = {"exitCode": code, "reason": reason, "message": message, "startedAt": started_at, "finishedAt": _now()}
    return {key: value for key, value in state.items() if value != ""}


def _container_status(container: _Container) -> Json:
    state: Json = {"waiting": {"reason": "PodInitializing"}}
    if container.process is not None:
        state = {"running": {"startedAt": container.started_at}}
    elif container.terminated is not None:
        state = {"terminated": container.terminated}
    return {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "ready": container.process is not None,
        "restartCount": container.restarts,
        "state": state,
    }


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
