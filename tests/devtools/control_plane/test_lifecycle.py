"""The control plane for development and tests, and the node double that runs its pods."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.operator.kubelet_double import KubeletDouble
from tests.patience import eventually

from partita_devtools.control_plane.audit import AuditedRequest, read_audit_log
from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.lifecycle import ControlPlane, load_control_plane, start_control_plane
from partita_devtools.machine.processes import identify, is_running

pytestmark = pytest.mark.apiserver

WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.test.partita.dev"},
    "spec": {
        "group": "test.partita.dev",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"size": {"type": "integer", "minimum": 1}},
                            }
                        },
                    }
                },
            }
        ],
    },
}


class Api:
    """The API server of a control plane as its administrator sees it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.client = httpx.Client(
            base_url=plane.url,
            headers={"Authorization": f"Bearer {plane.token}"},
            verify=ssl.create_default_context(cafile=str(plane.authority.certificate)),
            timeout=10.0,
        )

    def get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(path).raise_for_status().json()
        return found

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self.client.post(path, json=body).raise_for_status().json()
        return created

    def exists(self, path: str) -> bool:
        return self.client.get(path).status_code == httpx.codes.OK


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    api = Api(control_plane)
    with api.client:
        yield api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    created = api.create("/api/v1/namespaces", {"metadata": {"generateName": "dev-test-"}})
    name = created["metadata"]["name"]
    # Pods are refused until the controller manager has made the namespace's default account.
    eventually(lambda: api.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    yield name
    api.client.delete(f"/api/v1/namespaces/{name}").raise_for_status()


def job(name: str, script: str, *, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": ["python", "-c", script]}
    template = {"restartPolicy": "Never", "containers": [container], **(pod or {})}
    return {
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": template}, **spec},
    }


def pods_of(api: Api, namespace: str, job_name: str) -> list[dict[str, Any]]:
    found = api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector=job-name%3D{job_name}")
    items: list[dict[str, Any]] = found["items"]
    return items


def test_kubectl_sees_the_namespaces(control_plane: ControlPlane) -> None:
    answer = subprocess.run(
        ["kubectl", "--kubeconfig", str(control_plane.kubeconfig), "get", "namespaces", "--output=name"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "namespace/kube-system" in answer.stdout.split()


def test_all_programs_are_healthy(control_plane: ControlPlane) -> None:
    assert set(control_plane.health().values()) == {"ok"}


def test_a_custom_resource_is_validated_by_its_schema(api: Api, namespace: str) -> None:
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", WIDGETS)
    widgets = f"/apis/test.partita.dev/v1/namespaces/{namespace}/widgets"
    try:
        eventually(lambda: api.exists(widgets))
        widget = {"apiVersion": "test.partita.dev/v1", "kind": "Widget", "metadata": {"name": "w"}}
        refused = api.client.post(widgets, json={**widget, "spec": {"size": 0}})
        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert "spec.size" in refused.json()["message"]
        api.create(widgets, {**widget, "spec": {"size": 3}})
        assert api.get(f"{widgets}/w")["spec"] == {"size": 3}
    finally:
        name = WIDGETS["metadata"]["name"]
        api.client.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")


def test_an_unknown_token_is_refused_and_an_account_may_only_what_it_was_granted(api: Api, namespace: str) -> None:
    def status(token: str, path: str) -> int:
        return api.client.get(path, headers={"Authorization": f"Bearer {token}"}).status_code

    assert status("not-a-token", "/api/v1/namespaces") == httpx.codes.UNAUTHORIZED

    tokens = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token = api.create(tokens, {"spec": {}})["status"]["token"]
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    assert status(token, config_maps) == httpx.codes.FORBIDDEN

    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]
    api.create(f"{rbac}/roles", {"metadata": {"name": "reader"}, "rules": rules})
    api.create(
        f"{rbac}/rolebindings",
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
        },
    )
    eventually(lambda: status(token, config_maps) == httpx.codes.OK)
    assert status(token, f"/api/v1/namespaces/{namespace}/secrets") == httpx.codes.FORBIDDEN


def test_owned_objects_are_collected(api: Api, namespace: str) -> None:
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = api.create(config_maps, {"metadata": {"name": "owner"}})["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    api.create(config_maps, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    api.client.delete(f"{config_maps}/owner").raise_for_status()
    eventually(lambda: not api.exists(f"{config_maps}/owned"))


def test_a_job_runs_on_a_node_of_its_class_and_its_log_comes_through_the_api_server(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    script = "import os; print('on', os.environ['NODE'], os.environ['WHO'])"
    pod = {
        "nodeSelector": {"class": "fast"},
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["python", "-c", script],
                "env": [
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "WHO", "value": "hello"},
                ],
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }
        ],
    }
    with (
        KubeletDouble(control_plane, "slow-1", work_dir=tmp_path / "slow", labels={"class": "slow"}),
        KubeletDouble(
            control_plane,
            "fast-1",
            work_dir=tmp_path / "fast",
            labels={"class": "fast"},
            capacity={"nvidia.com/gpu": 2},
        ),
    ):
        node = api.get("/api/v1/nodes/fast-1")
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        api.create(jobs, job("profile", script, pod=pod, ttlSecondsAfterFinished=5))
        eventually(lambda: api.get(f"{jobs}/profile")["status"].get("succeeded") == 1)
        (found,) = pods_of(api, namespace, "profile")
        assert found["status"]["phase"] == "Succeeded"
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (0, "Completed")
        log = api.client.get(f"/api/v1/namespaces/{namespace}/pods/{found['metadata']['name']}/log")
        assert log.text == "on fast-1 hello\n"
        eventually(lambda: not api.exists(f"{jobs}/profile"))
    assert not api.exists("/api/v1/nodes/fast-1")


def test_a_failing_job_shows_its_exit_code_and_message(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    script = "open('/dev/termination-log', 'w').write('no such model'); raise SystemExit(3)"
    with KubeletDouble(control_plane, "node-f", work_dir=tmp_path):
        api.create(jobs, job("broken", script))
        eventually(lambda: api.get(f"{jobs}/broken")["status"].get("failed") == 1)
        (found,) = pods_of(api, namespace, "broken")
        state = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["exitCode"], state["message"]) == (3, "no such model")


def test_a_pod_sees_its_config_map_its_scratch_space_and_its_own_account(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    config_map = {"metadata": {"name": "input"}, "data": {"spec.json": '{"batch": 8}'}}
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", config_map)
    script = (
        "import json, os, pathlib, sys\n"
        "batch = json.loads(pathlib.Path(sys.argv[1]).read_text())['batch']\n"
        "pathlib.Path('/scratch/out').write_text(str(batch))\n"
        "user = json.loads(pathlib.Path(os.environ['KUBECONFIG']).read_text())\n"
        "print(batch, pathlib.Path('/scratch/out').read_text(), user['contexts'][0]['context']['namespace'])\n"
    )
    pod = {
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["python", "-c", script, "/input/spec.json"],
                "volumeMounts": [
                    {"name": "input", "mountPath": "/input"},
                    {"name": "scratch", "mountPath": "/scratch"},
                ],
            }
        ],
        "volumes": [
            {"name": "input", "configMap": {"name": "input"}},
            {"name": "scratch", "emptyDir": {}},
        ],
    }
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    with KubeletDouble(control_plane, "node-v", work_dir=tmp_path):
        api.create(jobs, job("volumes", script, pod=pod))
        eventually(lambda: api.get(f"{jobs}/volumes")["status"].get("succeeded") == 1)
        (found,) = pods_of(api, namespace, "volumes")
        log = api.client.get(f"/api/v1/namespaces/{namespace}/pods/{found['metadata']['name']}/log")
    assert log.text == f"8 8 {namespace}\n"


