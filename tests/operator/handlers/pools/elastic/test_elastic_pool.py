"""Elastic pools end to end: pods that find no node, nodes that come, that never come, and that leave.

Real are the API server with its controllers, kube-scheduler, KubeRay's operator and Partita's operator with its engine
for KubeRay. Doubles are the nodes (`node_provider.py`), Ray Serve (`serve_on_pods.py`), and the profiler.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.operator.doubles import RunnerDouble
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.handlers.conftest import InProcessSolver
from tests.operator.handlers.pools.elastic.kube_scheduler import running_scheduler
from tests.operator.handlers.pools.elastic.node_provider import NodeProvider, NodeTemplate
from tests.operator.handlers.pools.elastic.serve_on_pods import ServeOnPods
from tests.operator.kubectl import (
    SUITE,
    Json,
    Kubectl,
    eventually,
    reason,
    session,
)
from tests.patience import PATIENCE_SECONDS

from partita_api.inferencesession import EngineType
from partita_api.meta import POOL_LABEL
from partita_devtools.control_plane.lifecycle import ControlPlane
from partita_devtools.machine.ports import free_ports
from partita_operator.engines.selection import open_engines
from partita_operator.handlers.operator import run_operator
from partita_operator.settings.kuberay import KubeRaySettings, RayAuthentication
from partita_operator.settings.model import HealthSettings, MetricsSettings, OperatorSettings

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600), pytest.mark.usefixtures("controllers")]

POOL, GPU = "elastic", "nvidia.com/gpu"
ACCELERATED = NodeTemplate({POOL_LABEL: POOL}, {GPU: 1})
WORKERS = f"ray.io/node-type=worker,{POOL_LABEL}={POOL}"


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine that the API server may forward requests to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            pytest.skip("the API server forwards no requests to loopback addresses, and this machine has no other one")
        found: str = probe.getsockname()[0]
    return found


@pytest.fixture(scope="module")
def controllers(
    control_plane: ControlPlane, cluster: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """KubeRay's operator and kube-scheduler."""
    logs: Path = tmp_path_factory.mktemp("elastic")
    with running_kuberay(cluster, logs), running_scheduler(control_plane, logs):
        yield


@dataclass(frozen=True)
class Elastic:
    """A namespace, and the provider of its nodes."""

    users: Kubectl
    nodes: NodeProvider

    def pool(self) -> Json:
        found = self.users.get("gpool", POOL)
        assert found is not None
        return found

    def session(self, name: str) -> Json | None:
        return self.users.get("isess", name)

    def workers(self) -> dict[str, str | None]:
        """The node of each pod with an accelerator that is not about to go; None while it waits for one."""
        pods = self.users.list("pods", "-l", WORKERS)
        stay = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in stay}

    async def until_serving(self, name: str) -> None:
        await eventually(lambda: reason(self.session(name)), lambda found: found == ("True", "Serving"))

    async def until_on_nodes(self, count: int) -> dict[str, str | None]:
        """The nodes of the workers once there are so many and each has one."""
        return await eventually(self.workers, lambda found: len(found) == count and None not in found.values())

    async def until_provisioned(self, status: str, why: str) -> None:
        await eventually(lambda: reason(self.pool(), "Provisioned"), lambda found: found == (status, why))


@pytest.fixture
async def elastic(control_plane: ControlPlane, cluster: Kubectl, address: str) -> AsyncIterator[Elastic]:
    """The operator, an elastic pool without nodes, and a node for pods without an accelerator."""
    headers = {"Authorization": f"Bearer {control_plane.token}"}
    trusted = ssl.create_default_context(cafile=str(control_plane.authority.certificate))
    name = f"elastic-{uuid4().hex[:8]}"
    cluster("create", "namespace", name)
    users = Kubectl(cluster.kubeconfig, name)
    with httpx.Client(base_url=control_plane.url, headers=headers, verify=trusted, timeout=60, trust_env=False) as api:
        nodes = NodeProvider(api, ACCELERATED, address, name)
        serve = ServeOnPods(host=address, pods=lambda: users.list("pods", "-l", "ray.io/is-ray-node=yes"))
        with nodes.playing(), serve:
            nodes.add(NodeTemplate())
            users.apply(pool())
            async with operator(control_plane.kubeconfig, serve.url):
                yield Elastic(users, nodes)
            users("delete", "rayservices", "--all", "--timeout=120s")  # while KubeRay runs, which has a finalizer
            cluster.clear(name)


