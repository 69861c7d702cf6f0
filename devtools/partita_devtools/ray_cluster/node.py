"""Runs `ray start` for one node, whose workers a fork server starts: `python -m partita_devtools.ray_cluster.node`."""

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

    _wait_longer_for_the_node()
    ray()


def no_client_server(ray_params: Any, head: bool) -> None:
    """Start no server for Ray's client protocol: nothing uses it, and it ends the head if that is slow to join.

    Ray calls this by the name in `RAY_START_HOOK` before it starts a node.
    """
    if head:
        ray_params.ray_client_server_port = None


def _wait_longer_for_the_node() -> None:
    """Have `ray start` wait `JOIN_TIMEOUT_S` for its node to join, not the 30 s that are fixed in its source.

    Where several programs share few cores, it can take longer. A node whose raylet has ended does not join any more.
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
                if time.monotonic() > deadline or _a_child_has_ended():
                    raise
            time.sleep(0.2)

    services.get_node = get_joined_node


def _a_child_has_ended() -> bool:
    return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    main()
