"""What the reconcilers see of the world, gathered anew for every pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile
from partita_operator.ports import ProfileRun, ServingSignals, ServingStatus
from partita_operator.reconcile.capacity.ledger import NO_PLANS, Ledger, Plans, owner_of
from partita_operator.settings.model import OperatorSettings
from partita_planner.mig.parted import Entries
from partita_planner.problem import Outcome
from partita_runtime.autoscaling.load_level import RateHistory


@dataclass(frozen=True)
class Search:
    """The last search for a plan of a session."""

    key: str
    """Digest of what was asked."""
    outcome: Outcome | None = None
    """The answer; None while the search runs."""
    finished: datetime | None = None


@dataclass(frozen=True)
class Cluster:
    """Partita's objects in the whole cluster."""

    pools: Mapping[str, GPUPool] = field(default_factory=dict)
    sessions: Mapping[str, InferenceSession] = field(default_factory=dict)
    """By namespace/name."""
    plans: Mapping[str, PipelinePlan] = field(default_factory=dict)
    """By namespace/name."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Sessions (namespace/name) and pools (name) whose spec cannot be used, and why. They are in `sessions` and
    `pools` with their true metadata and status; a session's spec is then that of its plan in force."""

    before: Ledger = field(default_factory=Ledger, repr=False, compare=False)
    """The ledger of an earlier state, from which this one's is made."""

    def plans_of(self, session: InferenceSession) -> Plans:
        """The session's own plans by name; not those of an earlier session of the same name."""
        return self.ledger.owned.get(owner_of(session), NO_PLANS)

    @cached_property
    def ledger(self) -> Ledger:
        """Who has which accelerators, and which plans."""
        return self.before.after(self.sessions, self.plans)


@dataclass(frozen=True)
class SessionWorld:
    """What is observed around one session."""

    session: InferenceSession
    cluster: Cluster
    """All objects, the session itself included."""
    settings: OperatorSettings
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Those profiles of the session's namespace that it wants or its plans were made from, by content key."""
    runs: Mapping[tuple[str, int], ProfileRun] = field(default_factory=dict)
    """Profiling runs by key and attempt."""
    serving: ServingStatus | None = field(default_factory=ServingStatus)
    """What the engine runs; None if it cannot be reached."""
    has_applications: bool = False
    """Whether the engine still has applications of the session, ready or not; looked up for deleted sessions."""
    signals: ServingSignals | None = None
    rates: RateHistory = field(default_factory=RateHistory)
    search: Search | None = None
    problem: str = ""
    """What the engine or the last pass's actions failed with."""

    @property
    def plans(self) -> Plans:
        """The session's plans by name."""
        return self.cluster.plans_of(self.session)


@dataclass(frozen=True)
class Node:
    """One Kubernetes node."""

    name: str
    ready: bool
    allocatable: Mapping[str, int]
    """Whole units of its extended resources."""
    labels: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""


@dataclass(frozen=True)
class PartitionerWorld:
    """What is observed of whoever cuts the GPUs of a pool's nodes."""

    published: Mapping[str, Entries] | None = None
    """The configurations that it knows, by name; None if they cannot be read, or are somebody else's."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Pods of Partita's with accelerators, by node, of those nodes that are being drained."""
    problem: str = ""
    """Why the configurations cannot be read, or what the last steps failed with."""


@dataclass(frozen=True)
class PoolWorld:
    """What is observed around one pool."""

    pool: GPUPool
    cluster: Cluster
    settings: OperatorSettings
    nodes: tuple[Node, ...] = ()
    """The nodes that the pool's selector matches."""
    engine_capacity: Mapping[str, float] | None = None
    """Units of each custom resource of the operator's own engine; None if it cannot be reached."""
    problem: str = ""
    """Why the engine cannot be reached."""
    partitioner: PartitionerWorld = field(default_factory=PartitionerWorld)