@asynccontextmanager
async def operator(kubeconfig: Path, ray: str) -> AsyncIterator[None]:
    """Partita's operator in a `with` block."""
    metrics_port, health_port = free_ports(2)
    kuberay = KubeRaySettings(
        image="registry/serving:1", authentication=RayAuthentication.DISABLED, dashboard_url=ray, serve_url=ray
    )
    settings = OperatorSettings(
        resync_seconds=0.5,
        default_engine=EngineType.KUBERAY,
        kuberay=kuberay,
        metrics=MetricsSettings(port=metrics_port),
        health=HealthSettings(port=health_port),
    )
    stop = asyncio.Event()
    async with open_engines(settings, kubeconfig) as engines:
        doubles = {"runner": RunnerDouble(), "solver": InProcessSolver()}
        running = asyncio.create_task(run_operator(settings, kubeconfig, engines=engines, stop=stop, **doubles))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(running, PATIENCE_SECONDS)


def pool(**elastic: int) -> Json:
    """The manifest of an elastic pool of four accelerators."""
    label, value = SUITE.split("=")
    spec = {"nodeSelector": {"matchLabels": ACCELERATED.labels}, "elastic": {"maxCount": 4, **elastic}}
    meta = {"name": POOL, "labels": {label: value}}
    return {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPool", "metadata": meta, "spec": spec}


def two_accelerators(name: str) -> Json:
    """The manifest of a session that needs two accelerators."""
    return session(name, pools=[POOL], rate={"requestsPerSecond": 1500})


async def test_pods_bring_nodes_and_the_session_serves_on_them(elastic: Elastic) -> None:
    elastic.users.apply(two_accelerators("traffic"))
    await elastic.until_provisioned("False", "WaitingForNodes")
    await eventually(lambda: list(elastic.workers().values()), lambda found: found == [None, None])

    elastic.nodes.most = 4
    assert len(set((await elastic.until_on_nodes(2)).values())) == 2
    await elastic.until_serving("traffic")
    await elastic.until_provisioned("True", "Provisioned")
    status = elastic.pool()["status"]
    assert (status["elastic"]["present"], status["elastic"]["pending"]) == (2, 0)


async def test_nodes_that_never_come_are_planned_without_and_nothing_else_is_disturbed(elastic: Elastic) -> None:
    elastic.nodes.most = 2
    elastic.users.apply(two_accelerators("traffic"))
    await elastic.until_serving("traffic")
    before, plan = await elastic.until_on_nodes(2), (elastic.session("traffic") or {})["status"]["currentPlan"]

    elastic.users.apply(two_accelerators("late"))
    await eventually(lambda: len(elastic.workers()), lambda count: count == 4)
    elastic.users.apply(pool(provisionTimeoutSeconds=1))
    await elastic.until_provisioned("False", "ProvisioningTimedOut")
    await eventually(lambda: elastic.pool()["status"]["capacity"], lambda capacity: capacity == 2)

    await eventually(lambda: reason(elastic.session("late")), lambda found: found == ("False", "InsufficientCapacity"))
    await eventually(elastic.workers, lambda found: found == before)
    await elastic.until_serving("traffic")
    assert (elastic.session("traffic") or {})["status"]["currentPlan"] == plan


async def test_pods_of_a_departing_node_are_replaced_before_it_goes(elastic: Elastic) -> None:
    elastic.nodes.most = 4
    elastic.users.apply(two_accelerators("traffic"))
    await elastic.until_serving("traffic")
    before = await elastic.until_on_nodes(2)
    leaving, node = next(iter(before.items()))
    assert node is not None

    elastic.nodes.give_notice(node)
    during = await elastic.until_on_nodes(3)
    assert before.items() < during.items()

    elastic.nodes.remove(node)
    await eventually(elastic.workers, lambda found: found == {k: v for k, v in during.items() if k != leaving})
    await elastic.until_provisioned("True", "Provisioned")
    await elastic.until_serving("traffic")
