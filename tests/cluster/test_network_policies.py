"""What the chart's NetworkPolicies let connect, and what not, on real nodes on which kube-router enforces them.

Before anything enforces them, every connection is made. So what is refused afterwards is refused by a policy.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.cluster.installation import image_of
from tests.cluster.kube_router import enforced_policies
from tests.cluster.kuberay_sessions import INPUTS, NAMESPACE, WORKERS, Watch, installed_chart, session
from tests.cluster.steady_load import ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER, PATIENCE_SECONDS
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kubectl import Json, Kubectl, eventually

from partita_devtools.control_plane.commands import API_SERVICE_ADDRESS

MONITORING, STRANGERS = "monitoring", "strangers"
PORT = 8080
"""Where the pods of the test listen."""
PROFILER = {"app.kubernetes.io/name": "partita", "app.kubernetes.io/component": "profiler"}
"""Labels of a profiling Job's pod, which itself does not live long enough."""
AGENT_PORT = 52365
"""Of Ray's agent on each node."""
_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5).close()
    print("connected")
except OSError as error:
    print(error)
"""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="kube-router runs beside the kubelets of this machine"),
]


@dataclass(frozen=True)
class Place:
    """A pod, and where it is reached."""

    namespace: str
    pod: str
    address: str


def reached(source: Place, address: str, port: int) -> bool:
    """Whether the pod can open a connection."""
    kubectl = Kubectl(KUBECONFIG, source.namespace)
    return kubectl("exec", source.pod, "--", "python3", "-c", _CONNECT, address, str(port)).strip() == "connected"


def place(namespace: str, labels: str) -> Place:
    """The first pod with these labels."""
    pod = Kubectl(KUBECONFIG, namespace).list("pods", "-l", labels)[0]
    return Place(namespace, pod["metadata"]["name"], pod["status"]["podIP"])


def values() -> Json:
    """All policies of the chart, with its Redis. Pods reach the API server at a port of this machine, after NAT."""
    server = yaml.safe_load(KUBECONFIG.read_text())["clusters"][0]["cluster"]["server"]
    metrics_from = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MONITORING}}}]
    return {
        "redis": {"enabled": True, "image": image_of(IMAGE), "persistence": {"storageClass": "by-hand"}},
        "admission": {"enabled": True, "failurePolicy": "Fail"},
        "networkPolicies": {
            "enabled": True,
            "apiServer": {"ports": [int(server.rpartition(":")[2])]},
            "metricsFrom": metrics_from,
            "profiling": {"namespaces": [NAMESPACE]},
            "rayPods": {"namespaces": [NAMESPACE]},
        },
    }


@contextmanager
def volume(admin: Kubectl) -> Iterator[None]:
    """A volume for the chart's Redis."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "by-hand",
            "hostPath": {"path": directory},
        }
        admin.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "redis"}, "spec": spec})
        try:
            yield
        finally:
            admin("delete", "persistentvolume", "redis", "--timeout=120s")


def server(kubectl: Kubectl, name: str, labels: dict[str, str]) -> Place:
    """A pod that accepts connections."""
    container = {"name": "server", "image": IMAGE, "command": ["python3", "-m", "http.server", str(PORT)]}
    meta = {"name": name, "labels": {"app": name, **labels}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    kubectl("wait", "--for=condition=Ready", "--timeout=120s", f"pod/{name}")
    return place(kubectl.namespace, f"app={name}")


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Kubectl]:
    """A namespace for sessions, with KubeRay, and the chart with its policies. Nothing enforces them yet."""
    admin = Kubectl(KUBECONFIG, "default")
    with (
        running_kuberay(admin, tmp_path),
        volume(admin),
        installed_chart(admin, {}, **values()) as users,
    ):
        for namespace in (MONITORING, STRANGERS):
            admin("create", "namespace", namespace)
        yield users
        admin("delete", "namespace", MONITORING, STRANGERS, "--timeout=300s")


async def test_pods_connect_as_the_policies_of_the_chart_say(users: Kubectl, tmp_path: Path) -> None:
    watch, admin = Watch(users), Kubectl(KUBECONFIG, "default")
    users.apply(session("first", 5))
    first = await watch.until_serving("first", pods=1 + 1)

    operator = place(OPERATOR, "app.kubernetes.io/component=operator")
    redis = place(OPERATOR, "app.kubernetes.io/component=redis")
    head = place(NAMESPACE, "ray.io/node-type=head")
    worker = place(NAMESPACE, WORKERS)
    profiler = server(users, "profiler", PROFILER)
    prometheus = server(Kubectl(KUBECONFIG, MONITORING), "prometheus", {})
    stranger = server(Kubectl(KUBECONFIG, STRANGERS), "stranger", {})
    api_server = (API_SERVICE_ADDRESS, 443)
    allowed = [
        (operator, *api_server),
        (operator, redis.address, 6379),
        (operator, head.address, 8265),
        (operator, head.address, 8000),
        (head, redis.address, 6379),
        (prometheus, operator.address, 9090),
        (worker, head.address, 6379),
        (head, worker.address, AGENT_PORT),
        (stranger, head.address, 8000),
        (stranger, *api_server),
    ]
    refused = [
        (operator, stranger.address, PORT),
        (stranger, operator.address, 9090),
        (stranger, redis.address, 6379),
        (stranger, head.address, 6379),
        (stranger, head.address, 8265),
        (stranger, worker.address, AGENT_PORT),
        (prometheus, redis.address, 6379),
        (redis, stranger.address, PORT),
        (profiler, *api_server),
        (profiler, redis.address, 6379),
        (profiler, head.address, 8000),
        (profiler, stranger.address, PORT),
        (stranger, profiler.address, PORT),
    ]
    assert [attempt for attempt in (*allowed, *refused) if not reached(*attempt)] == []

    with enforced_policies(admin, tmp_path):
        await eventually(lambda: [attempt for attempt in refused if reached(*attempt)], lambda made: made == [])
        assert [attempt for attempt in allowed if not reached(*attempt)] == []

        # Profiling, KubeRay, the webhook and the removal of a Ray cluster's state from the Redis work under them.
        start_load(users, IMAGE, first, INPUTS)
        users.apply(session("second", 5, largest_batch=2))
        await watch.until_serving("second", pods=1 + 2)
        assert [*await ended_load(users)] == ["200"]
        wrong = session("wrong", 5)
        wrong["spec"]["pools"] = ["nowhere"]
        assert "PoolNotFound" in users.run("apply", "-f", "-", stdin=yaml.safe_dump(wrong)).stderr
        users("delete", "isess", "--all", "--timeout=300s")
        for kind in ("rayclusters", "jobs"):
            left = lambda kind=kind: users("get", kind, "-o", "name")  # noqa: E731
            await eventually(left, lambda names: names == "", PATIENCE_SECONDS)
