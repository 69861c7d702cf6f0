"""The whole path on real nodes: chart installed, models profiled in pods, Ray in pods, a session served, all removed.

Needs a cluster with nodes that have the GPUs of `partita dev nodes up` and an image with the models of `tests/e2e`:
`make cluster` makes both. With CLUSTER_IMAGE, the name of an image that it can pull, the cluster is that of KUBECONFIG.
Nothing is touched but what this test makes, and the cluster is asked for every address.
"""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
import yaml
from tests.cluster import installation
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.cluster.installation import RELEASE, image_of, is_installed
from tests.cluster.ray_pods import HEAD, NAMESPACE, head_service, ray_pods
from tests.e2e.conftest import detection
from tests.operator.chart.charts import CHART
from tests.operator.kubectl import Json, Kubectl, condition, eventually

from partita_api.inferencesession import InferenceSession
from partita_runtime.load.reference import WholeModels

config = pytest.importorskip("helm_python.config", reason="Helm's SDK is missing: pip install helm-python-sdk")

OF_ANOTHER_CLUSTER = os.environ.get("KUBECONFIG", "") if "CLUSTER_IMAGE" in os.environ else ""
KUBECONFIG = Path(OF_ANOTHER_CLUSTER).expanduser().absolute() if OF_ANOTHER_CLUSTER else installation.KUBECONFIG
IMAGE = os.environ.get("CLUSTER_IMAGE", "partita.dev/e2e:dev")
USERS = "users"
PRODUCTS = {"l4": "NVIDIA-L4", "t4": "Tesla-T4"}
GPUS = 3
OPERATORS = 2
INPUT = np.random.default_rng(0).standard_normal((3, 32, 32)).astype(np.float32)
TOLERANCE = 0.02
"""Of answers whose feature maps are FP16 where models are cut."""
PATIENCE_SECONDS = 420.0

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
]


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    """The cluster's administrator, with pools and a Ray cluster of three GPUs in each."""
    found, ray = Kubectl(KUBECONFIG, "default"), Kubectl(KUBECONFIG, NAMESPACE)
    ray.apply(*head_service())
    ray.apply(*ray_pods(IMAGE, head_address(ray), {pool: selector(pool) for pool in PRODUCTS}, GPUS))
    yield found
    found.run("delete", "isess", "--all", "-n", USERS, "--timeout=120s")  # while there is an operator to let it go
    found.run("delete", "gpool", *PRODUCTS, "--timeout=120s")
    found("delete", "namespace", NAMESPACE, USERS, OPERATOR, "--ignore-not-found", "--timeout=300s")


def head_address(kubectl: Kubectl) -> str:
    """The address that the cluster has given the Service of Ray's head."""
    service = kubectl.get("service", HEAD)
    assert service is not None
    address: str = service["spec"]["clusterIP"]
    return f"[{address}]" if ":" in address else address


def selector(pool: str) -> dict[str, str]:
    return {"nvidia.com/gpu.product": PRODUCTS[pool]}


def pool(name: str, price: str) -> Json:
    spec = {"nodeSelector": {"matchLabels": selector(name)}, "count": GPUS, "pricePerHour": price}
    return {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}


def values(ray: str, resync_seconds: int) -> Json:
    return {
        "image": image_of(IMAGE),
        "namespaces": [USERS],
        "ray": {"address": f"http://{ray}:8265", "serveUrl": f"http://{ray}:8000"},
        "profiling": {"image": IMAGE, "timeoutSeconds": 600},
        "replicas": OPERATORS,
        # Both would not leave enough CPU to profiling runs on a small node.
        "nodeSelector": {} if OF_ANOTHER_CLUSTER else {"kubernetes.io/hostname": "control"},
        "resyncSeconds": resync_seconds,
        "admission": {"enabled": True, "failurePolicy": "Fail"},
    }


def answer(session: str) -> np.ndarray:
    with forwarded(8000) as near, triton.InferenceServerClient(f"{near}/{USERS}/{session}") as client:
        tensor = triton.InferInput("input", [1, *INPUT.shape], "FP32")
        tensor.set_data_from_numpy(INPUT[None])
        found: np.ndarray = client.infer(session, [tensor]).as_numpy("classifier")
        return found


@contextmanager
def forwarded(port: int) -> Iterator[str]:
    """Where a port of Ray's head can be reached from here, which need not be where Services can be."""
    words = ["-n", NAMESPACE, "port-forward", f"service/{HEAD}", f":{port}"]
    with subprocess.Popen(
        ["kubectl", "--kubeconfig", str(KUBECONFIG), *words], stdout=subprocess.PIPE, text=True
    ) as forwarding:
        try:
            assert forwarding.stdout is not None
            said = forwarding.stdout.readline()
            found = re.match(r"Forwarding from (127\.0\.0\.1:\d+) ", said)
            assert found, f"kubectl port-forward says {said!r}"
            yield found[1]
        finally:
            forwarding.terminate()


