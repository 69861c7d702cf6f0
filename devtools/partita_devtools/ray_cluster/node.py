"""Runs `ray start` for one node, whose workers a fork server starts: `python -m partita_devtools.ray_cluster.node`."""

import os
import sys
from pathlib import Path

from partita_devtools.ray_cluster.commands import NODE_DIRECTORY, NODE_PACKAGES
from partita_devtools.ray_cluster.fork_server import start_fork_server


def main() -> None:
    """Take the arguments of the command `ray`."""
    packages = filter(None, os.environ[NODE_PACKAGES].split(","))
    directory = Path(os.environ[NODE_DIRECTORY])
    directory.mkdir(parents=True, exist_ok=True)
    program = start_fork_server(directory, tuple(packages))
    sys.executable = str(program)

    from ray.scripts.scripts import main as ray

    ray()


if __name__ == "__main__":
    main()
