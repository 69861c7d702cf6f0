"""What is recorded about a Ray cluster in its state directory, in `ray-cluster.json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from partita_devtools.machine.files import read_json, write_json
from partita_devtools.machine.processes import ProcessIdentity
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


@dataclass(frozen=True)
class RayClusterState:
    """A Ray cluster as it was last started; `nodes` is by name, the head first."""

    cluster_id: str
    token: str
    temp_dir: Path
    ports: HeadPorts
    config: RayClusterConfig
    nodes: dict[str, StartedRayNode]
    dies_with_parent: bool

    def write(self, state_dir: Path) -> None:
        """Record it in a state directory."""
        write_json(state_dir / _FILE, {**asdict(self), "temp_dir": str(self.temp_dir)})

    @classmethod
    def read(cls, state_dir: Path) -> RayClusterState | None:
        """The record in a state directory; None if no Ray cluster was ever started there."""
        document = read_json(state_dir / _FILE)
        if document is None:
            return None
        config = document["config"]
        return cls(
            cluster_id=document["cluster_id"],
            token=document["token"],
            temp_dir=Path(document["temp_dir"]),
            ports=HeadPorts(**document["ports"]),
            config=RayClusterConfig(**{**config, "nodes": tuple(map(_class_node, config["nodes"]))}),
            nodes={name: _node(node) for name, node in document["nodes"].items()},
            dies_with_parent=document["dies_with_parent"],
        )

    def roots(self) -> list[ProcessIdentity]:
        """The first process of each node."""
        return [node.process for node in self.nodes.values() if node.process is not None]


def _node(document: dict[str, Any]) -> StartedRayNode:
    pool, process = document["pool"], document["process"]
    return StartedRayNode(
        pool=None if pool is None else _class_node(pool),
        ports=NodePorts(**document["ports"]),
        process=None if process is None else ProcessIdentity(**process),
    )


def _class_node(document: dict[str, Any]) -> RayClassNode:
    """A node as it was before it became JSON, which has no tuples."""
    return RayClassNode(**{**document, "model_packages": tuple(document.get("model_packages", ()))})
