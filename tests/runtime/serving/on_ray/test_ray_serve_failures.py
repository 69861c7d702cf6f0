"""Processes that are killed, hang or report wrong times on a real Ray cluster under load:

only their own clients notice.
"""

import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.serving.load import Load
from tests.runtime.serving.on_ray.deployment import OPTIONS, Deployment, Loading
from tests.runtime.serving.plans import EMULATED, Application
from tests.runtime.serving.sessions import APART, FAILING, LYING, SHARED, STEADY, TRAFFIC

from partita_devtools.errors import DevError
from partita_devtools.machine.processes import all_pids
from partita_devtools.ray_cluster.commands import NODE_LABEL
from partita_runtime.serving.coordinator_actors import coordinator_name
from partita_runtime.serving.standby import IDLE

pytestmark = pytest.mark.ray

RATE = 20.0
ON_EMULATED = OPTIONS.model_copy(update={"frontend_resources": {f"partita-pool-{EMULATED}": 0.1}})


def loaded(deployment: Deployment, app: Application, try_again: bool = False, rate: float = RATE) -> Loading:
    loading = Loading(deployment, app, rate, try_again)
    deployment.until(lambda: loading.sent() > rate, "requests are sent")  # signals may be those of an earlier load
    deployment.until(lambda: deployment.signals(app).get("goodput", 0) > rate / 4, "load is on")
    return loading


def all_answered(load: Load) -> None:
    assert load.statuses == {200: load.sent}, load.errors


def replicas(deployment: Deployment, app: Application) -> list[dict[str, Any]]:
    return [r for r in deployment.replicas() if f".{app.name}.plan-1." in r["application"]]


def frontend_pids(deployment: Deployment, app: Application) -> set[int]:
    found = [r.get("pid") for r in deployment.replicas() if r["application"].endswith(f".{app.name}.frontend")]
    return {pid for pid in found if pid}


def frontend_pid(deployment: Deployment, app: Application) -> int | None:
    return next(iter(frontend_pids(deployment, app)), None)


def idle_processes() -> set[int]:
    """Idle processes of Ray; this machine has only those of this cluster."""
    found = set()
    for pid in all_pids():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(IDLE):
                found.add(pid)
    return found


def coordinator(deployment: Deployment, app: Application, number: int = 0) -> dict[str, Any]:
    return deployment.actor(coordinator_name(app.session.key, number))


def share_a_coordinator(deployment: Deployment, app: Application) -> bool:
    """Whether both frontends have reported their addresses to the coordinator."""
    return len((deployment.signals(app).get("grpcAddress") or "").split(",")) == 2


def test_a_replica_that_is_three_times_as_slow_as_its_profile_answers_in_time(deployment: Deployment) -> None:
    """Requests wait as long as their deadline allows, so with the profiled times all would be late."""
    loading = loaded(deployment, LYING)

    def in_time() -> bool:
        signals = deployment.signals(LYING)
        return bool(signals) and signals["goodput"] > RATE / 2 and signals["badRate"] < 0.2

    deployment.until(in_time, "hardly anybody is late")
    (stage,) = deployment.signals(LYING)["stages"]
    assert stage["actualMicros"] > 2 * stage["predictedMicros"]
    load = loading.stop()
    assert load.answered == load.sent


def test_a_replica_that_hangs_loses_no_request_and_recovers(deployment: Deployment) -> None:
    loading = loaded(deployment, FAILING)
    victim = replicas(deployment, FAILING)[0]["pid"]
    os.kill(victim, signal.SIGSTOP)
    try:
        deployment.until(lambda: deployment.ready_replicas(FAILING) == [1], "the frontend has noticed")
    finally:
        os.kill(victim, signal.SIGCONT)
    deployment.until(lambda: deployment.ready_replicas(FAILING) == [2], "it takes batches again")
    all_answered(loading.stop())


def test_a_killed_replica_loses_no_request_and_is_replaced(deployment: Deployment) -> None:
    loading = loaded(deployment, FAILING)
    victim = replicas(deployment, FAILING)[0]["pid"]
    os.kill(victim, signal.SIGKILL)

    def is_replaced() -> bool:
        there = {replica.get("pid") for replica in replicas(deployment, FAILING)}
        return victim not in there and deployment.ready_replicas(FAILING) == [2]

    deployment.until(is_replaced, "the replica is replaced")
    all_answered(loading.stop())


