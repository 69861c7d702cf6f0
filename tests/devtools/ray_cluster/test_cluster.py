"""The local Ray cluster: what Ray sees of it, that Serve works on it, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.fixtures import RayClusters
from tests.patience import PATIENCE_SECONDS, eventually

from partita_devtools.errors import DevError
from partita_devtools.machine.processes import all_pids
from partita_devtools.ray_cluster.cluster import RayCluster, load_ray_cluster, start_ray_cluster
from partita_devtools.ray_cluster.cluster import ray_cluster as run_ray_cluster
from partita_devtools.ray_cluster.commands import (
    CLUSTER_MARKER,
    NODE_MARKER,
    RayClassNode,
    RayClusterConfig,
    has_haproxy,
)
from partita_devtools.ray_cluster.serve import APPLICATIONS_PATH, deploy

pytestmark = pytest.mark.ray

ECHO = """
from ray import serve

@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 0, "resources": {"partita-pool-large": 1}})
class Double:
    def __call__(self, number: int) -> int:
        return 2 * number

@serve.deployment(ray_actor_options={"num_cpus": 0})
class Front:
    def __init__(self, double):
        self.double = double

    async def __call__(self, request):
        return await self.double.remote(int(request.query_params["number"]))

app = Front.bind(Double.bind())
"""


def answer(url: str) -> str | None:
    """What the URL answers; None where there is no proxy yet, or one that does not know the application."""
    try:
        return httpx.get(url, timeout=PATIENCE_SECONDS).text
    except httpx.TransportError:
        return None


def alive(cluster: RayCluster) -> set[str]:
    return {node.name for node in cluster.nodes() if node.alive}


def members(cluster: RayCluster) -> list[int]:
    """All processes with the cluster's marker in their environment or its temporary directory on their command line."""
    state = json.loads((cluster.state_dir / "ray-cluster.json").read_text())
    (mark,) = ("=".join(entry) for entry in CLUSTER_MARKER.environment(cluster.state_dir).items())
    return [
        pid
        for pid in all_pids()
        if mark in contents(pid, "environ").split("\0") or state["temp_dir"] in contents(pid, "cmdline")
    ]


