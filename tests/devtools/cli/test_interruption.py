"""Ctrl-C stops what the command has started, and nothing else."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from tests.devtools.conftest import RAY_STATE
from tests.fixtures import RayClusters
from tests.patience import PATIENCE_SECONDS

from partita_devtools.api_server.process import load_api_server, start_api_server
from partita_devtools.cli.interruption import stopped_if_interrupted
from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.control_plane.commands import Ports
from partita_devtools.control_plane.state import ControlPlaneState
from partita_devtools.machine.processes import all_pids, identify, is_running, spawn
from partita_devtools.nodes import cluster as node_cluster
from partita_devtools.nodes.cluster import start_nodes
from partita_devtools.nodes.node import NodeSpec
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def start(stopped: list[str], ending: BaseException | None) -> None:
    """A block that starts two parts, and ends with an exception or none."""
    with stopped_if_interrupted() as undo:
        undo.callback(stopped.append, "API server")
        undo.callback(stopped.append, "Ray")
        if ending is not None:
            raise ending


def test_what_the_block_has_started_is_stopped_in_reverse_order(capsys: pytest.CaptureFixture[str]) -> None:
    stopped: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        start(stopped, KeyboardInterrupt())
    assert stopped == ["Ray", "API server"]
    assert capsys.readouterr().err.splitlines() == [
        "stopping what this command has started",
        f"to start again: {shlex.join(['partita', *sys.argv[1:]])}",
    ]


def test_another_ctrl_c_does_not_leave_parts_running() -> None:
    stopped: list[str] = []

    def stop(part: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stopped.append(part)

    def run() -> None:
        with stopped_if_interrupted() as undo:
            undo.callback(stop, "API server")
            undo.callback(stop, "Ray")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert stopped == ["Ray", "API server"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_ctrl_c_everything_keeps_running() -> None:
    stopped: list[str] = []
    start(stopped, None)
    with pytest.raises(ValueError, match="other"):
        start(stopped, ValueError("other errors are handled by who raises them"))
    assert stopped == []


@pytest.mark.parametrize("ends_in", ["Ray", "operator"])
def test_a_new_api_server_ends_with_the_command(ends_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ends_in == "Ray":
        monkeypatch.setattr("partita_devtools.environment.start_ray_cluster", interrupted)
    else:
        monkeypatch.setattr("partita_devtools.environment.start_ray_cluster", lambda *_, **__: RayCluster(tmp_path))
        monkeypatch.setattr("partita_devtools.cli.local.lifecycle.launch_operator", interrupted)

    assert CliRunner().invoke(main, ["local", "up", "--state-dir", str(tmp_path)]).exit_code == ExitCode.INTERRUPTED

    server = load_api_server(tmp_path)
    assert server is not None
    assert not server.is_running()


def test_parts_that_another_command_is_starting_keep_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other `up` has its API server, and no environment.json yet."""
    server = start_api_server(tmp_path, report=print, dies_with_parent=True)
    monkeypatch.setattr("partita_devtools.environment.start_ray_cluster", interrupted)
    try:
        ended = CliRunner().invoke(main, ["local", "up", "--state-dir", str(tmp_path)])
        assert ended.exit_code == ExitCode.INTERRUPTED
        assert server.health() == "ok"
    finally:
        server.stop()


def test_an_operator_that_ran_before_keeps_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = spawn(["sleep", "3600"], log=tmp_path / "log", dies_with_parent=True)
    (tmp_path / "ray-cluster.json").write_text(json.dumps(RAY_STATE))
    record = {"process": {"pid": operator.pid, "started": operator.started}, "health_port": 1, "ray_token": "t"}
    (tmp_path / "operator.json").write_text(json.dumps(record))
    monkeypatch.setattr("partita_devtools.environment.start_ray_cluster", lambda *_, **__: RayCluster(tmp_path))
    monkeypatch.setattr("partita_devtools.cli.local.lifecycle.apply_objects", interrupted)
    try:
        ended = CliRunner().invoke(main, ["local", "up", "--state-dir", str(tmp_path)])
        assert ended.exit_code == ExitCode.INTERRUPTED, ended.output
        assert is_running(operator)
    finally:
        os.kill(operator.pid, signal.SIGKILL)


def test_a_control_plane_for_nodes_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes just after it has started."""
    state_dir = tmp_path / "nodes"
    started = []

    def start(*_: object, **__: object) -> None:
        started.append(spawn(["sleep", "3600"], log=tmp_path / "log", dies_with_parent=True))
        binaries = Binaries(tmp_path, "v1.37.2")
        ports = Ports(*[1] * len(Ports.__dataclass_fields__))
        ControlPlaneState(ports, binaries, "t", True, {"etcd": started[0]}).write(state_dir)
        raise KeyboardInterrupt

    monkeypatch.setattr(node_cluster, "start_control_plane", start)
    for name in ("_require", "_delete_pods", "_remove_service_rules"):
        monkeypatch.setattr(node_cluster, name, lambda *_: None)
    monkeypatch.setattr(node_cluster.network, "disconnect", lambda _: None)
    monkeypatch.setattr(node_cluster.control_groups, "remove", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        start_nodes(state_dir, [NodeSpec("a")], binaries=Binaries(tmp_path, "v1.37.2"), report=print)
    assert not is_running(started[0])
    assert not state_dir.exists()


@pytest.mark.ray
def test_ctrl_c_while_ray_starts(tmp_path: Path, started_clusters: RayClusters) -> None:
    started_clusters.stop()
    mark = f"PARTITA_TEST_COMMAND={uuid4().hex}"
    command = ["local", "up", "--state-dir", str(tmp_path / "my state")]
    with subprocess.Popen(
        [sys.executable, "-m", "partita_operator", *command],
        env={**os.environ, **dict([mark.split("=")])},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as up:
        assert up.stderr is not None
        lines = []
        for line in up.stderr:
            lines.append(line)
            if line.startswith("starting Ray node head"):
                break
        assert len(marked(mark)) > 1, lines
        up.send_signal(signal.SIGINT)
        _, errors = up.communicate(timeout=PATIENCE_SECONDS)
    assert up.returncode == ExitCode.INTERRUPTED, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-3:] == [
        "stopping what this command has started",
        f"to start again: {shlex.join(['partita', *command])}",
        "Interrupted.",
    ]
    assert marked(mark) == []


def marked(entry: str) -> list[int]:
    """The processes that the command has started, and itself: all have its environment."""
    found = []
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if entry.encode() in environment.split(b"\0") and identify(pid) is not None:
            found.append(pid)
    return found