def heads(deployment: Deployment) -> list[str]:
    nodes = deployment.cluster.get("/api/v0/nodes?detail=1")["data"]["result"]["result"]
    return [node["node_id"] for node in nodes if node["is_head_node"]]


def test_the_directory_is_on_the_head_so_that_other_nodes_can_be_idle(deployment: Deployment) -> None:
    assert [deployment.actor("partita-directory")["node_id"]] == heads(deployment)


def test_a_coordinator_is_on_the_node_of_its_frontends(deployment: Deployment) -> None:
    """It ends without a frontend there."""
    deployment.until(lambda: share_a_coordinator(deployment, SHARED), "both frontends share a coordinator")
    frontends = {r["node_id"] for r in deployment.replicas() if r["application"].endswith(f".{SHARED.name}.frontend")}
    assert {coordinator(deployment, SHARED)["node_id"]} == frontends


def test_a_killed_directory_loses_no_request(deployment: Deployment) -> None:
    before = deployment.actor("partita-directory")["pid"]
    loading = loaded(deployment, FAILING)
    os.kill(before, signal.SIGKILL)
    deployment.until(lambda: deployment.actor("partita-directory")["pid"] not in (0, before), "there is another one")
    all_answered(loading.stop())
    assert deployment.ready_replicas(FAILING) == [2]


def test_a_killed_serve_controller_loses_no_request(deployment: Deployment) -> None:
    before = deployment.actor("SERVE_CONTROLLER_ACTOR")["pid"]
    loading = loaded(deployment, FAILING)
    others = loaded(deployment, TRAFFIC)
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return deployment.actor("SERVE_CONTROLLER_ACTOR")["pid"] not in (0, before) and bool(
                replicas(deployment, FAILING)
            )
        except DevError:
            return False

    deployment.until(is_back, "there is another one, which knows the replicas")
    all_answered(loading.stop())
    all_answered(others.stop())


def test_a_killed_frontend_breaks_only_its_own_connections(deployment: Deployment) -> None:
    before = frontend_pid(deployment, FAILING)
    assert before is not None
    loading = loaded(deployment, FAILING)
    others = loaded(deployment, TRAFFIC)
    os.kill(before, signal.SIGKILL)
    deployment.until(lambda: frontend_pid(deployment, FAILING) not in (None, before), "there is another one")
    deployment.until(lambda: deployment.signals(FAILING).get("goodput", 0) > RATE / 4, "it serves")
    load = loading.stop()
    assert sum(load.statuses.values()) == load.sent
    assert load.statuses.keys() <= {200, "broken", 500, 502, 503, 504}, load.errors
    all_answered(others.stop())
    after = loaded(deployment, FAILING)
    deployment.until(lambda: after.sent() > RATE, "a second of the new load")
    deployment.until(lambda: deployment.signals(FAILING)["goodput"] > RATE / 2, "it serves the new load")
    all_answered(after.stop())


def test_another_frontend_starts_in_the_standby_process(deployment: Deployment) -> None:
    before = frontend_pid(deployment, FAILING)
    assert before is not None
    deployment.until(idle_processes, "a process is kept ready")
    ready = idle_processes()
    os.kill(before, signal.SIGKILL)
    deployment.until(lambda: frontend_pid(deployment, FAILING) not in (None, before), "there is another one")
    assert frontend_pid(deployment, FAILING) in ready
    deployment.until(lambda: deployment.ready(FAILING), "it serves")


def test_a_killed_coordinator_loses_no_request_of_its_frontends(deployment: Deployment) -> None:
    deployment.until(lambda: share_a_coordinator(deployment, SHARED), "both frontends share a coordinator")
    before = coordinator(deployment, SHARED)["pid"]
    assert coordinator(deployment, SHARED, number=1)["pid"] == 0, "its frontends are on one node"
    loading = loaded(deployment, SHARED)
    os.kill(before, signal.SIGKILL)
    deployment.until(lambda: coordinator(deployment, SHARED)["pid"] not in (0, before), "there is another one")
    deployment.until(lambda: share_a_coordinator(deployment, SHARED), "both frontends share it")
    all_answered(loading.stop())


