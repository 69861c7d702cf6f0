"""The development environment: what `partita dev up`, `down` and `status` do.

An API server and Ray run in the background until `dev_down`. `environment.json` in the state directory records which
API server it is: a control plane of this environment, the embedded one, or that of an existing cluster.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from os import environ
from pathlib import Path

from partita_devtools.api_server.process import EmbeddedApiServer, load_api_server, start_api_server
from partita_devtools.control_plane.binaries import ExistingCluster, find_kubernetes, is_at_hand
from partita_devtools.control_plane.lifecycle import ControlPlane, load_control_plane, start_control_plane
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import read_record, write_record
from partita_devtools.machine.ports import require_loopback
from partita_devtools.machine.programs import LoggedProgram
from partita_devtools.ray_cluster.cluster import RayCluster, load_ray_cluster, start_ray_cluster
from partita_devtools.ray_cluster.commands import RayClassNode, RayClusterConfig

DEFAULT_STATE_DIR = Path(".partita/dev")
KUBECONFIG_FILE = "kubeconfig"
LOCAL_LOCK = "local.lock"
# Everything that is written into a state directory. `dev_down` deletes nothing else there.
_FILES = (
    "api-server.json",
    "api-server.lock",
    "admission.json",
    "control-plane.json",
    "control-plane.lock",
    "controller-manager.kubeconfig",
    "environment.json",
    "etcd",
    KUBECONFIG_FILE,
    LOCAL_LOCK,
    "logs",
    "objects",
    "operator.lock",
    "pki",
    "ray-cluster.json",
    "ray-cluster.lock",
    "tokens.csv",
)

DEFAULT_RAY = RayClusterConfig(
    nodes=(RayClassNode("large", slots=8, real_models=True), RayClassNode("small", slots=16, real_models=True))
)


class ApiServerChoice(StrEnum):
    """Which API server an environment has."""

    KUBERNETES = "kubernetes"
    """That of an existing cluster, else a new control plane, which is downloaded or built the first time."""
    EMBEDDED = "embedded"
    """One process, whose objects are files; only Partita's kinds."""
    AT_HAND = "at-hand"
    """Kubernetes, if a kubeconfig names a cluster or the programs are on this machine; else the embedded one."""


@dataclass(frozen=True)
class DevConfig:
    """What environment to bring up."""

    state_dir: Path = DEFAULT_STATE_DIR
    api_server: ApiServerChoice = ApiServerChoice.KUBERNETES
    kubeconfig: Path | None = None
    """An existing cluster to use instead of a new control plane."""
    api_server_port: int | None = None
    """The API server's port on 127.0.0.1; None: a free one."""
    ray: RayClusterConfig = DEFAULT_RAY


@dataclass(frozen=True)
class DevEnvironment:
    """An environment that `dev_up` brought up."""

    state_dir: Path
    kubeconfig: Path
    """Administrator's kubeconfig, for the operator and kubectl."""
    control_plane: ControlPlane | None
    """None when an existing cluster or the embedded API server is used."""
    ray: RayCluster
    api_server: EmbeddedApiServer | None = None
    """The embedded API server, if it is used."""

    def ended(self) -> list[LoggedProgram]:
        """The programs that do not run any more: those of the API server, then Ray's nodes."""
        return [
            *(self.control_plane.ended() if self.control_plane is not None else ()),
            *(self.api_server.ended() if self.api_server is not None else ()),
            *self.ray.ended(),
        ]


@dataclass(frozen=True)
class _EnvironmentRecord:
    """What is recorded about an environment."""

    kubeconfig: Path
    own_control_plane: bool
    embedded: bool = False


@dataclass(frozen=True)
class ComponentStatus:
    """One program or Ray node."""

    name: str
    healthy: bool
    detail: str
    """`ok`, or what is wrong."""