def profiled_on(users: Kubectl) -> set[tuple[str, str]]:
    """Each pool with the product of the node that a profiling pod of it ran on."""
    products = {
        node["metadata"]["name"]: node["metadata"]["labels"].get("nvidia.com/gpu.product", "none")
        for node in users.list("nodes")
    }
    pods = users.list("pods", "-l", "app.kubernetes.io/component=profiler")
    return {
        (pod["metadata"]["labels"]["partita.dev/pool"], products[pod["spec"]["nodeName"]])
        for pod in pods
        if "nodeName" in pod["spec"]
    }


async def test_an_installed_operator_profiles_plans_serves_is_upgraded_and_leaves_nothing(kubectl: Kubectl) -> None:
    chart = str(CHART)
    kubectl("create", "namespace", USERS)
    users, ray = Kubectl(KUBECONFIG, USERS), head_address(Kubectl(KUBECONFIG, NAMESPACE))
    want_pools = {"l4": pool("l4", "0.8"), "t4": pool("t4", "0.35")}

    with config.Config(kubeconfig_path=KUBECONFIG, namespace=OPERATOR) as helm:
        if not OF_ANOTHER_CLUSTER and is_installed(helm):
            helm.uninstall(RELEASE, wait="watcher", timeout=120)  # what `make cluster` has installed
        helm.install(chart, RELEASE, values(ray, resync_seconds=2), create_namespace=True, timeout=300)
        await eventually(lambda: running_operators(kubectl), lambda pods: len(pods) == OPERATORS, PATIENCE_SECONDS)
        # Until nodes have heard of the webhook's Service, nothing is let in.
        await eventually(lambda: applied(kubectl, *want_pools.values()), lambda complaint: complaint == "")
        asked = {**detection(), "metadata": {"name": "detection", "namespace": USERS}}
        del asked["spec"]["poolSelector"]
        asked["spec"]["slo"] = {"latencyMs": 4000}
        asked["spec"]["rate"] = {"requestsPerSecond": 1}
        asks_for_no_pool = {**asked, "spec": {**asked["spec"], "pools": ["l4", "h100"]}}
        refused = applied(users, asks_for_no_pool)
        assert "PoolNotFound" in refused, "the API server asks the operator through its Service"
        assert "h100" in refused
        users.apply(asked)

        profiled: set[tuple[str, str]] = set()

        def session() -> Json | None:
            profiled.update(profiled_on(users))  # whose pods go again once their profiles are there
            return users.get("isess", "detection")

        found = await eventually(session, is_ready, PATIENCE_SECONDS)

        want = WholeModels(InferenceSession.model_validate(found).spec).answer({"input": INPUT})["classifier"]
        got = await asyncio.to_thread(answer, "detection")
        np.testing.assert_allclose(got, want, atol=TOLERANCE * np.abs(want).max())
        assert profiled == set(PRODUCTS.items())

        helm.upgrade(chart, RELEASE, values(ray, resync_seconds=1), timeout=300)
        await eventually(lambda: running_operators(kubectl), lambda pods: len(pods) == OPERATORS, PATIENCE_SECONDS)
        np.testing.assert_array_equal(await asyncio.to_thread(answer, "detection"), got)

        users("delete", "isess", "detection", "--timeout=120s")
        await eventually(lambda: users.list("pplan"), lambda plans: plans == [])
        kubectl("delete", "gpool", *want_pools, "--timeout=120s")
        helm.uninstall(RELEASE, wait="watcher", timeout=120)
    assert kubectl.list("deployments", "-n", OPERATOR) == []
    assert RELEASE not in kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")


def applied(kubectl: Kubectl, *manifests: Json) -> str:
    """Apply the manifests; what there is to complain of."""
    return kubectl.run("apply", "-f", "-", stdin=yaml.safe_dump_all(manifests)).stderr


def is_ready(session: Json | None) -> bool:
    return condition(session, "Ready").get("status") == "True"


def running_operators(kubectl: Kubectl) -> list[str]:
    """The operator's pods that are ready and not about to go."""
    return [
        pod["metadata"]["name"]
        for pod in kubectl.list("pods", "-n", OPERATOR)
        if "deletionTimestamp" not in pod["metadata"]
        and all(s["ready"] for s in pod["status"].get("containerStatuses", [{"ready": False}]))
    ]
