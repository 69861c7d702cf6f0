"""What is recorded about a Ray cluster in its state directory, in `ray-cluster.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from partita_devtools.machine.files import read_record, write_record
from partita_devtools.machine.processes import ProcessIdentity, is_running
from partita_devtools.ray_cluster.commands import HeadPorts, NodePorts, RayClassNode, RayClusterConfig

_FILE = "ray-cluster.json"


@dataclass(frozen=True)
class StartedRayNode:
    """One Ray node as it was last started."""

    pool: RayClassNode | None
    """None: the head."""
    ports: NodePorts
    process: ProcessIdentity | None
    """None: not started yet."""

    @property
    def runs(self) -> bool:
        """Whether its first process runs."""
        return self.process is not None and is_running(self.process)


@dataclass(frozen=True)
class RayClusterState:
    """A Ray cluster as it was last started; `nodes` is by name, the head first."""

    token: str
    temp_dir: Path
    ports: HeadPorts
    config: RayClusterConfig
    nodes: dict[str, StartedRayNode]
    dies_with_parent: bool

    def write(self, state_dir: Path) -> None:
        """Record it in a state directory."""
        write_record(state_dir / _FILE, self)

    @classmethod
    def read(cls, state_dir: Path) -> RayClusterState | None:
        """The record in a state directory; None if no Ray cluster was ever started there. Raises DevError."""
        return read_record(state_dir / _FILE, cls)

    def roots(self) -> list[ProcessIdentity]:
        """The first process of each node."""
        return [node.process for node in self.nodes.values() if node.process is not None]
