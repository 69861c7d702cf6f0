"""KubeRay's incremental upgrades on real nodes: the clients of its Gateway move to another Ray cluster in steps."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.kuberay_sessions import INPUTS, Watch, installed_chart, pool, ray_cluster, session
from tests.cluster.steady_load import NAME, ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS, is_ready
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kube.exposure.gateway_api import gateway_api
from tests.operator.kube.exposure.traefik import classes, program, traefik
from tests.operator.kubectl import Kubectl, eventually

from partita_devtools.machine.ports import free_ports

GATEWAY_PORT = 80
"""Of KubeRay's Gateways."""
GATEWAY_CLIENTS = "gateway-load"
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
    pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="Traefik runs beside the nodes"),
]


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Kubectl]:
    """A namespace in a cluster with the Gateway API, Traefik, KubeRay and the chart."""
    program()
    admin = Kubectl(KUBECONFIG, "default")
    (tls_port,) = free_ports(1)
    with (
        gateway_api(admin),
        traefik(admin, "traefik", GATEWAY_PORT, tls_port, tmp_path / "traefik.log"),
        running_kuberay(admin, tmp_path, "--feature-gates=RayServiceIncrementalUpgrade=true"),
        installed_chart(admin, {"upgradeStrategy": STRATEGY}) as users,
    ):
        admin.apply(*classes("traefik"))
        yield users
        admin("delete", "ingressclass/traefik", "gatewayclass/traefik")


def traefik_address(users: Kubectl) -> str:
    """Where pods reach Traefik: all nodes have their addresses on this machine."""
    node = users.list("nodes")[0]
    return next(str(found["address"]) for found in node["status"]["addresses"] if found["type"] == "InternalIP")


def new_share(users: Kubectl) -> int:
    """Percent of the Gateway's requests that the new Ray cluster has; 0 without a new one."""
    service = users.get("rayservice", "partita")
    assert service is not None
    percent: int = (service["status"].get("pendingServiceStatus") or {}).get("trafficRoutedPercent") or 0
    return percent


async def test_clients_move_to_another_ray_cluster_in_steps(users: Kubectl) -> None:
    watch, patient = Watch(users), session("first", 5)
    patient["spec"]["slo"]["latencyMs"] = 10_000  # two Ray clusters share the machine for a while
    users.apply(patient)
    first = await eventually(lambda: users.get("isess", "first"), is_ready, PATIENCE_SECONDS)
    assert first is not None
    start_load(users, IMAGE, first, INPUTS)
    start_load(users, IMAGE, first, INPUTS, name=GATEWAY_CLIENTS, server=f"{traefik_address(users)}:{GATEWAY_PORT}")

    before, shares = ray_cluster(users), {new_share(users)}
    users.apply(pool(podTemplate={"env": [{"name": "TZ", "value": "UTC"}]}))

    def is_replaced() -> bool:
        shares.add(new_share(users))
        return ray_cluster(users) not in (before, "")

    await eventually(is_replaced, bool, PATIENCE_SECONDS)
    assert [share for share in sorted(shares) if 0 < share < 100], shares
    await eventually(lambda: len(users.list("rayclusters")), lambda left: left == 1, PATIENCE_SECONDS)
    await eventually(lambda: users.get("isess", "first"), is_ready, PATIENCE_SECONDS)
    await eventually(watch.workers, lambda workers: len(workers) == 2 and all(workers.values()), PATIENCE_SECONDS)

    answers = {name: await ended_load(users, name) for name in (GATEWAY_CLIENTS, NAME)}
    print(sorted(shares), answers)
    assert [*answers[GATEWAY_CLIENTS]] == ["200"], "clients of the Gateway lose nothing"
    assert [*answers[NAME]] == ["200"], "clients of the session's Service lose nothing"
