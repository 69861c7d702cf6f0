"""`dev up`, `status` and `down` as a whole, with a real control plane and a real Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from partita_devtools.control_plane.binaries import Binaries
from partita_devtools.environment import DevConfig, dev_down, dev_status, dev_up, load_dev_environment
from partita_devtools.errors import DevError
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig

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
