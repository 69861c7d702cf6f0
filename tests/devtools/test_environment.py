"""`dev up`, `status` and `down` as a whole, with a real control plane and a real Ray cluster."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.docs.pages import pasted as commands_of
from tests.docs.shell import Shell
from tests.fixtures import RayClusters

from partita_devtools import operator_process
from partita_devtools.cli.dev import EXAMPLE, next_commands
from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.environment import (
    DevConfig,
    DevEnvironment,
    dev_down,
    dev_status,
    dev_up,
    load_dev_environment,
)
from partita_devtools.errors import DevError
from partita_devtools.machine.processes import is_running, spawn
from partita_devtools.operator_process import launch_operator, operator_running, start_operator, stop_operator
from partita_devtools.ray_cluster.cluster import RayCluster
from partita_devtools.ray_cluster.commands import HeadPorts, RayClassNode, RayClusterConfig
from partita_devtools.ray_cluster.state import RayClusterState
from partita_operator.cli.exit_codes import ExitCode
from partita_operator.cli.main import main

RAY = RayClusterConfig(nodes=(RayClassNode("large", slots=2),), head_cpus=1)


@pytest.mark.apiserver
@pytest.mark.ray
def test_up_twice_status_and_down(kubernetes_binaries: Binaries, tmp_path: Path) -> None:
    environment = {"KUBEBUILDER_ASSETS": str(kubernetes_binaries.directory)}
    config = DevConfig(state_dir=tmp_path / "dev", ray=RAY)
    assert dev_status(config.state_dir).environment is None
    try:
        first = dev_up(config, print, environment=environment)
        assert first.control_plane is not None
        second = dev_up(config, print, environment=environment)
        assert second.control_plane is not None
        assert second.control_plane.processes == first.control_plane.processes
        assert second.ray.dashboard_url == first.ray.dashboard_url

        status = dev_status(config.state_dir)
        assert status.healthy, status.components
        assert [component.name for component in status.components] == [
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "ray head",
            "ray large-0",
        ]
        first.ray.kill_node("large-0")
        sick = {component.name: component for component in dev_status(config.state_dir).components}
        assert sick["ray large-0"].detail == "not running"
        assert sick["ray head"].healthy
    finally:
        dev_down(config.state_dir, print)
    assert {component.detail for component in dev_status(config.state_dir).components} == {"not running"}
    dev_down(config.state_dir, print, delete_data=True)
    assert not config.state_dir.exists()


def pasted(line: str) -> Result:
    """The result of a `partita` command that a line of progress proposes after a colon."""
    name, *arguments = shlex.split(line.partition(": ")[2])
    assert name == "partita"
    return CliRunner().invoke(main, arguments)


@pytest.mark.apiserver
@pytest.mark.ray
def test_up_ends_with_commands_that_work(
    kubernetes_binaries: Binaries, started_clusters: RayClusters, tmp_path: Path
) -> None:
    state_dir = tmp_path / "my dev"
    started_clusters.stop()
    reader = Shell(tmp_path)
    reader.environment["KUBEBUILDER_ASSETS"] = str(kubernetes_binaries.directory)
    try:
        start, export = proposed(reader.paste(f"partita dev up --state-dir {shlex.quote(str(state_dir))}"))
        assert shlex.split(start) == ["partita", "dev", "up", "--operator", "--state-dir", str(state_dir)]
        assert shlex.split(export) == ["export", f"KUBECONFIG={state_dir / 'kubeconfig'}"]

        printed = reader.paste(start)
        assert printed.index("kube-apiserver") < printed.index("To try next:")
        export, apply, top = proposed(printed)
        serves = "kubectl wait --for=condition=Ready isess/hello --timeout=300s"
        shown = reader.paste("\n".join([export, apply, serves, top]))
        assert "Sessions" in shown
        assert "hello" in shown
        stop = printed.rstrip().splitlines()[-1]
        assert stop.startswith("To stop everything: partita dev down")
        reader.paste(stop.partition(": ")[2])
        assert not operator_running(state_dir)
        assert {component.detail for component in dev_status(state_dir).components} == {"not running"}
    finally:
        stop_operator(state_dir)
        dev_down(state_dir, print, delete_data=True)


def proposed(printed: str) -> list[str]:
    """The commands that `up` proposes at its end."""
    return [line.strip() for line in printed.partition("To try next:\n")[2].splitlines() if line.startswith("  ")]


@pytest.mark.parametrize(
    ("pools", "kubectl", "checkout", "want"),
    [
        pytest.param(("large", "small"), True, True, ["export", "kubectl", "partita"], id="all there"),
        pytest.param(("large", "small"), True, False, ["export", "partita"], id="installed from wheels"),
        pytest.param(("large", "small"), False, True, ["export", "partita"], id="no kubectl"),
        pytest.param(("large",), True, True, ["export", "partita"], id="other pools"),
    ],
)
def test_only_commands_that_work_are_proposed(
    pools: tuple[str, ...], kubectl: bool, checkout: bool, want: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ray = ray_that_never_ran(tmp_path, RayClusterConfig(nodes=tuple(RayClassNode(name, slots=1) for name in pools)))
    monkeypatch.setattr("partita_devtools.cli.dev.which", lambda _: "/bin/kubectl" if kubectl else None)
    environment = DevEnvironment(tmp_path, tmp_path / "kubeconfig", None, ray)
    example = EXAMPLE if checkout else tmp_path / "site-packages"
    commands = next_commands(environment, tmp_path, with_operator=True, example=example)
    assert [command.split()[0] for command in commands] == want


@pytest.mark.apiserver
@pytest.mark.ray
def test_the_page_on_the_environment(
    kubernetes_binaries: Binaries, started_clusters: RayClusters, tmp_path: Path
) -> None:
    started_clusters.stop()
    start, use, stop = commands_of("docs/development.md")
    reader = Shell(tmp_path)
    reader.environment["KUBEBUILDER_ASSETS"] = str(kubernetes_binaries.directory)
    try:
        assert "kube-apiserver" in reader.paste(start)
        assert "kube-system" in reader.paste(use)
        reader.paste(stop)
        assert "not running" in reader.run("partita dev status").stdout
    finally:
        reader.paste("partita dev down --delete-data")


def test_an_operator_that_does_not_start_is_reported_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no cluster here, so it ends at once."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    monkeypatch.setattr("partita_devtools.operator_process.install_definitions", lambda _: None)
    environment = DevEnvironment(tmp_path, kubeconfig, None, ray_that_never_ran(tmp_path))
    with pytest.raises(DevError) as raised:
        start_operator(environment, print)
    *_, status, again = str(raised.value).splitlines()
    assert "No Kubernetes cluster" in str(raised.value)
    assert pasted(status).exit_code == ExitCode.FAILED
    assert shlex.split(again.partition(": ")[2]) == [
        "partita", "dev", "up", "--operator", "--state-dir", str(tmp_path),
    ]  # fmt: skip


@pytest.mark.parametrize(("ray_token", "stays"), [("token", True), ("of an earlier start", False)])
def test_an_operator_of_an_earlier_ray_cluster_is_started_again(
    ray_token: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = DevEnvironment(tmp_path, tmp_path / "kubeconfig", None, ray_that_never_ran(tmp_path))
    operator = spawn(["sleep", "3600"], log=tmp_path / "log", dies_with_parent=True)
    record = {"process": {"pid": operator.pid, "started": operator.started}, "health_port": 1, "ray_token": ray_token}
    (tmp_path / "operator.json").write_text(json.dumps(record))
    launched: list[DevEnvironment] = []
    monkeypatch.setattr(operator_process, "_launch", lambda environment, *_, **__: launched.append(environment))

    launch_operator(environment, print)

    assert is_running(operator) == stays
    assert launched == ([] if stays else [environment])
    stop_operator(tmp_path)


def test_an_operator_without_a_record_is_stopped_before_another_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = {**os.environ, **operator_process.MARKER.environment(tmp_path)}
    operator = spawn(["sleep", "3600"], log=tmp_path / "log", environment=marked, dies_with_parent=True)
    ran: list[bool] = []
    monkeypatch.setattr(operator_process, "_launch", lambda *_, **__: ran.append(is_running(operator)))

    launch_operator(DevEnvironment(tmp_path, tmp_path / "kubeconfig", None, ray_that_never_ran(tmp_path)), print)

    assert ran == [False]


def ray_that_never_ran(state_dir: Path, config: RayClusterConfig = RAY) -> RayCluster:
    """A record of a Ray cluster of which nothing was started."""
    ports = HeadPorts(gcs=1, dashboard=2, serve_http=3)
    RayClusterState("token", state_dir / "tmp", ports, config, nodes={}, dies_with_parent=False).write(state_dir)
    return RayCluster(state_dir)


@pytest.mark.ray
def test_an_existing_cluster_is_used_and_left_alone(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "theirs"
    kubeconfig.touch()
    config = DevConfig(state_dir=tmp_path / "dev", kubeconfig=kubeconfig, ray=RAY)
    try:
        up = dev_up(config, print, environment={})
        assert up.control_plane is None
        assert load_dev_environment(config.state_dir) == up
        assert [component.name for component in dev_status(config.state_dir).components] == ["ray head", "ray large-0"]
    finally:
        dev_down(config.state_dir, print, delete_data=True)
    assert kubeconfig.exists()


@pytest.mark.apiserver
def test_when_ray_does_not_come_up_no_control_plane_is_left_behind(
    kubernetes_binaries: Binaries, tmp_path: Path
) -> None:
    broken = RayClusterConfig(nodes=(RayClassNode("large", slots=-1),), head_cpus=1)
    environment = {"KUBEBUILDER_ASSETS": str(kubernetes_binaries.directory)}
    with pytest.raises(DevError, match="Ray node large-0 ended"):
        dev_up(DevConfig(state_dir=tmp_path, ray=broken), print, environment=environment)
    assert load_dev_environment(tmp_path) is None
    dev_down(tmp_path, print)


def test_down_spares_files_of_others(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    dev_down(tmp_path, print, delete_data=True)
    assert (tmp_path / "thesis.tex").exists()
