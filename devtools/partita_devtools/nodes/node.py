"""A node: its specification, and the names and paths that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GPU_RESOURCE = "nvidia.com/gpu"
PRODUCT_LABEL = "nvidia.com/gpu.product"
COUNT_LABEL = "nvidia.com/gpu.count"


@dataclass(frozen=True)
class NodeSpec:
    """The specification of a node: its name, its declared GPUs, and the CPUs that its pods share."""

    name: str
    product: str = ""
    """GPU product as in GPU Feature Discovery, such as `NVIDIA-L4`; empty: no GPU."""
    gpus: int = 0
    cpus: float | None = None
    """CPU limit of all pods together, which makes classes differently fast; None: no limit."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that GPU Feature Discovery would set."""
        return {PRODUCT_LABEL: self.product, COUNT_LABEL: str(self.gpus)} if self.product else {}


@dataclass(frozen=True)
class DevNode:
    """One node of a cluster: its specification, its number (from 1), and its directory."""

    spec: NodeSpec
    number: int
    directory: Path

    @property
    def name(self) -> str:
        """Its name in Kubernetes."""
        return self.spec.name

    @property
    def bridge(self) -> str:
        """The network bridge of its pods."""
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
        """The socket of its containerd."""
        return self.directory / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """The control group of all its pods, below each hierarchy's root."""
        return f"/partita/{self.name}"
