"""How the GPUs of a pool's nodes are cut into MIG slices, as desired and as observed."""

from typing import Annotated, ClassVar

from pydantic import Field

from partita_api.fields.approval import Approval
from partita_api.meta import Rule, SpecModel, StatusModel, Timestamp

MAX_GPUS_PER_NODE = 16

SliceProfile = Annotated[str, Field(max_length=32)]


class MigGpus(SpecModel):
    """GPUs of one node that are cut alike."""

    count: int = Field(ge=1, le=MAX_GPUS_PER_NODE, description="GPUs of the node with these slices.")
    slices: dict[SliceProfile, Annotated[int, Field(ge=1, le=16)]] = Field(
        min_length=1, max_length=16, description="Instances on each of these GPUs by MIG profile, such as 1g.10gb: 7."
    )


class MigNodes(SpecModel):
    """Nodes that are cut alike."""

    nodes: int = Field(ge=1, le=10_000, description="Nodes of the pool with this layout.")
    gpus: tuple[MigGpus, ...] = Field(
        min_length=1,
        max_length=MAX_GPUS_PER_NODE,
        description="GPUs of such a node in the order of their index. The other GPUs stay whole.",
    )

    @property
    def cut(self) -> int:
        """GPUs of such a node that are cut."""
        return sum(gpus.count for gpus in self.gpus)


class MigPartitioning(SpecModel):
    """The desired MIG slices of the GPUs of the pool's nodes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "a layout cuts more GPUs of a node than mig.gpusPerNode; correct one of them",
            lambda spec: all(layout.cut <= spec.gpus_per_node for layout in spec.layouts),
            "self.layouts.all(layout, layout.gpus.map(gpus, gpus.count).sum() <= self.gpusPerNode)",
        ),
    )

    product: str = Field(
        max_length=63,
        description="The GPU, such as H100-80GB: one that `partita mig` knows, or one of the chart's mig.products.",
    )
    gpus_per_node: int = Field(default=8, ge=1, le=MAX_GPUS_PER_NODE, description="GPUs in each node.")
    layouts: tuple[MigNodes, ...] = Field(
        min_length=1,
        max_length=16,
        description="Layouts and how many nodes have each. Other nodes do not change.",
    )
    approval: Approval = Field(
        default=Approval.MANUAL,
        description="Manual: nothing is cut until `partita approve gpool/NAME`, or the annotation "
        "partita.dev/approved-plan, names the change in status.partitioning. Automatic: nodes are cut at "
        "once.",
    )
    max_unavailable: int = Field(default=1, ge=1, le=1000, description="Most nodes that are drained and cut at a time.")
    drain_seconds: int = Field(
        default=600,
        ge=0,
        le=86_400,
        description="Seconds after which replicas are evicted even if other nodes have no free accelerators for them.",
    )


class NodeChange(StatusModel):
    """A node that is being cut."""

    node: str = Field(max_length=253, description="The node.")
    config: str = Field(max_length=63, description="Its new mig-parted configuration.")
    phase: str = Field(max_length=32, description="Draining, Cutting, Cut or Failed.")
    last_transition_time: Timestamp = Field(description="When `phase` last changed.")


class PartitioningStatus(StatusModel):
    """How far the pool's nodes are cut."""

    change: str = Field(
        default="", max_length=63, description="Name of the change that spec.mig requests. An approval names it."
    )
    approved: bool = Field(default=False, description="Whether the change is approved.")
    configs_published_time: Timestamp | None = Field(
        default=None,
        description="When the configurations were written to mig-manager's ConfigMap.",
    )
    desired_nodes: int = Field(default=0, description="Nodes that spec.mig requests.")
    ready_nodes: int = Field(default=0, description="Nodes that are cut as requested and offer their slices.")
    waiting_nodes: tuple[str, ...] = Field(default=(), max_length=64, description="Nodes that wait to be drained.")
    changes: tuple[NodeChange, ...] = Field(
        default=(), max_length=64, description="Nodes that are being drained or cut, and those that failed."
    )