def test_a_pod_waits_for_a_free_device_and_gets_it_when_another_is_deleted(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def pod(name: str, devices: int) -> dict[str, Any]:
        container = {
            "name": "main",
            "image": "none",
            "command": ["python", "-c", "import time; time.sleep(600)"],
            "resources": {"limits": {"nvidia.com/gpu": devices}},
        }
        return {
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
        }

    def phase(name: str) -> str:
        return str(api.get(f"{pods}/{name}")["status"]["phase"])

    with KubeletDouble(control_plane, "node-g", work_dir=tmp_path, capacity={"nvidia.com/gpu": 1}):
        api.create(pods, pod("first", devices=1))
        eventually(lambda: phase("first") == "Running")
        api.create(pods, pod("second", devices=1))
        api.create(pods, pod("without", devices=0))
        eventually(lambda: phase("without") == "Running")
        assert phase("second") == "Pending"
        api.client.delete(f"{pods}/first").raise_for_status()
        eventually(lambda: not api.exists(f"{pods}/first"))
        eventually(lambda: phase("second") == "Running")


def test_a_pod_past_its_active_deadline_fails_with_that_reason(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    container = {"name": "main", "image": "none", "command": ["python", "-c", "import time; time.sleep(600)"]}
    spec = {"restartPolicy": "Never", "activeDeadlineSeconds": 1, "containers": [container]}
    with KubeletDouble(control_plane, "node-d", work_dir=tmp_path):
        api.create(pods, {"metadata": {"name": "late"}, "spec": spec})
        eventually(lambda: api.get(f"{pods}/late")["status"]["phase"] == "Failed")
        status = api.get(f"{pods}/late")["status"]
    assert status["reason"] == "DeadlineExceeded"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 128 + 15


def test_a_paused_api_server_answers_nobody_and_goes_on_where_it_was(control_plane: ControlPlane, api: Api) -> None:
    control_plane.pause_api_server()
    try:
        with pytest.raises(httpx.TimeoutException):
            api.client.get("/api/v1/namespaces", timeout=1.0)
    finally:
        control_plane.resume_api_server()
    assert api.exists("/api/v1/namespaces/default")


def test_pods_outlive_a_restart_of_the_api_server_which_keeps_its_data(
    control_plane: ControlPlane, api: Api, namespace: str, tmp_path: Path
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    flag = tmp_path / "go-on"
    script = (
        f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists(): time.sleep(0.05)\nprint('went on')\n"
    )
    with KubeletDouble(control_plane, "node-r", work_dir=tmp_path / "node"):
        api.create(jobs, job("patient", script))
        eventually(lambda: [p["status"]["phase"] for p in pods_of(api, namespace, "patient")] == ["Running"])
        control_plane.kill_api_server()
        try:
            with pytest.raises(httpx.TransportError):
                api.client.get("/api/v1/namespaces")
            flag.touch()
        finally:
            control_plane.restart_api_server()
        eventually(lambda: api.get(f"{jobs}/patient")["status"].get("succeeded") == 1)


def test_one_that_is_stopped_leaves_no_process_and_comes_back_with_its_data(
    kubernetes_binaries: Binaries, tmp_path: Path
) -> None:
    state_dir = tmp_path / "plane"
    record = state_dir / "control-plane.json"
    plane = start_control_plane(state_dir, binaries=kubernetes_binaries, report=print)
    try:
        token, url = plane.token, plane.url
        api = Api(plane)
        api.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})
        again = start_control_plane(state_dir, binaries=kubernetes_binaries, report=print)
        assert again.processes == plane.processes
        processes = plane.processes
        plane.stop()
        assert not any(is_running(process) for process in processes.values())
        assert processes_mentioning(state_dir) == []
        plane.stop()
        assert set(plane.health().values()) == {"not running"}

        start_control_plane(
            state_dir, binaries=kubernetes_binaries, report=print, audited_users=("partita-admin", "nobody")
        )
        loaded = load_control_plane(state_dir)
        assert loaded is not None
        assert (loaded.token, loaded.url) == (token, url)
        assert Api(loaded).exists("/api/v1/namespaces/kept")
        kept = AuditedRequest("partita-admin", "get", "namespaces", "kept", "kept", 200)
        eventually(lambda: kept in read_audit_log(loaded.audit_log)[0])

        processes = loaded.processes
        record.unlink()
        start_control_plane(state_dir, binaries=kubernetes_binaries, report=print)
        assert not any(is_running(process) for process in processes.values()), "it was not recorded any more"
        assert set(plane.health().values()) == {"ok"}
        record.unlink()
    finally:
        plane.stop()
    assert processes_mentioning(state_dir) == []


def processes_mentioning(directory: Path) -> list[int]:
    """The pids of all running programs with the directory in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and identify(int(entry.name)) is not None:
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command:
                found.append(int(entry.name))
    return found
