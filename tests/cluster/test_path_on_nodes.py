"""The whole path on real nodes: chart installed, models profiled in pods, Ray in pods, a session served, all removed.

Needs a cluster with nodes that have the GPUs of `partita dev nodes up` and an image with the models of `tests/e2e`:
`make cluster` makes both. Another cluster: CLUSTER_KUBECONFIG, and CLUSTER_IMAGE for an image that it can pull.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
import yaml
from tests.cluster.ray_pods import ADDRESS, NAMESPACE, ray_pods
from tests.e2e.conftest import detection
from tests.operator.chart.charts import chart_for
from tests.operator.kubectl import Json, Kubectl, condition, eventually

from partita_api.inferencesession import InferenceSession
from partita_runtime.load.reference import WholeModels

config = pytest.importorskip("helm_python.config", reason="Helm's SDK is missing: pip install helm-python-sdk")

KUBECONFIG = Path(os.environ.get("CLUSTER_KUBECONFIG", ".partita/cluster/kubeconfig")).absolute()
IMAGE = os.environ.get("CLUSTER_IMAGE", "partita.dev/e2e:dev")
OPERATOR, USERS = "partita-system", "users"
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
    found = Kubectl(KUBECONFIG, "default")
    Kubectl(KUBECONFIG, NAMESPACE).apply(*ray_pods(IMAGE, {pool: selector(pool) for pool in PRODUCTS}, GPUS))
    yield found
    found("delete", "isess", "--all", "-n", USERS, "--timeout=120s")  # while there is an operator to let it go
    found("delete", "gpool", "--all", "--timeout=120s")
    found("delete", "namespace", NAMESPACE, USERS, OPERATOR, "--ignore-not-found", "--timeout=300s")


def selector(pool: str) -> dict[str, str]:
    return {"nvidia.com/gpu.product": PRODUCTS[pool]}


def pool(name: str, price: str) -> Json:
    spec = {"nodeSelector": selector(name), "count": GPUS, "pricePerHour": price}
    return {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": {"name": name}, "spec": spec}


def values(resync_seconds: int) -> Json:
    repository, _, tag = IMAGE.rpartition(":")
    return {
        "image": {"repository": repository, "tag": tag},
        "ray": {"address": f"http://{ADDRESS}:8265", "serveUrl": f"http://{ADDRESS}:8000"},
        "profiling": {"image": IMAGE, "timeoutSeconds": 600},
        "replicas": OPERATORS,
        "resyncSeconds": resync_seconds,
        "admission": {"enabled": True, "failurePolicy": "Fail"},
    }


def answer(session: str) -> np.ndarray:
    with triton.InferenceServerClient(f"{ADDRESS}:8000/{USERS}/{session}") as client:
        tensor = triton.InferInput("input", [1, *INPUT.shape], "FP32")
        tensor.set_data_from_numpy(INPUT[None])
        found: np.ndarray = client.infer(session, [tensor]).as_numpy("classifier")
        return found


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


async def test_an_installed_operator_profiles_plans_serves_is_upgraded_and_leaves_nothing(
    kubectl: Kubectl, tmp_path: Path
) -> None:
    server: str = yaml.safe_load(kubectl("version", "-o", "yaml"))["serverVersion"]["gitVersion"]
    chart = str(chart_for(server.removeprefix("v"), tmp_path))
    kubectl("create", "namespace", USERS)
    users = Kubectl(KUBECONFIG, USERS)
    want_pools = {"l4": pool("l4", "0.8"), "t4": pool("t4", "0.35")}

    with config.Config(kubeconfig_path=KUBECONFIG, namespace=OPERATOR) as helm:
        helm.install(chart, "partita", values(resync_seconds=2), create_namespace=True, timeout=300)
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

        helm.upgrade(chart, "partita", values(resync_seconds=1), timeout=300)
        await eventually(lambda: running_operators(kubectl), lambda pods: len(pods) == OPERATORS, PATIENCE_SECONDS)
        np.testing.assert_array_equal(await asyncio.to_thread(answer, "detection"), got)

        users("delete", "isess", "detection", "--timeout=120s")
        await eventually(lambda: users.list("pplan"), lambda plans: plans == [])
        kubectl("delete", "gpool", "--all", "--timeout=120s")
        helm.uninstall("partita", wait="watcher", timeout=120)
    assert kubectl.list("deployments", "-n", OPERATOR) == []
    assert "partita" not in kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")


def applied(kubectl: Kubectl, *manifests: Json) -> str:
    """Apply the manifests; what there is to complain of."""
    return kubectl.run("apply", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(manifests)).stderr


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
