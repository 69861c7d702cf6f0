"""What clients lose when a part of a session through KubeRay ends, on real nodes at 85 % of its plan's load.

Prints a table: the requests that were sent around each event, and those that failed.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.cluster.installation import NAMESPACE as OPERATOR
from tests.cluster.kuberay_sessions import INPUTS, POOL, WORKERS, Watch, installed_chart, session
from tests.cluster.steady_load import ended_load, start_load
from tests.cluster.test_path_on_nodes import IMAGE, KUBECONFIG, OF_ANOTHER_CLUSTER
from tests.operator.engines.kuberay.kuberay_operator import running_kuberay
from tests.operator.kubectl import Json, Kubectl, eventually

RATE = 20.0
"""Requests a second of the plan: two replicas."""
LOAD = 0.85 * RATE
SETTLED_SECONDS = 15.0
"""How long the load goes on once everything runs again."""
STAGES = f"{WORKERS},partita.dev/pool={POOL}"
FRONTENDS = f"{WORKERS},app.kubernetes.io/component=frontend"
HEADS = "ray.io/node-type=head"
REDIS = "redis"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KUBECONFIG.exists(), reason=f"no cluster with nodes ({KUBECONFIG}): make cluster"),
    pytest.mark.skipif(bool(OF_ANOTHER_CLUSTER), reason="it drains nodes"),
]


def redis_address(admin: Kubectl) -> str:
    """A Redis without a password, in the namespace of the tests."""
    labels = {"app": REDIS}
    command = ["redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/tmp"]
    container = {"name": REDIS, "image": IMAGE, "command": command}
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": REDIS, "labels": labels},
            "spec": {"containers": [container]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": REDIS},
            "spec": {"selector": labels, "ports": [{"port": 6379}]},
        },
    )
    admin("wait", "--for=condition=Ready", "--timeout=120s", f"pod/{REDIS}")
    return f"{REDIS}.{admin.namespace}.svc:6379"


@pytest.fixture(scope="module")
def admin() -> Kubectl:
    return Kubectl(KUBECONFIG, "default")


@pytest.fixture(scope="module")
def events(admin: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Events]":
    """In a namespace whose head keeps its state in a Redis, with one frontend in each pod."""
    kuberay = {"redisAddress": redis_address(admin), "frontendsPerPod": 1, "drainSeconds": 120}
    with (
        running_kuberay(admin, tmp_path_factory.mktemp("kuberay")) as restart_kuberay,
        installed_chart(admin, kuberay) as users,
    ):
        yield Events(users, admin, restart_kuberay)
    admin("delete", f"pod/{REDIS}", f"service/{REDIS}")


def pod_of(users: Kubectl, labels: str) -> Json:
    return next(pod for pod in users.list("pods", "-l", labels) if "deletionTimestamp" not in pod["metadata"])


class Events:
    """Each ends a part of what serves, and waits until everything runs again."""

    def __init__(self, users: Kubectl, admin: Kubectl, restart_kuberay: Callable[[], None]) -> None:
        self.users, self.admin, self.watch = users, admin, Watch(users)
        self.restart_kuberay = restart_kuberay
        self.pods = 2 + 2

    async def nothing(self) -> None:
        """For comparison."""

    async def kill_head(self) -> None:
        await self._kill(HEADS)

    async def kill_stage(self) -> None:
        await self._kill(STAGES)

    async def kill_frontend(self) -> None:
        await self._kill(FRONTENDS)

    async def drain_node(self) -> None:
        """The node of a stage's pod, as before its maintenance."""
        node = pod_of(self.users, STAGES)["spec"]["nodeName"]
        arguments = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=400s")
        selector = f"--pod-selector={STAGES}"
        await asyncio.to_thread(self.admin, "drain", node, selector, *arguments)
        self.admin("uncordon", node)

    async def restart_operators(self) -> None:
        """Partita's operator by its Deployment, KubeRay's by a kill of its process."""
        self.restart_kuberay()
        self.admin("rollout", "restart", "deployment/partita", "-n", OPERATOR)
        await asyncio.to_thread(self.admin, "rollout", "status", "deployment/partita", "-n", OPERATOR, "--timeout=300s")

    async def until_settled(self) -> None:
        await self.watch.until_serving("first", pods=self.pods)

    async def _kill(self, labels: str) -> None:
        """At once, without notice; waits until Kubernetes has noticed."""
        name = pod_of(self.users, labels)["metadata"]["name"]
        self.users("delete", "pod", name, "--grace-period=0", "--force")
        await eventually(lambda: self.watch.workers(labels), lambda names: names and name not in names)


async def losses(events: Events, event: Callable[[Events], Awaitable[None]]) -> dict[str, int]:
    """What requests were answered around an event."""
    found = await events.watch.until_serving("first", pods=events.pods)
    start_load(events.users, IMAGE, found, INPUTS, LOAD)
    await asyncio.sleep(SETTLED_SECONDS)
    await event(events)
    await events.until_settled()
    await asyncio.sleep(SETTLED_SECONDS)
    return await ended_load(events.users)


WITHOUT_LOSS = (Events.nothing, Events.drain_node, Events.restart_operators)
WITH_LOSS = (Events.kill_head, Events.kill_stage, Events.kill_frontend)


async def test_clients_lose_only_what_the_killed_part_had(events: Events) -> None:
    first = session("first", RATE)
    first["spec"]["frontend"] = {"replicas": 2}
    events.users.apply(first)
    table = {}
    for event in (*WITHOUT_LOSS, *WITH_LOSS):
        found = table[event] = await losses(events, event)
        sent = sum(found.values())
        print(f"{event.__name__}: {sent} sent, {sent - found.get('200', 0)} failed: {json.dumps(found)}", flush=True)
    for event in WITHOUT_LOSS:
        assert [*table[event]] == ["200"], f"{event.__name__}: {table[event]}"
    for event in WITH_LOSS:
        assert table[event]["200"] > 0.97 * sum(table[event].values()), f"{event.__name__}: {table[event]}"
