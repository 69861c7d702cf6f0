"""The chart installed in a real API server: its operator works with the rights that the chart gives it."""

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from tests.operator.chart.charts import CHART
from tests.operator.kubectl import session
from tests.operator.kubelet_double import KubeletDouble
from tests.patience import PATIENCE_SECONDS

from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.ports import free_ports

config = pytest.importorskip("helm_python.config", reason="Helm's SDK is missing: pip install helm-python-sdk")


pytestmark = pytest.mark.apiserver


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {control_plane.token}"}
    trusted = ssl.create_default_context(cafile=str(control_plane.authority.certificate))
    with httpx.Client(base_url=control_plane.url, headers=headers, verify=trusted, timeout=30) as client:
        yield client


def until(look: Callable[[], Any], accepts: Callable[[Any], bool], log: Callable[[], str] = str) -> None:
    """Poll until it accepts what `look` returns. Fails with the last value and the operator's log."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not accepts(seen := look()):
        assert time.monotonic() < deadline, f"still {seen}; the log of the operator:\n{log()}"
        time.sleep(0.25)


@pytest.mark.parametrize("scoped", [False, True], ids=["all namespaces", "one namespace"])
def test_the_operator_runs_with_the_rights_of_the_chart(
    control_plane: ControlPlane, api: httpx.Client, tmp_path: Path, scoped: bool
) -> None:
    node, namespace, pool = (f"{word}-{uuid4().hex[:8]}" for word in ("node", "partita", "pool"))
    mine, others = f"{namespace}-mine", f"{namespace}-others"
    for name in (mine, others):
        api.post("/api/v1/namespaces", json={"metadata": {"name": name}}).raise_for_status()
    metrics_port, health_port = free_ports(2)
    values = {
        "scope": "Namespaces" if scoped else "Cluster",
        "namespaces": [mine],
        "replicas": 1,  # all pods of the node share this machine's ports
        "ray": {"address": "http://127.0.0.1:1"},
        "nodeSelector": {"kubernetes.io/hostname": node},
        "metrics": {"port": metrics_port},
        "health": {"port": health_port},
        "resyncSeconds": 1,
        "flowSchema": {"enabled": True},
    }
    helm = config.Config(kubeconfig_path=control_plane.kubeconfig, namespace=namespace)
    with (
        helm,
        KubeletDouble(
            control_plane,
            node,
            work_dir=tmp_path / "node",
            labels={"partita.dev/pool": pool},
            capacity={"nvidia.com/gpu": 3},
        ),
    ):
        helm.install(str(CHART), "partita", values, create_namespace=True, timeout=60)
        try:
            deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments/partita"
            until(lambda: api.get(deployments).json()["status"], lambda status: status.get("readyReplicas") == 1)
            made = {
                "apiVersion": "partita.dev/v1alpha1",
                "kind": "GPUPool",
                "metadata": {"name": pool},
                "spec": {"pricePerHour": "1"},
            }
            pools = "/apis/partita.dev/v1alpha1/gpupools"
            api.post(pools, json=made).raise_for_status()
            until(
                lambda: api.get(f"{pools}/{pool}").json().get("status", {}),
                lambda status: status.get("nodes") == 1 and bool(status.get("conditions")),
                lambda: logs(api, namespace),
            )
            for name in (mine, others):
                api.post(sessions(name), json=session("traffic", pools=[pool])).raise_for_status()
            for name in (mine,) if scoped else (mine, others):
                until(
                    lambda name=name: api.get(f"{sessions(name)}/traffic").json().get("status", {}),  # type: ignore[misc]
                    lambda status: bool(status.get("conditions")),
                    lambda: logs(api, namespace),
                )
            assert ("conditions" in api.get(f"{sessions(others)}/traffic").json()["status"]) == (not scoped)
            if scoped:
                helm.upgrade(str(CHART), "partita", {**values, "namespaces": [mine, others]}, timeout=60)
                until(
                    lambda: api.get(f"{sessions(others)}/traffic").json().get("status", {}),
                    lambda status: bool(status.get("conditions")),
                )
                until(lambda: len(pods(api, namespace)), lambda count: count == 1)
                assert "forbidden" not in logs(api, namespace).lower(), logs(api, namespace)
                remove_namespace(api, others)
                assert reconciles_a_change(api, mine), "the running operator"
                restart(api, namespace)
                assert reconciles_a_change(api, mine), "a new one"
                assert f"namespace {others} is not served" in logs(api, namespace)
            else:
                assert "forbidden" not in logs(api, namespace).lower(), logs(api, namespace)
            assert httpx.get(f"http://127.0.0.1:{health_port}/healthz").is_success
            assert "partita_reconcile" in httpx.get(f"http://127.0.0.1:{metrics_port}/metrics").text
            waited = 'apiserver_flowcontrol_dispatched_requests_total{flow_schema="partita-lease"'
            assert waited in api.get("/metrics").text, "the Lease has a priority of its own"
            api.delete(f"{pools}/{pool}").raise_for_status()
            until(lambda: api.get(f"{pools}/{pool}").status_code, lambda status: status == httpx.codes.NOT_FOUND)
        finally:
            helm.uninstall("partita", wait="watcher", timeout=60)
            for name in (mine, others):
                remove_namespace(api, name)
    assert api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/partita").status_code == httpx.codes.NOT_FOUND


def remove_namespace(api: httpx.Client, namespace: str) -> None:
    """Remove it with its session. There is no engine to confirm that all applications are removed."""
    api.delete(f"/api/v1/namespaces/{namespace}")

    def status() -> int:
        patch(api, f"{sessions(namespace)}/traffic", {"metadata": {"finalizers": None}})
        return api.get(f"/api/v1/namespaces/{namespace}").status_code

    until(status, lambda code: code == httpx.codes.NOT_FOUND)


def restart(api: httpx.Client, namespace: str) -> None:
    """Replace the operator's pod."""
    (pod,) = pods(api, namespace)
    api.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}").raise_for_status()
    until(
        lambda: {found["metadata"]["uid"]: found["status"].get("phase") for found in pods(api, namespace)},
        lambda phases: [*phases.values()] == ["Running"] and pod["metadata"]["uid"] not in phases,
    )


def reconciles_a_change(api: httpx.Client, namespace: str) -> bool:
    """Whether the operator sees a change of the namespace's session. Fails if it does not in time."""
    path = f"{sessions(namespace)}/traffic"
    rate = api.get(path).json()["spec"]["rate"]["requestsPerSecond"]
    generation = patch(api, path, {"spec": {"rate": {"requestsPerSecond": rate + 1}}})["metadata"]["generation"]
    until(lambda: api.get(path).json()["status"], lambda status: status.get("observedGeneration") == generation)
    return True


def patch(api: httpx.Client, path: str, change: dict[str, Any]) -> dict[str, Any]:
    answer = api.patch(path, json=change, headers={"Content-Type": "application/merge-patch+json"})
    found: dict[str, Any] = answer.json()
    return found


def sessions(namespace: str) -> str:
    return f"/apis/partita.dev/v1alpha1/namespaces/{namespace}/inferencesessions"


def logs(api: httpx.Client, namespace: str) -> str:
    (pod,) = pods(api, namespace)
    return api.get(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}/log").text


def pods(api: httpx.Client, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"/api/v1/namespaces/{namespace}/pods").json()["items"]
    return found
