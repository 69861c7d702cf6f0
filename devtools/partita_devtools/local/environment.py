"""The processes of local mode: which Ray nodes the pools need, and how to reach what runs."""

import shlex
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from os import pathsep
from pathlib import Path
from typing import Final

from partita_api.gpupool import GPUPool
from partita_devtools.api_server.disk import ObjectFiles
from partita_devtools.environment import (
    DEFAULT_RAY,
    LOCAL_LOCK,
    ApiServerChoice,
    DevConfig,
    DevEnvironment,
    dev_up,
    load_dev_environment,
)
from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report
from partita_devtools.machine.files import locked
from partita_devtools.ray_cluster.commands import RayClassNode
from partita_operator.kube.resources import read_pool

DEFAULT_STATE_DIR: Final = Path(".partita/local")


def local_command(name: str, state_dir: Path, *arguments: str) -> str:
    """A `partita local` command for the same state directory, for a shell."""
    place = [] if state_dir.absolute() == DEFAULT_STATE_DIR.absolute() else ["--state-dir", str(state_dir)]
    return shlex.join(["partita", "local", name, *arguments, *place])


def up_command(state_dir: Path) -> str:
    """The command that starts local mode again, with the folders of the models that it had."""
    earlier = load_dev_environment(state_dir)
    recorded = "" if earlier is None else earlier.ray.config.environment.get("PYTHONPATH", "")
    folders = [folder for folder in recorded.split(pathsep) if folder and Path(folder) != Path.cwd()]
    return local_command("up", state_dir, *(word for folder in folders for word in ("--python-path", folder)))


def local_up(
    state_dir: Path,
    pools: Iterable[GPUPool],
    python_path: Iterable[Path],
    report: Report,
    undo: ExitStack | None = None,
) -> DevEnvironment:
    """Start the embedded API server, and Ray with a node for each pool, given or stored; idempotent.

    Models are imported from `python_path`. `undo` receives what stops the components that this call starts. Raises
    DevError.
    """
    with _one_at_a_time(state_dir, report):
        desired = {pool.metadata.name: RayClassNode.of_pool(pool) for pool in (*_stored_pools(state_dir), *pools)}
        variables = {"PYTHONPATH": pathsep.join(str(path.absolute()) for path in python_path)}
        ray = replace(DEFAULT_RAY, nodes=tuple(desired.values()), environment=variables)
        running = load_dev_environment(state_dir)
        if running is not None and running.ray.is_running():
            if running.ray.config.environment != variables:
                raise DevError(
                    f"local mode runs with models from {running.ray.config.environment.get('PYTHONPATH')}; "
                    f"stop it first: {local_command('down', state_dir)}"
                )
            _add_pools(running, pools, state_dir, report)
            ray = running.ray.config
        return dev_up(DevConfig(state_dir, ApiServerChoice.EMBEDDED, ray=ray), report, undo=undo)


def add_pools(environment: DevEnvironment, pools: Iterable[GPUPool], state_dir: Path, report: Report) -> None:
    """Start a Ray node for each pool that has none. Raises DevError for a pool whose node has another size."""
    with _one_at_a_time(state_dir, report):
        _add_pools(environment, pools, state_dir, report)


def _one_at_a_time(state_dir: Path, report: Report) -> AbstractContextManager[None]:
    """Commands that change the processes of one state directory wait for each other."""
    return locked(state_dir.absolute() / LOCAL_LOCK, report=report, purpose="start local mode")


def _add_pools(environment: DevEnvironment, pools: Iterable[GPUPool], state_dir: Path, report: Report) -> None:
    present = {node.name: node for node in environment.ray.config.nodes}
    missing = []
    for node in map(RayClassNode.of_pool, pools):
        if node.name not in present:
            missing.append(node)
        elif present[node.name].slots != node.slots:
            raise DevError(
                f"pool {node.name} has {present[node.name].slots:g} accelerators here, and its manifest has "
                f"{node.slots:g}. A running Ray node cannot change: {local_command('down', state_dir)}, then "
                f"{local_command('up', state_dir, '-f', 'MANIFESTS')}"
            )
    environment.ray.add_nodes(missing, report)


def running_environment(state_dir: Path) -> DevEnvironment:
    """The environment of local mode. Raises DevError if its API server does not run."""
    found = load_dev_environment(state_dir)
    if found is None or found.api_server is None or not found.api_server.is_running():
        raise DevError(f"local mode does not run in {state_dir}; start it: {up_command(state_dir)}")
    return found


def require_ray(environment: DevEnvironment, state_dir: Path) -> None:
    """Raises DevError, with the command that starts Ray, if it or one of its nodes does not run."""
    if not environment.ray.is_running():
        raise DevError(f"Ray does not run in {state_dir}; start it: {up_command(state_dir)}")


def _stored_pools(state_dir: Path) -> list[GPUPool]:
    """The pools of an earlier run. Raises DevError for a file without a complete object."""
    files = ObjectFiles(state_dir.absolute() / "objects")
    return [read_pool(document)[0] for place, document in files.load() if place[1] == "gpupools"]
