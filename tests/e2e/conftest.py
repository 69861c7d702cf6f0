"""The whole system for the end-to-end tests: a real API server, a real Ray cluster and the operator's process."""

import itertools
import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.http as triton
from tests.fixtures import RayClusterFactory
from tests.operator.kubectl import Json, Kubectl, cluster_with_crds
from tests.patience import PATIENCE_SECONDS

from partita_api.gpupool import GPUPool
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.environment import DevEnvironment
from partita_devtools.machine.ports import free_ports
from partita_devtools.operator_process import launch_operator, operator_log, stop_operator
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH
from partita_operator.engines import monitoring_tokens
from partita_runtime.serving.deploy.monitoring_access import authorization

IMAGE = np.random.default_rng(0).standard_normal((3, 32, 32)).astype(np.float32)
TOLERANCE = 0.02
"""Of answers whose feature maps are FP16 where models are cut."""

cluster = cluster_with_crds
_NUMBERS = itertools.count(1)

POOLS: list[Json] = [
    {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": name, "labels": {"suite": "e2e", "tier": tier}},
        "spec": {"count": count, "pricePerHour": price, **spec},
    }
    for name, tier, count, price, spec in (
        ("e2e-fast", "real", 3, "0.4", {"sharing": {"mode": "CPU"}}),
        ("e2e-slow", "real", 3, "0.1", {"sharing": {"mode": "CPU"}, "emulation": {"slowdown": "2"}}),
        (
            "e2e-emulated",
            "emulated",
            6,
            "1",
            {"emulation": {"curves": [{"model": "*", "alphaMicros": 40000, "betaMicros": 80000}]}},
        ),
    )
]