def contents(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def has_raylet(cluster: RayCluster, node: str) -> bool:
    processes = NODE_MARKER.processes(cluster.state_dir, (), node)
    return any("raylet/raylet" in contents(process.pid, "cmdline") for process in processes)


@pytest.fixture
def own_cluster(tmp_path: Path, started_clusters: RayClusters) -> Iterator[RayCluster]:
    """A cluster that the test may break; it is stopped afterwards."""
    started_clusters.stop()
    config = RayClusterConfig(nodes=(RayClassNode("large", slots=2),), head_cpus=1)
    cluster = start_ray_cluster(tmp_path / "state", config, report=print, dies_with_parent=True)
    yield cluster
    cluster.stop()


def test_each_class_shows_its_slots_cpus_and_labels(ray_cluster: RayCluster) -> None:
    nodes = {node.name: node for node in ray_cluster.nodes()}
    assert set(nodes) == {"head", "large-0", "small-0"}
    assert nodes["large-0"].resources["partita-pool-large"] == 4
    assert nodes["small-0"].resources["partita-pool-small"] == 8
    assert nodes["small-0"].resources["CPU"] == 8
    assert nodes["small-0"].labels["partita.dev/pool"] == "small"
    assert nodes["small-0"].labels["tier"] == "low"
    assert not [name for name in nodes["head"].resources if name.startswith("partita-pool-")]


def test_its_interfaces_ask_for_the_token(ray_cluster: RayCluster) -> None:
    url = f"{ray_cluster.dashboard_url}{APPLICATIONS_PATH}"
    assert httpx.get(url).status_code == httpx.codes.UNAUTHORIZED
    assert ray_cluster.get(APPLICATIONS_PATH)["applications"] == {}
    assert ray_cluster.get("/api/jobs/") == []


def test_a_driver_finds_it_by_its_environment_and_runs_on_the_class_it_asks_for(ray_cluster: RayCluster) -> None:
    program = (
        "import ray\n"
        "ray.init(log_to_driver=False)\n"
        "@ray.remote(num_cpus=0, resources={'partita-pool-small': 1})\n"
        "def where():\n"
        "    return ray.get_runtime_context().get_node_labels()['partita.dev/pool']\n"
        "print(ray.get(where.remote()))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **ray_cluster.client_environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout.split() == ["small"], answer.stderr


@pytest.mark.usefixtures("no_other_cluster")
def test_serve_deploys_on_it_and_answers_on_its_port(tmp_path: Path) -> None:
    (tmp_path / "echo_app.py").write_text(ECHO)
    config = RayClusterConfig(
        nodes=(RayClassNode("large", slots=1),), head_cpus=1, environment={"PYTHONPATH": str(tmp_path)}
    )
    with run_ray_cluster(tmp_path / "state", config) as cluster:
        echo = {"name": "echo", "route_prefix": "/echo", "import_path": "echo_app:app"}
        deploy(cluster, {"applications": [echo]})

        def status() -> str:
            applications = cluster.get(APPLICATIONS_PATH)["applications"]
            return str(applications.get("echo", {}).get("status"))

        eventually(lambda: status() == "RUNNING")
        url = f"http://127.0.0.1:{cluster.serve_http_port}/echo?number=21"
        eventually(lambda: answer(url) == "42")
        if has_haproxy():
            eventually(lambda: any("bin/haproxy" in contents(pid, "cmdline") for pid in members(cluster)))


@pytest.mark.usefixtures("no_other_cluster")
def test_a_killed_node_is_gone_and_can_come_back_while_the_head_runs(tmp_path: Path) -> None:
    config = RayClusterConfig(
        nodes=(RayClassNode("large", slots=1), RayClassNode("large", slots=1)),
        head_cpus=1,
        # Ray looks for lost nodes every few seconds only, unless told.
        environment={"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "2"},
    )
    with run_ray_cluster(tmp_path, config) as cluster:
        assert alive(cluster) == {"head", "large-0", "large-1"}
        cluster.kill_node("large-1")
        eventually(lambda: alive(cluster) == {"head", "large-0"})
        assert not cluster.is_running()
        cluster.start_node("large-1")
        assert alive(cluster) == {"head", "large-0", "large-1"}
        assert cluster.is_running()

        cluster.kill_node("large-1")
        cluster.kill_node("head")
        with pytest.raises(DevError, match="Ray node head ended; the end of its log"):
            cluster.start_node("large-1")


def test_it_restarts_on_the_same_ports_survives_a_second_start_and_leaves_nothing(own_cluster: RayCluster) -> None:
    url, port, token = own_cluster.dashboard_url, own_cluster.serve_http_port, own_cluster.auth_token
    own_cluster.restart()
    loaded = load_ray_cluster(own_cluster.state_dir)
    assert loaded is not None
    assert (loaded.dashboard_url, loaded.serve_http_port, loaded.auth_token) == (url, port, token)
    assert alive(loaded) == {"head", "large-0"}

    same = start_ray_cluster(own_cluster.state_dir, own_cluster.config, report=print)
    assert same.dashboard_url == url
    with pytest.raises(DevError, match="another Ray cluster runs"):
        start_ray_cluster(own_cluster.state_dir, RayClusterConfig(nodes=()), report=print)

    assert members(own_cluster)
    own_cluster.stop()
    assert members(own_cluster) == []
    own_cluster.stop()
    assert not own_cluster.is_running()


@pytest.mark.slow
def test_a_node_joins_though_the_control_service_stands_still_for_more_than_30_s(own_cluster: RayCluster) -> None:
    own_cluster.kill_node("large-0")
    (control_service,) = [
        pid for pid in members(own_cluster) if "gcs_server" in contents(pid, "cmdline").split("\0")[0]
    ]
    with ThreadPoolExecutor() as pool:
        starting = pool.submit(own_cluster.start_node, "large-0")
        eventually(lambda: has_raylet(own_cluster, "large-0"))
        os.kill(control_service, signal.SIGSTOP)
        time.sleep(35)  # Ray's 30 s, and some more
        os.kill(control_service, signal.SIGCONT)
        starting.result()
    assert own_cluster.is_running()
