"""A session served through KubeRay: real API server, real Ray; KubeRay's controller and profiling runs are doubles."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.fixtures import RayClusterFactory
from tests.operator.doubles import RunnerDouble
from tests.operator.engines.kuberay.kuberay_crds import KINDS, complaints, kuberay_definitions
from tests.operator.engines.kuberay.kuberay_double import KubeRayDouble
from tests.operator.handlers.conftest import InProcessSolver
from tests.operator.kubectl import Json, Kubectl, cluster_with_crds, eventually, pool, reason, session

from partita_api.pod.template import PodTemplate
from partita_api.pool.ray_resource import template_digest
from partita_api.session.module import TensorSpec
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.ports import free_ports
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import RayClusterConfig
from partita_operator.engines.kuberay.authentication import SECRET, TOKEN_KEY
from partita_operator.engines.kuberay.engine import KubeRayEngine
from partita_operator.engines.kuberay.rayservice_manifest import worker_groups
from partita_operator.engines.ray.clusters import RayClusters
from partita_operator.engines.selection import EngineRegistry
from partita_operator.handlers.operator import run_operator
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.ports import ProfileRun
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import HealthSettings, MetricsSettings, OperatorSettings
from partita_operator.settings.ray import RaySettings

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

cluster = cluster_with_crds
PATIENCE_SECONDS = 400.0
NAMESPACE = "kuberay"
POOL = "kuberay-pool"


class ProfilesWithOutputs(RunnerDouble):
    """Profiling runs of models that answer four numbers."""

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        run = await super().observe(namespace, key, attempt)
        if run.profile is None:
            return run
        return replace(run, profile=run.profile.model_copy(update={"outputs": (TensorSpec(shape=(4,)),)}))


@pytest.fixture(scope="module")
def api(cluster: Kubectl, control_plane: ControlPlane) -> Iterator[httpx.Client]:
    """The API server, with KubeRay's definitions in it."""
    headers = {"Authorization": f"Bearer {control_plane.token}"}
    trusted = ssl.create_default_context(cafile=str(control_plane.authority.certificate))
    with (
        kuberay_definitions(cluster, *KINDS),
        httpx.Client(base_url=control_plane.url, headers=headers, verify=trusted, timeout=60) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def head(start_ray: RayClusterFactory) -> RayCluster:
    """A Ray head: its ports must be known before the operator starts."""
    return start_ray(RayClusterConfig(nodes=(), head_cpus=0, fast_proxy=False))


@pytest.fixture
def namespace(cluster: Kubectl, head: RayCluster) -> Iterator[Kubectl]:
    """A namespace with the token of the Ray head, which runs before the operator could make one."""
    cluster("create", "namespace", NAMESPACE)
    namespace = Kubectl(cluster.kubeconfig, NAMESPACE)
    namespace("create", "secret", "generic", SECRET, f"--from-literal={TOKEN_KEY}={head.auth_token}")
    yield namespace
    cluster.clear(NAMESPACE)
    cluster("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=120s")


@pytest.fixture
def kuberay(api: httpx.Client, namespace: Kubectl, head: RayCluster, tmp_path: Path) -> Iterator[KubeRayDouble]:
    double = KubeRayDouble(api, namespace.namespace, head, tmp_path)
    with double.playing():
        yield double


@pytest.fixture
async def operator(namespace: Kubectl, head: RayCluster) -> AsyncIterator[None]:
    """An operator that serves through KubeRay and knows no other Ray cluster."""
    metrics_port, health_port = free_ports(2)
    settings = OperatorSettings(
        ray=RaySettings(address=""),
        kuberay=KubeRaySettings(
            image="registry/serving:test",
            dashboard_url=head.dashboard_url,
            serve_url=f"http://127.0.0.1:{head.serve_http_port}",
        ),
        resync_seconds=0.5,
        metrics=MetricsSettings(port=metrics_port),
        health=HealthSettings(port=health_port),
    )
    stop = asyncio.Event()
    async with KubernetesClient(await load_config(namespace.kubeconfig)) as kubernetes:
        engine = KubeRayEngine(kubernetes, settings.kuberay)
        running = asyncio.create_task(
            run_operator(
                settings,
                namespace.kubeconfig,
                engines=EngineRegistry(RayClusters(settings), engine),
                runner=ProfilesWithOutputs(),
                solver=InProcessSolver(),
                stop=stop,
            )
        )
        yield
        stop.set()
        await asyncio.wait_for(running, 60)
        await engine.close()


def pods(rayservice: Json | None) -> list[int]:
    return [group["replicas"] for group in worker_groups(rayservice)]


async def answered(url: str) -> int:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": [0.5] * (3 * 32 * 32)}
    async with httpx.AsyncClient(timeout=60, trust_env=False) as made:
        return (await made.post(f"{url}/v2/models/traffic/infer", json={"inputs": [tensor]})).status_code


@pytest.mark.usefixtures("operator")
async def test_a_session_is_served_scaled_and_deleted(
    namespace: Kubectl, kuberay: KubeRayDouble, head: RayCluster
) -> None:
    def seen() -> dict[str, Any]:
        found = namespace.get("isess", "traffic")
        return {"session": found, "ready": reason(found), "nodes": dict(kuberay.nodes), "double": kuberay.problem}

    spec = {"engine": {"type": "KubeRay"}, "autoscaling": {"mode": "Disabled"}, "slo": {"latencyMs": 10_000}}
    namespace.apply(pool(POOL), session("traffic", **spec))
    first = await eventually(seen, lambda now: now["ready"][0] == "True", PATIENCE_SECONDS)
    address = f"http://traffic.{NAMESPACE}.svc/{NAMESPACE}/traffic"
    first = await eventually(seen, lambda now: now["session"]["status"]["url"] == address)  # once there is a Service
    url = f"http://127.0.0.1:{head.serve_http_port}/{NAMESPACE}/traffic"  # this machine has no Services
    assert await answered(url) == httpx.codes.OK
    service = namespace.get("service", "traffic")
    assert service is not None
    active = (namespace.get("rayservices", "partita") or {})["status"]["activeServiceStatus"]["rayClusterName"]
    assert service["spec"]["selector"] == {"ray.io/cluster": active, "ray.io/serve": "true"}

    rayservice = namespace.get("rayservices", "partita")
    assert rayservice is not None
    assert pods(rayservice) == [1, 1]
    assert complaints("rayservices", {k: v for k, v in rayservice.items() if k != "metadata"}) == []

    namespace.apply(session("traffic", **spec, rate={"requestsPerSecond": 1500}))
    plan = first["session"]["status"]["currentPlan"]["name"]

    def is_moved(now: dict[str, Any]) -> bool:
        status = now["session"]["status"]
        return bool(status["currentPlan"]["name"] != plan and now["ready"][0] == "True")

    second = await eventually(seen, is_moved, PATIENCE_SECONDS)
    assert second["session"]["status"]["url"] == first["session"]["status"]["url"], "the address stays"
    assert await answered(url) == httpx.codes.OK
    assert sum(second["nodes"].values()) == 1 + 3, "a frontend, the old plan's replica, and two of the new one"
    await eventually(lambda: pods(namespace.get("rayservices", "partita")), lambda now: now == [1, 2])
    live = namespace.list("rayclusters")[0]["spec"]["workerGroupSpecs"][1]
    assert (live["minReplicas"], live["replicas"]) == (2, 3), "the autoscaler takes the pod that became idle"

    await namespace.wait("delete", "isess", "traffic", "--timeout=120s")
    for kind in ("rayservices", "secrets"):
        await eventually(lambda kind=kind: namespace.list(kind), lambda left: not left)


@pytest.mark.usefixtures("operator")
async def test_a_session_moves_to_pods_with_its_template_and_answers_all_the_time(
    namespace: Kubectl, kuberay: KubeRayDouble, head: RayCluster
) -> None:
    spec = {"engine": {"type": "KubeRay"}, "autoscaling": {"mode": "Disabled"}, "slo": {"latencyMs": 60_000}}
    url = f"http://127.0.0.1:{head.serve_http_port}/{NAMESPACE}/traffic"

    def seen() -> dict[str, Any]:
        return {
            "ready": reason(namespace.get("isess", "traffic")),
            "double": kuberay.problem,
            "nodes": {**kuberay.nodes},
        }

    async def message() -> str:
        conditions = (namespace.get("isess", "traffic") or {})["status"]["conditions"]
        return next(c["message"] for c in conditions if c["type"] == "Ready")

    namespace.apply(pool(POOL), session("traffic", **spec))
    await eventually(seen, lambda now: now["ready"][0] == "True", PATIENCE_SECONDS)
    answers: list[int] = []

    async def ask() -> None:
        while True:
            answers.append(await answered(url))

    asking = asyncio.create_task(ask())
    forbidden = {"image": "registry/own:1"}
    namespace.apply(session("traffic", **spec, podTemplate=forbidden))
    await eventually(seen, lambda now: now["ready"] == ("False", "ForbiddenPodTemplate"), PATIENCE_SECONDS)
    assert "spec.podTemplate.image names registry/own:1" in await message()
    assert len(kuberay.nodes) == 2, "the present pods stay"

    allowed = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "vision"}}}
    namespace.apply(session("traffic", **spec, podTemplate=allowed))
    digest = template_digest(PodTemplate.model_validate(allowed))
    await eventually(
        seen,
        lambda now: now["ready"][0] == "True" and sum(name.endswith(digest) for name in now["nodes"]) == 2,
        PATIENCE_SECONDS,
    )
    groups = {g["groupName"]: g for g in worker_groups(namespace.get("rayservices", "partita"))}
    await eventually(lambda: pods(namespace.get("rayservices", "partita")), lambda now: now == [0, 0, 1, 1])
    labels = groups[f"frontends-{digest}"]["template"]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "vision"

    asking.cancel()
    assert set(answers) == {httpx.codes.OK}
    await namespace.wait("delete", "isess", "traffic", "--timeout=120s")
