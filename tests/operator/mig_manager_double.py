"""Simulates NVIDIA's mig-manager, device plugin and GPU Feature Discovery: reads and writes a node's labels.

Like the real one, it acts only when the value of nvidia.com/mig.config changes. An unknown configuration fails.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from partita_operator.reconcile.pool.gpu_labels import MIG_CONFIG, MIG_STATE
from partita_operator.reconcile.world import Node
from partita_planner.mig.mig_parted import Entries


@dataclass
class MigManagerDouble:
    """mig-manager on all nodes."""

    takes: int = 2
    """Passes for which a node stays pending."""
    fails: set[str] = field(default_factory=set)
    """Nodes whose GPUs cannot be cut."""
    reboots: set[str] = field(default_factory=set)
    """Nodes that reboot before they are cut."""
    _seen: dict[str, str] = field(default_factory=dict)
    _left: dict[str, int] = field(default_factory=dict)

    def restart(self, node: str) -> None:
        """A new pod of mig-manager on the node applies its label again."""
        self._seen.pop(node, None)

    def look(self, node: Node, configurations: Mapping[str, Entries]) -> Node:
        """The node after one pass of mig-manager."""
        name, config = node.name, node.labels.get(MIG_CONFIG, "")
        if config and self._seen.get(name) != config:
            self._seen[name] = config
            self._left[name] = self.takes
            if config in configurations:
                return node  # the state changes after a moment
            self._left.pop(name)
            return _labelled(node, "failed")
        if name not in self._left:
            return node
        self._left[name] -= 1
        if self._left[name] > 0:
            return _labelled(node, "rebooting" if name in self.reboots else "pending")
        del self._left[name]
        if name in self.fails:
            return _labelled(node, "failed")
        return replace(_labelled(node, "success"), allocatable=offered(configurations[config], node))


def offered(entries: Entries, node: Node) -> dict[str, int]:
    """Resources that the device plugin offers under MIG strategy mixed."""
    gpus = int(node.labels.get("nvidia.com/gpu.count", "1"))
    units: Counter[str] = Counter()
    for entry in entries:
        devices = range(gpus) if entry["devices"] == "all" else entry["devices"]
        if not entry["mig-enabled"]:
            units["nvidia.com/gpu"] += len(devices)
        for profile, count in entry.get("mig-devices", {}).items():
            units[f"nvidia.com/mig-{profile.replace('+', '.')}"] += count * len(devices)
    return dict(units)


def _labelled(node: Node, state: str) -> Node:
    return replace(node, labels={**node.labels, MIG_STATE: state})
