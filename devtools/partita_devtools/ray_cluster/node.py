"""Runs `ray start` for one node, whose workers a fork server starts: `python -m partita_devtools.ray_cluster.node`."""

import inspect
import os
import sys
import time
from pathlib import Path
from typing import Any

from partita_devtools.ray_cluster.commands import JOIN_TIMEOUT_S, NODE_DIRECTORY, NODE_PACKAGES
from partita_devtools.ray_cluster.fork_server import start_fork_server


def main() -> None:
    """Take the arguments of the command `ray`."""
    packages = filter(None, os.environ[NODE_PACKAGES].split(","))
    directory = Path(os.environ[NODE_DIRECTORY])
    directory.mkdir(parents=True, exist_ok=True)
    program = start_fork_server(directory, tuple(packages))
    sys.executable = str(program)

    from ray.scripts.scripts import main as ray

    _tell_the_raylet_the_port_of_its_agent()
    _wait_longer_for_the_node()
    ray()


def no_client_server(ray_params: Any, head: bool) -> None:
    """Start no server for Ray's client protocol: nothing uses it, and it ends the head if that is slow to join.

    Ray calls this by the name in `RAY_START_HOOK` before it starts a node.
    """
    if head:
        ray_params.ray_client_server_port = None


class NodeEndedError(Exception):
    """One of the node's processes has ended, so the node does not join."""


def _tell_the_raylet_the_port_of_its_agent() -> None:
    """Write the agent's HTTP port, which is given, where the raylet waits for the agent to write it.

    The raylet crashes if that takes more than 15 s (https://github.com/ray-project/ray/issues/65983). Where several
    programs share few cores, the agent can take longer to import its packages. Its other ports are options of the
    raylet.
    """
    from ray._private import services
    from ray._raylet import DASHBOARD_AGENT_LISTEN_PORT_NAME, persist_port  # type: ignore[attr-defined]

    start_raylet = services.start_raylet

    def start(*args: Any, **options: Any) -> Any:
        given = inspect.signature(start_raylet).bind(*args, **options).arguments
        port = given["dashboard_agent_listen_port"]
        persist_port(given["session_dir"], given["node_id"], DASHBOARD_AGENT_LISTEN_PORT_NAME, port)
        return start_raylet(*args, **options)

    services.start_raylet = start


def _wait_longer_for_the_node() -> None:
    """Have `ray start` wait `JOIN_TIMEOUT_S` for its node to join, not the 30 s that are fixed in its source.

    A node one of whose processes has ended does not join any more.
    """
    from ray._private import services
    from ray.exceptions import RaySystemError

    get_node = services.get_node

    def get_joined_node(gcs_address: str, node_id: str) -> Any:
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while True:
            try:
                return get_node(gcs_address, node_id)
            except (RuntimeError, RaySystemError):  # not joined yet, or the control service does not answer
                if time.monotonic() > deadline:
                    raise
            if ended := _ended_child():
                raise NodeEndedError(ended)
            time.sleep(0.2)

    services.get_node = get_joined_node


def _ended_child() -> str | None:
    """Which child process has ended, and how; None if all run."""
    child = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if child is None:
        return None
    name = Path(f"/proc/{child.si_pid}/comm").read_text().strip()
    return f"{name} (process {child.si_pid}) ended with status {child.si_status}"


if __name__ == "__main__":
    main()
