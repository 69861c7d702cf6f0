"""Accelerators of nodes that take no new pods, because the nodes are about to go or are cordoned."""

from pydantic import Field

from partita_api.meta import StatusModel


class UnschedulableStatus(StatusModel):
    """Accelerators of ready nodes that take no new pods."""

    departing: int = Field(default=0, description="Accelerators of departing nodes. They are not in capacity.")
    departing_nodes: tuple[str, ...] = Field(
        default=(),
        max_length=256,
        description="The departing nodes, by name: those with a deletion timestamp, or with a taint by which "
        "Karpenter, Cluster Autoscaler or the cloud says that the node is about to go.",
    )
    cordoned: int = Field(default=0, description="Accelerators of cordoned nodes that are not departing.")
    cordoned_nodes: tuple[str, ...] = Field(
        default=(), max_length=256, description="The cordoned nodes that are not departing, by name."
    )
    cordoned_in_use: int = Field(
        default=0,
        description="Those of them that plans use. They are in capacity; the others are not, until the nodes are "
        "uncordoned.",
    )

    @property
    def nodes(self) -> tuple[str, ...]:
        """The departing and the cordoned nodes."""
        return (*self.departing_nodes, *self.cordoned_nodes)

    @property
    def uncounted(self) -> int:
        """The accelerators that are not in capacity."""
        return self.departing + self.cordoned - self.cordoned_in_use