@dataclass(frozen=True)
class DevStatus:
    """The state of an environment; `environment` is None if none was ever started there."""

    environment: DevEnvironment | None
    components: tuple[ComponentStatus, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is an environment and all its components work."""
        return self.environment is not None and all(component.healthy for component in self.components)


def dev_up(
    config: DevConfig, report: Report, *, environment: Mapping[str, str] = environ, undo: ExitStack | None = None
) -> DevEnvironment:
    """Start an API server and Ray; components that run already stay as they are.

    The first time, Kubernetes is downloaded or built (minutes, see `binaries`). `undo` receives what stops the
    components that this call starts. Raises DevError if one does not start; they are stopped then.
    """
    require_loopback()
    state_dir = config.state_dir.absolute()
    if environment.get("KUBECONFIG") == str(state_dir / KUBECONFIG_FILE):
        # It points to this environment, not to another cluster.
        environment = {name: value for name, value in environment.items() if name != "KUBECONFIG"}
    with ExitStack() as started:
        found = _start_api_server(config, state_dir, report, environment, started)
        ray = start_ray_cluster(state_dir, config.ray, report=report, undo=started)
        record = _EnvironmentRecord(
            found.kubeconfig, own_control_plane=found.control_plane is not None, embedded=found.api_server is not None
        )
        write_record(_record(state_dir), record)
        kept = started.pop_all()
        if undo is not None:
            undo.callback(kept.close)
    return replace(found, ray=ray)


def _start_api_server(
    config: DevConfig, state_dir: Path, report: Report, environment: Mapping[str, str], started: ExitStack
) -> DevEnvironment:
    """The environment without its Ray nodes. Raises DevError if an API server of another kind runs here."""
    ray = RayCluster(state_dir)
    choice = config.api_server
    if choice is ApiServerChoice.AT_HAND:
        at_hand = is_at_hand(config.kubeconfig, environment)
        report(
            "using Kubernetes, which is at hand"
            if at_hand
            else "no cluster and no programs of Kubernetes are at hand: using the embedded API server"
        )
        choice = ApiServerChoice.KUBERNETES if at_hand else ApiServerChoice.EMBEDDED
    if choice is ApiServerChoice.EMBEDDED:
        if ControlPlane(state_dir).running_processes():
            raise DevError(f"a control plane runs in {state_dir}; stop it first: {_down(state_dir)}")
        server = start_api_server(state_dir, report=report, undo=started)
        return DevEnvironment(state_dir, server.kubeconfig, None, ray, server)
    if EmbeddedApiServer(state_dir).running_processes():
        raise DevError(f"an embedded API server runs in {state_dir}; stop it first: {_down(state_dir)}")
    kubernetes = find_kubernetes(report=report, kubeconfig=config.kubeconfig, environment=environment)
    if isinstance(kubernetes, ExistingCluster):
        if ControlPlane(state_dir).running_processes():
            raise DevError(
                f"a control plane of this environment runs in {state_dir}; stop it first: {_down(state_dir)}"
            )
        return DevEnvironment(state_dir, kubernetes.kubeconfig.absolute(), None, ray)
    plane = start_control_plane(
        state_dir, binaries=kubernetes, report=report, api_server_port=config.api_server_port, undo=started
    )
    return DevEnvironment(state_dir, plane.kubeconfig, plane, ray)


def _down(state_dir: Path) -> str:
    return shlex.join(["partita", "dev", "down", "--state-dir", str(state_dir)])


def load_dev_environment(state_dir: Path) -> DevEnvironment | None:
    """The environment last started in `state_dir`, running or not; None if there never was one."""
    state_dir = state_dir.absolute()
    record = read_record(_record(state_dir), _EnvironmentRecord)
    ray = load_ray_cluster(state_dir)
    if record is None or ray is None:
        return None
    plane = load_control_plane(state_dir) if record.own_control_plane else None
    server = load_api_server(state_dir) if record.embedded else None
    return DevEnvironment(state_dir, record.kubeconfig, plane, ray, server)


def dev_status(state_dir: Path = DEFAULT_STATE_DIR) -> DevStatus:
    """The state of the environment in `state_dir`."""
    environment = load_dev_environment(state_dir)
    if environment is None:
        return DevStatus(None, ())
    components: list[ComponentStatus] = []
    if environment.control_plane is not None:
        for name, answer in environment.control_plane.health().items():
            components.append(ComponentStatus(name, answer == "ok", answer))
    if environment.api_server is not None:
        answer = environment.api_server.health()
        components.append(ComponentStatus("api-server", answer == "ok", answer))
    components += [
        ComponentStatus(f"ray {name}", answer == "ok", answer) for name, answer in environment.ray.health().items()
    ]
    return DevStatus(environment, tuple(components))


def dev_down(state_dir: Path, report: Report, *, delete_data: bool = False) -> None:
    """Stop everything that `dev_up` started in `state_dir`, recorded or not; an existing cluster is not touched.

    The API server's objects stay for the next `dev_up`. With `delete_data`, all files of `dev_up` are deleted, and the
    directory if it is empty then.
    """
    state_dir = state_dir.absolute()
    for name, part in (
        ("Ray", RayCluster(state_dir)),
        ("the control plane", ControlPlane(state_dir)),
        ("the API server", EmbeddedApiServer(state_dir)),
    ):
        if part.running_processes():
            report(f"stopping {name}")
        part.stop()
    if delete_data:
        report(f"deleting the data in {state_dir}")
        for name in _FILES:
            path = state_dir / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if state_dir.exists() and not any(state_dir.iterdir()):
            state_dir.rmdir()


def _record(state_dir: Path) -> Path:
    return state_dir / "environment.json"
