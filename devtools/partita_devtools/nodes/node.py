"""What a node is, and where everything of it lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"


@dataclass(frozen=True)
class NodeSpec:
    """A node to be: its name, the GPUs it claims to have, and how much of the CPU its pods get together."""

    name: str
    product: str = ""
    """As GPU Feature Discovery names it, such as `NVIDIA-L4`; empty: the node has no GPU."""
    gpus: int = 0
    cpus: float | None = None
    """What makes one class slower than another in earnest; None: no limit."""

    @property
    def labels(self) -> dict[str, str]:
        """What GPU Feature Discovery would say of it."""
        return {PRODUCT_LABEL: self.product, COUNT_LABEL: str(self.gpus)} if self.product else {}


@dataclass(frozen=True)
class Node:
    """One node of a cluster: its specification, its place among the others (from 1), and its directory."""

    spec: NodeSpec
    number: int
    directory: Path

    @property
    def name(self) -> str:
        """Its name in Kubernetes."""
        return self.spec.name

    @property
    def bridge(self) -> str:
        """The network device that its pods are connected to."""
        return f"partita{self.number}"

    @property
    def address(self) -> str:
        """The node's address, which is that of its bridge."""
        return f"10.78.{self.number}.1"

    @property
    def pod_range(self) -> str:
        """The addresses of its pods."""
        return f"10.78.{self.number}.0/24"

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.directory / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """The control group of all its pods, below each hierarchy's root."""
        return f"/partita/{self.name}"
