"""Two `partita local up` on one directory, and ports that are taken; Ray's processes are replaced by others."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from tests.builders import pool
from tests.patience import PATIENCE_SECONDS, eventually

from partita_api.gpupool import GPUPool
from partita_devtools.api_server.process import EmbeddedApiServer, load_api_server, start_api_server
from partita_devtools.environment import DevEnvironment, dev_down
from partita_devtools.errors import DevError
from partita_devtools.local.environment import local_up
from partita_devtools.machine.ports import same_or_free_port
from partita_devtools.machine.processes import is_running, spawn
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import CLUSTER_MARKER
from partita_devtools.ray_cluster.state import RayClusterState

pytest.importorskip("ray", reason="local mode needs the extra serving")


class FakeRay:
    """Its nodes are processes that sleep. A start of the cluster waits until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[str] = []
        self.may_go_on = Event()

        def start_nodes(cluster: RayCluster, _report: object) -> None:
            assert self.may_go_on.wait(PATIENCE_SECONDS)
            for name in cluster.node_names:
                start_node(cluster, name)

        def start_node(cluster: RayCluster, name: str) -> None:
            self.started.append(name)
            state = RayClusterState.read(cluster.state_dir)
            assert state is not None
            marked = {**os.environ, **CLUSTER_MARKER.environment(cluster.state_dir)}
            process = spawn(["sleep", "3600"], log=cluster.state_dir / "logs" / name, environment=marked)
            nodes = {**state.nodes, name: replace(state.nodes[name], process=process)}
            replace(state, nodes=nodes).write(cluster.state_dir)

        monkeypatch.setattr(RayCluster, "start_nodes", start_nodes)
        monkeypatch.setattr(RayCluster, "start_node", start_node)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    return FakeRay(monkeypatch)


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "state"
    dev_down(tmp_path / "state", print)


@pytest.mark.parametrize("other", ["cpu", "gpu"])
def test_the_second_command_waits_and_gets_the_environment_of_the_first(
    other: str, ray: FakeRay, state_dir: Path
) -> None:
    lines: list[str] = []

    def up(name: str) -> DevEnvironment:
        pools: list[GPUPool] = [pool(name).gpus(2).build()]
        return local_up(state_dir, pools, [state_dir], lines.append)

    with ThreadPoolExecutor(2) as commands:
        try:
            first = commands.submit(up, "cpu")
            eventually(lambda: load_api_server(state_dir) is not None)
            second = commands.submit(up, other)
            eventually(lambda: any("waiting for another process to start local mode" in line for line in lines))
        finally:
            ray.may_go_on.set()
        assert first.result() == second.result()
    assert sum("starting the embedded API server" in line for line in lines) == 1
    assert ray.started == list(dict.fromkeys(["head", "cpu-0", f"{other}-0"]))
    environment = first.result()
    assert environment.ray.is_running()
    assert environment.ray.node_names == ray.started
    assert environment.api_server is not None
    assert environment.api_server.health() == "ok"


def test_a_cluster_without_a_record_is_stopped_before_another_starts(ray: FakeRay, state_dir: Path) -> None:
    ray.may_go_on.set()
    pools, lines = [pool("cpu").gpus(2).build()], list[str]()
    first = local_up(state_dir, pools, [state_dir], print).ray.running_processes()
    assert len(first) == 2
    (state_dir / "ray-cluster.json").unlink()

    second = local_up(state_dir, pools, [state_dir], lines.append).ray

    assert "stopping what still runs of an earlier Ray cluster" in lines
    assert not any(map(is_running, first))
    assert len(second.running_processes()) == 2


def test_without_space_for_ray_nothing_is_started(
    ray: FakeRay, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=7 << 20))
    with pytest.raises(DevError, match="/tmp has 7 MiB free, and Ray needs 100; make room there") as raised:
        local_up(state_dir, [], [state_dir], print)
    command = str(raised.value).partition("the largest: ")[2].rstrip(")").replace("/tmp", str(tmp_path))
    assert str(tmp_path) in subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert ray.started == []
    assert not EmbeddedApiServer(state_dir).is_running()


def listener(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_the_api_server_gets_another_port_if_its_own_is_taken(tmp_path: Path) -> None:
    server = start_api_server(tmp_path, report=print, dies_with_parent=True)
    before = server.kubeconfig.read_text()
    port = int(before.partition("https://127.0.0.1:")[2].partition('"')[0])
    server.stop()
    lines: list[str] = []
    with listener(port):
        start_api_server(tmp_path, report=lines.append, dies_with_parent=True)
        try:
            assert server.health() == "ok"
            new = int(server.kubeconfig.read_text().partition("https://127.0.0.1:")[2].partition('"')[0])
        finally:
            server.stop()
    assert new != port
    assert f"another program uses port {port} now; the API server gets port {new}" in lines


def test_a_port_is_kept_unless_another_program_uses_it() -> None:
    lines: list[str] = []
    with listener(0) as taken:
        port = taken.getsockname()[1]
        other = same_or_free_port(port, "API server", lines.append)
    assert other != port
    assert lines == [f"another program uses port {port} now; the API server gets port {other}"]
    assert same_or_free_port(port, "API server", lines.append) == port
    assert len(lines) == 1


def test_ray_starts_on_other_ports_than_those_that_are_taken(ray: FakeRay, state_dir: Path) -> None:
    ray.may_go_on.set()
    first = local_up(state_dir, [], [state_dir], print).ray
    dashboard, serve = int(first.dashboard_url.rpartition(":")[2]), first.serve_http_port
    dev_down(state_dir, print)
    with listener(dashboard), listener(serve):
        again = local_up(state_dir, [], [state_dir], print).ray
    state = RayClusterState.read(state_dir)
    assert state is not None
    assert {dashboard, serve}.isdisjoint(vars(state.ports).values())
    assert again.is_running()
