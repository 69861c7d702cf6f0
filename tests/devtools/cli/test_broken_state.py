"""Damaged files in a state directory: each command names the file and a command that repairs, without a traceback."""

import json
import os
import shlex
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.devtools.conftest import RAY_STATE

from partita_devtools import operator_process
from partita_devtools.api_server import process
from partita_devtools.control_plane import lifecycle
from partita_devtools.errors import DevError
from partita_devtools.machine.files import read_record, write_private, write_record
from partita_devtools.machine.processes import ProcessIdentity, is_running, spawn, stop_all
from partita_devtools.nodes import cluster as node_cluster
from partita_devtools.nodes.node import DevNode
from partita_devtools.ray_cluster.commands import CLUSTER_MARKER, NODE_DIRECTORY
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

IDENTITY = {"pid": 2**22 + 1, "started": 1}
ENVIRONMENT = {"kubeconfig": "/nowhere", "own_control_plane": False, "embedded": True}
FILES: dict[str, Any] = {
    "environment.json": ENVIRONMENT,
    "ray-cluster.json": RAY_STATE,
    "api-server.json": {"process": IDENTITY, "port": 1, "token": "t"},
    "operator.json": {"process": IDENTITY, "health_port": 1, "ray_token": "t"},
}
"""The records of local mode that is down."""
CONTROL_PLANE: dict[str, Any] = {
    "ports": {"api_server": 1, "etcd_client": 2, "etcd_peer": 3, "controller_manager": 4},
    "binaries": {"directory": "/nowhere", "version": "v1.37.2"},
    "token": "t",
    "dies_with_parent": False,
    "processes": {},
}
DAMAGES = ["", "{", "\xff", "[]", "42", "null", "{}", "a wrong type"]
STATUS_AND_DOWN = {
    "environment.json": ("local status", "local get", "dev status", "local up", "demo"),
    "ray-cluster.json": ("local status", "local down", "dev status", "dev down"),
    "api-server.json": ("local status", "local get", "local down", "dev down"),
    "operator.json": ("local down", "dev down", "dev status"),
    "control-plane.json": ("dev status", "dev down", "dev nodes status"),
    "nodes.json": ("dev nodes status", "dev nodes down"),
}
"""Commands that read each file first."""


def damaged(good: dict[str, Any], damage: str) -> bytes:
    if damage == "a wrong type":
        return json.dumps({**good, next(iter(good)): ["wrong"]}).encode()
    return damage.encode("latin-1")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("file", "command"), [(f, c) for f, commands in STATUS_AND_DOWN.items() for c in commands])
def test_a_damaged_record(file: str, command: str, damage: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "my state"
    state_dir.mkdir()
    good = FILES | {"nodes.json": {"nodes": [{"name": "control"}], "processes": {}}}
    if file in ("control-plane.json", "nodes.json"):
        good |= {"control-plane.json": CONTROL_PLANE, "environment.json": {**ENVIRONMENT, "own_control_plane": True}}
    for name, content in good.items():
        (state_dir / name).write_text(json.dumps(content))
    (state_dir / file).write_bytes(damaged(good[file], damage))

    result = CliRunner().invoke(main, [*command.split(), "--state-dir", str(state_dir)])

    assert isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == ExitCode.FAILED, result.output
    assert f"{state_dir / file} is damaged (" in result.output
    remove = result.output.rstrip().rpartition("start again: ")[2]
    subprocess.run(shlex.split(remove), check=True)
    assert not (state_dir / file).exists()


@pytest.mark.parametrize("command", ["local down", "dev down"])
def test_down_stops_what_has_no_record(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone has removed all files; Ray's temporary directory goes, too."""
    temp_dir = Path(tempfile.mkdtemp(prefix="pr-", dir="/tmp"))
    marked = [
        {**CLUSTER_MARKER.environment(tmp_path / "dev"), NODE_DIRECTORY: str(temp_dir / "nodes/head")},
        lifecycle.MARKER.environment(tmp_path / "dev", "etcd"),
        operator_process.MARKER.environment(tmp_path / "dev"),
        process.MARKER.environment(tmp_path / "dev"),
    ]
    started = [
        spawn(["sleep", "3600"], log=tmp_path / "log", environment={**os.environ, **variables}, dies_with_parent=True)
        for variables in marked
    ]
    other = spawn(
        ["sleep", "3600"],
        log=tmp_path / "log",
        environment={**os.environ, **CLUSTER_MARKER.environment(tmp_path / "other")},
        dies_with_parent=True,
    )
    monkeypatch.chdir(tmp_path)
    try:
        result = CliRunner().invoke(main, [*command.split(), "--state-dir", "dev"])
        assert result.exit_code == ExitCode.OK, result.output
        assert not any(map(is_running, started))
        assert not temp_dir.exists()
        assert is_running(other)
    finally:
        stop_all([*started, other])


def test_nodes_without_a_record_are_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dir = tmp_path / "cluster"
    (state_dir / "nodes" / "l4").mkdir(parents=True)
    disconnected: list[DevNode] = []
    monkeypatch.setattr(node_cluster.network, "disconnect", disconnected.extend)
    for module, name in ((node_cluster, "_remove_service_rules"), (node_cluster.control_groups, "remove")):
        monkeypatch.setattr(module, name, lambda _: None)
    marked = {**os.environ, **node_cluster.MARKER.environment(state_dir)}
    kubelet = spawn(["sleep", "3600"], log=tmp_path / "log", environment=marked, dies_with_parent=True)
    while Path(f"/proc/{kubelet.pid}/comm").read_text() != "sleep\n":  # until then its environment may be empty
        time.sleep(0.01)

    node_cluster.stop_nodes(state_dir, print)

    assert not is_running(kubelet)
    assert [node.name for node in disconnected] == ["l4"]
    assert not state_dir.exists()


def test_what_is_no_cluster_of_nodes_is_spared(tmp_path: Path) -> None:
    (tmp_path / "nodes" / "thesis").mkdir(parents=True)
    node_cluster.stop_nodes(tmp_path, print)
    assert (tmp_path / "nodes" / "thesis").exists()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "record.json"
    assert read_record(path, ProcessIdentity) is None
    write_record(path, ProcessIdentity(1, 2))
    assert read_record(path, ProcessIdentity) == ProcessIdentity(1, 2)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_crash_while_writing_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    write_private(path, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_private(path, b"new")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_and_its_folder_are_on_disk_when_a_record_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    path = tmp_path / "record.json"
    sync = os.fsync

    def recorded(handle: int) -> None:
        synced.append((Path(f"/proc/self/fd/{handle}").readlink().name, path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    write_private(path, b"new")
    assert synced == [(f".record.json.{os.getpid()}", False), (tmp_path.name, True)]


def test_a_record_of_another_kind_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"pid": 1}')
    with pytest.raises(DevError, match=r"is damaged \(started: Field required\)"):
        read_record(tmp_path / "record.json", ProcessIdentity)
