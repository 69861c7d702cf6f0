"""Another Ray cluster under load, by both of KubeRay's strategies, on real nodes.

With incremental upgrades, the clients of KubeRay's Gateway move in steps. Clients of the session's public address reach
both Ray clusters.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.cluster.kuberay_sessions import (
    INPUTS,
    NAMESPACE,
    Watch,
    installed_chart,
    kuberay_users,
    pool,
    ray_cluster,
    session,
)
from tests.cluster.steady_load import NAME, ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS, is_ready
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kube.exposure.gateway_api import gateway, gateway_api, listener
from tests.operator.kube.exposure.traefik import LIVE, Proxy, classes, live, program, traefik
from tests.operator.kubectl import Json, Kubectl, eventually, reason

from partita_devtools.machine.ports import free_ports

GATEWAY_PORT = 80
"""Of KubeRay's Gateways."""
GATEWAY_CLIENTS = "gateway-load"
HOST, GRPC_HOST = "first.example.com", "grpc.example.com"
CHANGE = pool(podTemplate={"env": [{"name": "TZ", "value": "UTC"}]})
"""Of the pods of the pool, which needs another Ray cluster."""
STRATEGY = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {
        "gatewayClassName": "traefik",
        "maxSurgePercent": 100,
        "stepSizePercent": 25,
        "intervalSeconds": 10,
    },
}

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
]


@pytest.fixture
def users_of_new_clusters(tmp_path: Path) -> Iterator[Kubectl]:
    with kuberay_users(tmp_path) as users:
        yield users


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Kubectl]:
    """A namespace in a cluster with the Gateway API, Traefik, KubeRay and the chart."""
    program()
    admin = Kubectl(KUBECONFIG, "default")
    (tls_port,) = free_ports(1)
    exposure = {"allowedHosts": ["*.example.com"], "allowedGateways": [f"{NAMESPACE}/public"]}
    with (
        gateway_api(admin),
        traefik(admin, "traefik", GATEWAY_PORT, tls_port, tmp_path / "traefik.log"),
        running_kuberay(admin, tmp_path, "--feature-gates=RayServiceIncrementalUpgrade=true"),
        installed_chart(admin, {"upgradeStrategy": STRATEGY}, exposure=exposure) as users,
    ):
        admin.apply(*classes("traefik"))
        yield users
        admin("delete", "ingressclass/traefik", "gatewayclass/traefik")


def traefik_address(users: Kubectl) -> str:
    """Where pods reach Traefik: all nodes have their addresses on this machine."""
    node = users.list("nodes")[0]
    return next(str(found["address"]) for found in node["status"]["addresses"] if found["type"] == "InternalIP")


async def public_address_answers(session: Json) -> None:
    """Waits until clients outside reach the session, over HTTP and gRPC."""
    path = f"/{session['metadata']['namespace']}/{session['metadata']['name']}/v2/health/ready"
    await eventually(lambda: Proxy(GATEWAY_PORT).get(HOST, path), lambda got: got.status_code == httpx.codes.OK)
    await eventually(lambda: live(GATEWAY_PORT, GRPC_HOST), lambda answer: answer == LIVE)


def new_share(users: Kubectl) -> int:
    """Percent of the Gateway's requests that the new Ray cluster has; 0 without a new one."""
    service = users.get("rayservice", "partita")
    assert service is not None
    percent: int = (service["status"].get("pendingServiceStatus") or {}).get("trafficRoutedPercent") or 0
    return percent


async def test_a_new_ray_cluster_takes_all_clients_at_once(users_of_new_clusters: Kubectl) -> None:
    users = users_of_new_clusters
    watch = Watch(users)
    users.apply(session("first", 5))
    first = await watch.until_serving("first", pods=1 + 1)
    start_load(users, IMAGE, first, INPUTS)
    before = ray_cluster(users)
    users.apply(CHANGE)
    await eventually(lambda: ray_cluster(users), lambda now: now not in (before, ""), PATIENCE_SECONDS)
    await eventually(lambda: len(users.list("rayclusters")), lambda left: left == 1, PATIENCE_SECONDS)
    await watch.until_serving("first", pods=1 + 1)
    answers = await ended_load(users)
    assert [*answers] == ["200"], "no request is lost"


@pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="Traefik runs beside the nodes")
async def test_clients_move_to_another_ray_cluster_in_steps(users: Kubectl) -> None:
    watch, patient = Watch(users), session("first", 5)
    patient["spec"]["slo"]["latencyMs"] = 10_000  # two Ray clusters share the machine for a while
    patient["spec"]["frontend"] = {"grpcPort": 0}
    users.apply(patient)
    first = await eventually(lambda: users.get("isess", "first"), is_ready, PATIENCE_SECONDS)
    assert first is not None
    start_load(users, IMAGE, first, INPUTS)
    start_load(users, IMAGE, first, INPUTS, name=GATEWAY_CLIENTS, server=f"{traefik_address(users)}:{GATEWAY_PORT}")

    patient["spec"]["expose"] = {"gateway": {"name": "public", "hostname": HOST, "grpcHostname": GRPC_HOST}}
    users.apply(gateway("public", listener(port=GATEWAY_PORT), gateway_class="traefik"), patient)
    await eventually(lambda: users.get("isess", "first"), lambda now: reason(now, "Exposed") == ("True", "Public"))
    await public_address_answers(first)

    before, shares = ray_cluster(users), {new_share(users)}
    users.apply(CHANGE)

    def is_replaced() -> bool:
        shares.add(new_share(users))
        return ray_cluster(users) not in (before, "")

    await eventually(is_replaced, bool, PATIENCE_SECONDS)
    assert [share for share in sorted(shares) if 0 < share < 100], shares
    await eventually(lambda: len(users.list("rayclusters")), lambda left: left == 1, PATIENCE_SECONDS)
    await eventually(lambda: users.get("isess", "first"), is_ready, PATIENCE_SECONDS)
    await eventually(watch.workers, lambda workers: len(workers) == 2 and all(workers.values()), PATIENCE_SECONDS)
    await public_address_answers(first)

    answers = {name: await ended_load(users, name) for name in (GATEWAY_CLIENTS, NAME)}
    print(sorted(shares), answers)
    # KubeRay stops the old cluster's replicas when its route says 100 %, before the Gateway has taken the route over.
    gateway_answers = answers[GATEWAY_CLIENTS]
    assert gateway_answers["200"] > 0.98 * sum(gateway_answers.values()), "clients of the Gateway lose almost nothing"
    assert [*answers[NAME]] == ["200"], "clients of the session's Service lose nothing"
