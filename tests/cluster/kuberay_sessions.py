"""KubeRay, the chart and sessions on real nodes, and what the tests of them look at.

Needs the cluster and the image of `test_path_on_nodes.py`, and KubeRay: the program that KUBERAY_OPERATOR names, or,
with CLUSTER_IMAGE, the one that the cluster has. The pool is emulated, so nothing but its `count` limits the pods.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.cluster.installation import RELEASE, image_of, is_installed
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS, is_ready
from tests.e2e.conftest import emulated
from tests.operator.chart.charts import CHART
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kubectl import Json, Kubectl, eventually
from tests.operator.kubectl import pool as pool_manifest

config = pytest.importorskip("helm_python.config", reason="Helm's SDK is missing: pip install helm-python-sdk")

NAMESPACE = "kuberay-users"
POOL = "kuberay"
COUNT = 3
INPUTS = [{"name": "input", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": [0.5] * (3 * 32 * 32)}]
WORKERS = "ray.io/node-type=worker"


@contextmanager
def kuberay_users(directory: Path) -> Iterator[Kubectl]:
    """A namespace in a cluster with KubeRay, the chart and the pool."""
    admin = Kubectl(KUBECONFIG, "default")
    if OF_ANOTHER_CLUSTER:
        if admin.get("crd", "rayservices.ray.io") is None:
            pytest.skip("the cluster has no KubeRay")
        with installed_chart(admin, {}) as users:
            yield users
    else:
        with running_kuberay(admin, directory), installed_chart(admin, {}) as users:
            yield users


@contextmanager
def installed_chart(admin: Kubectl, kuberay: Mapping[str, Any], **other: Any) -> Iterator[Kubectl]:
    """The chart with these settings of KubeRay and `other` ones, the pool, and a namespace for sessions."""
    with config.Config(kubeconfig_path=KUBECONFIG, namespace=OPERATOR) as helm:
        if not OF_ANOTHER_CLUSTER and is_installed(helm):
            helm.uninstall(RELEASE, wait="watcher", timeout=120)  # what `make cluster` has installed
        admin("create", "namespace", NAMESPACE)
        helm.install(str(CHART), RELEASE, values(kuberay) | other, create_namespace=True, timeout=300)
        admin("rollout", "status", f"deployment/{RELEASE}", "-n", OPERATOR, "--timeout=300s")
        admin.apply(pool())
        yield Kubectl(KUBECONFIG, NAMESPACE)
        admin.run("delete", "isess", "--all", "-n", NAMESPACE, "--timeout=300s")
        admin.run("delete", "gpool", POOL, "--timeout=120s")
        admin("delete", "namespace", NAMESPACE, "--timeout=300s")
        helm.uninstall(RELEASE, wait="watcher", timeout=120)
    admin("delete", "namespace", OPERATOR, "--timeout=300s")


def values(kuberay: Mapping[str, Any]) -> Json:
    """With pods small enough for four of them on a node with two CPUs, that soon end with their Ray cluster."""
    return {
        "image": image_of(IMAGE),
        "namespaces": [NAMESPACE],
        "ray": {"address": ""},
        "resyncSeconds": 2,
        "kuberay": {
            "image": IMAGE,
            "head": {"resources": {"cpu": "1", "memory": "3Gi"}},
            "frontends": {"resources": {"cpu": "400m", "memory": "1500Mi"}},
            "workers": {"resources": {"cpu": "400m", "memory": "1500Mi"}},
            "functionResources": {"cpu": "100m", "memory": "256Mi"},
            "idleSeconds": 5,
            "drainSeconds": 20,
            **kuberay,
        },
        "profiling": {"timeoutSeconds": 600},
    }


def pool(**spec: Any) -> Json:
    """A pool of three accelerators that take 80 ms and 40 ms for each of a batch."""
    curves = {"curves": [{"model": "*", "alphaMicros": 40000, "betaMicros": 80000}]}
    return pool_manifest(POOL, COUNT, emulation=curves, **spec)


def session(name: str, rate: float, largest_batch: int = 4, **spec: Any) -> Json:
    """A session whose replicas answer at most 16 requests a second each, in batches of two at most 12."""
    made = emulated(name, engine={"type": "KubeRay"}, pools=[POOL], autoscaling={"mode": "Disabled"})
    del made["spec"]["poolSelector"]
    made["spec"]["planner"]["maxBatchSize"] = largest_batch
    made["spec"] |= {"rate": {"requestsPerSecond": rate}, "slo": {"latencyMs": 4000}, **spec}
    return made


@dataclass
class Watch:
    """What the test looks at again and again."""

    users: Kubectl
    most_workers: int = 0
    """Most pods of the pool at the same time."""

    def session(self, name: str) -> Json | None:
        """The session; pods are counted on the way."""
        self.most_workers = max(self.most_workers, len(self.workers(f"{WORKERS},partita.dev/pool={POOL}")))
        return self.users.get("isess", name)

    def workers(self, labels: str = WORKERS) -> dict[str, bool]:
        """Worker pods that are not about to go, and whether each is ready."""
        return {
            pod["metadata"]["name"]: any(
                found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions", ())
            )
            for pod in self.users.list("pods", "-l", labels)
            if "deletionTimestamp" not in pod["metadata"]
        }

    def endpoints(self) -> int:
        """Ready endpoints of the Service that clients use."""
        slices = self.users.list("endpointslices", "-l", "kubernetes.io/service-name=partita-serve-svc")
        found = [endpoint for part in slices for endpoint in part.get("endpoints") or ()]
        return sum(endpoint["conditions"].get("ready", False) for endpoint in found)

    async def until_serving(self, name: str, pods: int, not_with: str = "") -> Json:
        """The session once it is Ready with another plan than `not_with`, and all of these workers are ready."""
        found = await eventually(
            lambda: self.session(name), lambda now: is_ready(now) and plan(now) != not_with, PATIENCE_SECONDS
        )
        await eventually(self.workers, lambda workers: len(workers) == pods and all(workers.values()), PATIENCE_SECONDS)
        # The head's proxy is an endpoint, too.
        await eventually(self.endpoints, lambda ready: ready == pods + 1)
        assert found is not None
        return found


def ray_cluster(users: Kubectl) -> str:
    """Name of the Ray cluster that takes requests."""
    service = users.get("rayservice", "partita")
    assert service is not None
    name: str = service["status"]["activeServiceStatus"]["rayClusterName"]
    return name


def plan(session: Json | None) -> str:
    """Name of the plan that serves."""
    assert session is not None
    name: str = session["status"]["currentPlan"]["name"]
    return name