def test_frontends_on_two_nodes_have_a_second_coordinator_which_takes_over(deployment: Deployment) -> None:
    deployment.apply_stages(APART)
    deployment.apply_frontend(APART, ON_EMULATED, most_on_a_node=1)
    deployment.until(lambda: share_a_coordinator(deployment, APART), "both frontends share a coordinator")

    def both() -> list[dict[str, Any]]:
        return [coordinator(deployment, APART, number) for number in range(2)]

    deployment.until(lambda: all(actor["pid"] for actor in both()), "there are two coordinators")
    assert len({actor["node_id"] for actor in both()}) == 2
    for number in range(2):
        before = coordinator(deployment, APART, number)["pid"]
        loading = loaded(deployment, APART)
        os.kill(before, signal.SIGKILL)
        deployment.until(
            lambda number=number, before=before: coordinator(deployment, APART, number)["pid"] not in (0, before),
            "there is another one",
        )
        all_answered(loading.stop())
        assert len({actor["node_id"] for actor in both()}) == 2
    deployment.remove(lambda application: f".{APART.name}." in application)


def test_a_killed_frontend_does_not_stop_the_other_frontend(deployment: Deployment) -> None:
    """A client that retries gets an answer."""
    deployment.until(lambda: share_a_coordinator(deployment, SHARED), "both frontends share a coordinator")
    before = frontend_pids(deployment, SHARED)
    victim, other = sorted(before)
    loading = loaded(deployment, SHARED, try_again=True)
    os.kill(victim, signal.SIGKILL)
    deployment.until(lambda: len(frontend_pids(deployment, SHARED) - {victim}) == 2, "there is another one")
    deployment.until(lambda: share_a_coordinator(deployment, SHARED), "both share the coordinator")
    load = loading.stop()
    assert other in frontend_pids(deployment, SHARED)
    all_answered(load)
    after = loaded(deployment, SHARED)
    deployment.until(lambda: deployment.signals(SHARED).get("goodput", 0) > RATE / 2, "they go on serving")
    all_answered(after.stop())


def nodes_alive(deployment: Deployment) -> set[str | None]:
    return {node.labels.get(NODE_LABEL) for node in deployment.cluster.nodes() if node.alive}


def test_a_node_that_is_told_to_end_loses_no_request(deployment: Deployment) -> None:
    """One session may have all replicas on the other node. The other session may not."""
    before = [(app, deployment.ready_replicas(app)) for app in (STEADY, FAILING)]
    steady = loaded(deployment, STEADY, rate=RATE / 2)
    failing = loaded(deployment, FAILING, rate=RATE / 2)
    deployment.cluster.terminate_node(f"{EMULATED}-1")
    deployment.until(lambda: f"{EMULATED}-1" not in nodes_alive(deployment), "the node has ended")
    deployment.cluster.start_node(f"{EMULATED}-1")
    for app, ready in before:
        deployment.until(lambda app=app, ready=ready: deployment.ready_replicas(app) == ready, "all replicas are back")
    all_answered(steady.stop())
    all_answered(failing.stop())


def test_a_lost_node_loses_no_request(deployment: Deployment) -> None:
    """The node stays away for the tests after this one."""
    assert Counter(r["node_id"] for r in replicas(deployment, FAILING)).most_common(1)[0][1] == 1
    loading = loaded(deployment, FAILING)
    deployment.cluster.kill_node(f"{EMULATED}-1")
    deployment.until(lambda: deployment.ready_replicas(FAILING) == [1], "the frontend has noticed")
    deployment.until(lambda: f"{EMULATED}-1" not in nodes_alive(deployment), "Ray has noticed")
    all_answered(loading.stop())


def test_removed_applications_leave_no_replica(deployment: Deployment) -> None:
    """The last test of the cluster."""
    deployment.remove(lambda _: True)
    deployment.until(lambda: not deployment.replicas(), "all replicas are gone")
