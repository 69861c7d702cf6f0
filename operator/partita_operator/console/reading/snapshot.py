"""What is known of the cluster at one moment, how old it is, and what may not be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from partita_operator.reconcile.capacity.cluster import Cluster


class Part(StrEnum):
    """What the console reads."""

    POOLS = "pools"
    SESSIONS = "sessions"
    PLANS = "plans"
    EVENTS = "events"


@dataclass(frozen=True)
class ClusterSnapshot:
    """All that the pages show, except for events."""

    cluster: Cluster = field(default_factory=Cluster)
    namespace: str = ""
    """The only namespace whose sessions are read; empty for all."""
    narrowed: bool = False
    """Whether only this namespace is read because the user may not list sessions of all namespaces."""
    seen_at: datetime | None = None
    """When the API server last answered, so that the objects are those of this time; None before all are read."""
    problem: str = ""
    """Why the objects may be older than now, and what to do; empty if they are not."""
    refused: Mapping[Part, str] = field(default_factory=dict)
    """What the user may not read, with the API server's words."""


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
