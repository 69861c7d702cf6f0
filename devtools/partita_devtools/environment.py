"""The development environment as a whole: what `partita dev up`, `down` and `status` do.

Both halves run in the background until `dev_down`; `environment.json` in the state directory says whether
the Kubernetes half is ours or an existing cluster.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from os import environ
from pathlib import Path

from partita_devtools.commands import Report
from partita_devtools.control_plane.binaries import ExistingCluster, find_kubernetes
from partita_devtools.control_plane.control_plane import ControlPlane, load_control_plane, start_control_plane
from partita_devtools.errors import DevError
from partita_devtools.files import read_json, write_json
from partita_devtools.ray_cluster.cluster import RayCluster, load_ray_cluster, start_ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig

DEFAULT_STATE_DIR = Path(".partita/dev")
KUBECONFIG_FILE = "kubeconfig"
# All that is ever written into a state directory: nothing else is deleted, whatever directory it is.
_OURS = (
    "control-plane.json",
    "control-plane.lock",
    "controller-manager.kubeconfig",
    "environment.json",
    "etcd",
    KUBECONFIG_FILE,
    "logs",
    "pki",
    "ray-cluster.json",
    "ray-cluster.lock",
    "tokens.csv",
)

DEFAULT_RAY = RayClusterConfig(nodes=(RayClassNode("large", slots=8), RayClassNode("small", slots=16)))


@dataclass(frozen=True)
class DevConfig:
    """What environment to bring up."""

    state_dir: Path = DEFAULT_STATE_DIR
    kubeconfig: Path | None = None
    """An existing cluster to use instead of a control plane of our own."""
    api_server_port: int | None = None
    """The API server's port on 127.0.0.1; None takes a free one."""
    ray: RayClusterConfig = DEFAULT_RAY


@dataclass(frozen=True)
class DevEnvironment:
    """An environment that `dev_up` brought up."""

    state_dir: Path
    kubeconfig: Path
    """Kubernetes for the operator and for kubectl, as administrator."""
    control_plane: ControlPlane | None
    """None when an existing cluster is used."""
    ray: RayCluster


@dataclass(frozen=True)
class ComponentStatus:
    """One program or Ray node."""

    name: str
    healthy: bool
    detail: str
    """`ok`, or what is wrong with it."""


@dataclass(frozen=True)
class DevStatus:
    """What runs of an environment; `environment` is None if none was ever brought up there."""

    environment: DevEnvironment | None
    components: tuple[ComponentStatus, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is an environment and all of it works."""
        return self.environment is not None and all(component.healthy for component in self.components)


def dev_up(config: DevConfig, report: Report, *, environment: Mapping[str, str] = environ) -> DevEnvironment:
    """Bring up Kubernetes and Ray; what runs already is left as it is.

    The first time, Kubernetes may have to be downloaded or built (minutes, see `binaries`). Raises
    DevError if a part does not come up; what this call had started is stopped then.
    """
    state_dir = config.state_dir.absolute()
    if environment.get("KUBECONFIG") == str(state_dir / KUBECONFIG_FILE):
        # Set by somebody who looks at this very environment: no other cluster is meant.
        environment = {name: value for name, value in environment.items() if name != "KUBECONFIG"}
    kubernetes = find_kubernetes(report=report, kubeconfig=config.kubeconfig, environment=environment)
    plane: ControlPlane | None = None
    was_running = False
    if isinstance(kubernetes, ExistingCluster):
        if (ours := load_control_plane(state_dir)) is not None and ours.is_running():
            raise DevError(f"a control plane of our own runs in {state_dir}; stop it first: partita dev down")
        kubeconfig = kubernetes.kubeconfig.absolute()
    else:
        earlier = load_control_plane(state_dir)
        was_running = earlier is not None and earlier.is_running()
        plane = start_control_plane(
            state_dir, binaries=kubernetes, report=report, api_server_port=config.api_server_port
        )
        kubeconfig = plane.kubeconfig
    try:
        ray = start_ray_cluster(state_dir, config.ray, report=report)
    except BaseException:
        if plane is not None and not was_running:
            plane.stop()
        raise
    write_json(_record(state_dir), {"kubeconfig": str(kubeconfig), "own_control_plane": plane is not None})
    return DevEnvironment(state_dir, kubeconfig, plane, ray)


def load_dev_environment(state_dir: Path) -> DevEnvironment | None:
    """The environment last brought up in `state_dir`, running or not; None if there never was one."""
    state_dir = state_dir.absolute()
    record = read_json(_record(state_dir))
    ray = load_ray_cluster(state_dir)
    if record is None or ray is None:
        return None
    plane = load_control_plane(state_dir) if record["own_control_plane"] else None
    return DevEnvironment(state_dir, Path(record["kubeconfig"]), plane, ray)


def dev_status(state_dir: Path = DEFAULT_STATE_DIR) -> DevStatus:
    """What runs of the environment in `state_dir`, and how it does."""
    environment = load_dev_environment(state_dir)
    if environment is None:
        return DevStatus(None, ())
    components: list[ComponentStatus] = []
    if environment.control_plane is not None:
        for name, answer in environment.control_plane.health().items():
            components.append(ComponentStatus(name, answer == "ok", answer))
    components += [
        ComponentStatus(f"ray {name}", answer == "ok", answer) for name, answer in environment.ray.health().items()
    ]
    return DevStatus(environment, tuple(components))


def dev_down(state_dir: Path, report: Report, *, delete_data: bool = False) -> None:
    """Stop whatever `dev_up` started in `state_dir`; an existing cluster is left alone.

    Does nothing when nothing runs. The control plane's data stays for the next `dev_up` unless
    `delete_data`, which removes all that `dev_up` wrote there, and the directory if that leaves it empty.
    """
    state_dir = state_dir.absolute()
    if (ray := load_ray_cluster(state_dir)) is not None:
        report("stopping Ray")
        ray.stop()
    if (plane := load_control_plane(state_dir)) is not None:
        report("stopping Kubernetes")
        plane.stop()
    if delete_data:
        report(f"deleting the data in {state_dir}")
        for name in _OURS:
            path = state_dir / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if state_dir.exists() and not any(state_dir.iterdir()):
            state_dir.rmdir()


def _record(state_dir: Path) -> Path:
    return state_dir / "environment.json"