@dataclass(frozen=True)
class System:
    """The running system."""

    environment: DevEnvironment
    control_plane: ControlPlane
    ray: RayCluster
    kubectl: Kubectl
    metrics_port: int
    """Of the operator."""

    def start_operator(self) -> None:
        """Start the operator, unless it runs."""
        launch_operator(
            self.environment,
            print,
            {
                "PARTITA_OPERATOR__PROFILING__BACKOFF_SECONDS": "2",
                "PARTITA_OPERATOR__RESYNC_SECONDS": "1",
                "PARTITA_OPERATOR__METRICS__PORT": str(self.metrics_port),
            },
            dies_with_parent=True,
        )

    def kill_operator(self) -> None:
        """Kill the operator at once."""
        stop_operator(self.environment.state_dir, grace_s=0.0)

    @property
    def operator_log(self) -> str:
        """All that the operators of this suite have logged."""
        return operator_log(self.environment.state_dir).read_text()

    def applications(self, namespace: str) -> set[str]:
        """Names of the Serve applications of a namespace's sessions."""
        found = self.ray.get(APPLICATIONS_PATH)["applications"]
        return {name for name in found if name.startswith(f"partita.{namespace}.")}

    def endpoint(self, namespace: str, session: str) -> str:
        """host:port/namespace/session, as tritonclient takes it."""
        return f"127.0.0.1:{self.ray.serve_http_port}/{namespace}/{session}"

    def monitoring_token(self, namespace: str) -> str:
        """The token that reads what the frontends of a namespace measure."""
        secret = self.kubectl.run("get", "secret", monitoring_tokens.SECRET, "--namespace=default", "--output=json")
        return b64decode(json.loads(secret.stdout)["data"][namespace]).decode()

    def signals(self, namespace: str, session: str) -> dict[str, Any]:
        """What the session's frontend says of itself."""
        url, token = f"http://{self.endpoint(namespace, session)}/partita/signals", self.monitoring_token(namespace)
        request = Request(url, headers=authorization(token))
        with urlopen(request, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


@pytest.fixture(scope="module")
def system(
    cluster: Kubectl,
    control_plane: ControlPlane,
    start_ray: RayClusterFactory,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:
    """The system with three pools: two of CPU cores, one emulated.

    Not for longer than a module: an operator left running would work on the objects of other tests.
    """
    nodes = tuple(RayClassNode.of_pool(GPUPool.model_validate(pool)) for pool in POOLS)
    ray = start_ray(RayClusterConfig(nodes=nodes))
    state_dir: Path = tmp_path_factory.mktemp("operator")
    (metrics_port,) = free_ports(1)
    environment = DevEnvironment(state_dir, control_plane.kubeconfig, control_plane, ray)
    running = System(environment, control_plane, ray, cluster, metrics_port)
    cluster.apply(*POOLS)
    running.start_operator()
    try:
        yield running
    finally:
        stop_operator(state_dir)
        for pool in POOLS:
            name = pool["metadata"]["name"]
            cluster.run("patch", "gpupool", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            cluster.run("delete", "gpupool", name, "--ignore-not-found", "--wait=false")


@pytest.fixture(scope="session")
def profiles() -> dict[str, Json]:
    """The profiles that tests have measured, as ConfigMaps by name."""
    return {}


@pytest.fixture
def namespace(empty_namespace: Kubectl, profiles: dict[str, Json]) -> Iterator[Kubectl]:
    """A namespace of the test's own with the profiles of earlier tests, so that nothing is measured twice."""
    empty_namespace.apply(*profiles.values())
    yield empty_namespace
    for found in empty_namespace.list("configmaps", "-l", "partita.dev/profile"):
        name, labels = found["metadata"]["name"], found["metadata"]["labels"]
        profiles[name] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": labels},
            "data": found["data"],
        }


@pytest.fixture
def empty_namespace(system: System) -> Iterator[Kubectl]:
    """A namespace of the test's own without profiles. Its sessions are deleted at the end, while the operator runs."""
    name = f"e2e-{next(_NUMBERS)}"
    system.kubectl("create", "namespace", name)
    kubectl = Kubectl(system.kubectl.kubeconfig, name)
    yield kubectl
    system.start_operator()
    kubectl("delete", "isess", "--all", f"--timeout={PATIENCE_SECONDS}s")
    kubectl("delete", "namespace", name, "--wait=false")


def detection(name: str = "detection", **spec: Any) -> Json:
    """A session of a detector, crops of what it found, and a classifier, on the pools of CPU cores."""
    modules = [
        {
            "name": "detector",
            "model": {"entrypoint": "tests.e2e.workload:detector"},
            "input": {"shape": [3, 32, 32]},
        },
        {"name": "crop", "function": {"entrypoint": "tests.e2e.functions:crop"}},
        {
            "name": "classifier",
            "model": {"entrypoint": "tests.e2e.workload:classifier"},
            "input": {"shape": [3, 16, 16]},
        },
    ]
    edges = [
        {"from": "detector", "to": "crop"},
        {"from": "crop", "to": "classifier", "fanOut": {"mean": "1.5", "max": 2}},
    ]
    return _session(
        name, {"modules": modules, "edges": edges, "poolSelector": {"matchLabels": {"tier": "real"}}, **spec}
    )


def emulated(name: str = "emulated", **spec: Any) -> Json:
    """A session of one detector on emulated accelerators, which take 80 ms and 40 ms for each of a batch."""
    modules = [
        {"name": "detector", "model": {"entrypoint": "tests.e2e.workload:detector"}, "input": {"shape": [3, 32, 32]}}
    ]
    return _session(name, {"modules": modules, "poolSelector": {"matchLabels": {"tier": "emulated"}}, **spec})


def _session(name: str, spec: Json) -> Json:
    planner = {"maxBatchSize": 4, "marginPercent": 30, "blocks": 4, "timeLimitSeconds": 20}
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "InferenceSession",
        "metadata": {"name": name},
        "spec": {"slo": {"latencyMs": 1500}, "rate": {"requestsPerSecond": 5}, "planner": planner, **spec},
    }


def ask(system: System, kubectl: Kubectl, session: str) -> dict[str, np.ndarray]:
    """The session's answer to IMAGE by tritonclient."""
    with triton.InferenceServerClient(system.endpoint(kubectl.namespace, session)) as client:
        tensor = triton.InferInput("input", [1, *IMAGE.shape], "FP32")
        tensor.set_data_from_numpy(IMAGE[None])
        result = client.infer(session, [tensor])
        return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


async def until_ready(kubectl: Kubectl, name: str) -> Json:
    """The session once `kubectl wait` says that it is Ready."""
    try:
        await kubectl.wait("wait", "--for=condition=Ready", f"--timeout={PATIENCE_SECONDS}s", f"isess/{name}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{kubectl('describe', 'isess', name)}") from error
    found = kubectl.get("isess", name)
    assert found is not None
    return found
