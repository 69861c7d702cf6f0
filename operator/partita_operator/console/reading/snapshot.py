"""What is known of the cluster at one moment, how old it is, and what may not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from partita_operator.reconcile.capacity.cluster import Cluster


@dataclass(frozen=True)
class ClusterSnapshot:
    """All that the pages show, except for events."""

    cluster: Cluster = field(default_factory=Cluster)
    namespaces: tuple[str, ...] = ()
    """The only namespaces whose sessions are read; empty for all."""
    narrowed: bool = False
    """Whether only these are read because the user may not list sessions of all namespaces."""
    seen_at: datetime | None = None
    """When the API server last answered, so that the objects are those of this time; None before all are read."""
    problem: str = ""
    """Why the objects may be older than now, and what to do; empty if they are not."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What the user may not read, such as `plans of namespace team-a`, with the API server's words."""

    def shows_all(self, kind: str) -> bool:
        """Whether the user may read all objects of a kind, such as `plans`, and they have been read."""
        return self.seen_at is not None and not any(what.partition(" ")[0] == kind for what in self.refused)


@dataclass(frozen=True)
class EventLine:
    """One Kubernetes event."""

    at: str
    """When it happened last, as the API server writes it."""
    type: str
    reason: str
    message: str
    count: int


@dataclass(frozen=True)
class ObjectEvents:
    """The events of one object, newest first."""

    lines: tuple[EventLine, ...] = ()
    problem: str = ""
    """Why they cannot be read now; `lines` are then those known before."""
