"""The input of a pass: the observed state of one session or pool and of everything around it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.profile import Profile
from partita_api.quality import QualityResult
from partita_operator.ports import ProfileRun, ServingSignals, ServingStatus, SessionBackend
from partita_operator.reconcile.capacity.accounting import Availability, selected_pools
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.capacity.ledger import Plans
from partita_operator.reconcile.object_changes import ObjectName
from partita_operator.settings.model import OperatorSettings
from partita_planner.mig.mig_parted import Entries
from partita_planner.problem import Outcome
from partita_runtime.autoscaling.load_level import RateHistory
from partita_runtime.autoscaling.traffic import TrafficHistory
from partita_runtime.serving.deploy.public_keys import PublicKey


@dataclass(frozen=True)
class Search:
    """The last search for a plan of a session."""

    key: str
    """Digest of the question."""
    outcome: Outcome | None = None
    """The answer; None while the search runs."""
    finished: datetime | None = None


@dataclass(frozen=True)
class KindState:
    """Whether the objects of one kind can be used."""

    listed: bool = True
    """Whether all of them are known."""
    defined: bool = True
    """Whether the cluster has the kind."""
    problem: str = ""
    """Why they cannot be listed; empty if they can, or while they are listed for the first time."""


@dataclass(frozen=True)
class PublicWorld:
    """What the cluster has for the addresses of a session."""

    ingress_classes: frozenset[str] | None = None
    """Names of the IngressClasses; None if they are not known."""
    has_tls_secret: bool | None = None
    """Whether the Secret with the certificate exists; None if that is not known."""
    gateways: KindState = field(default_factory=lambda: KindState(listed=False))
    gateway: Mapping[str, Any] | None = None
    """The Gateway that spec.expose names; None if it does not exist."""
    has_dns: bool | None = None
    """Whether names of Services resolve in pods; None if that is not known."""


@dataclass(frozen=True)
class ExposureWorld:
    """The Kubernetes objects by which clients reach the session, as they are."""

    backend: SessionBackend | None = None
    """The pods of the session; None if Kubernetes does not know them."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """The objects that the session owns."""
    taken: frozenset[ObjectName] = frozenset()
    """Kinds and names that the session needs and that belong to somebody else."""
    problem: str = ""
    """Why objects could not be read, or the errors of the last writes."""
    kinds: Mapping[str, KindState] = field(default_factory=dict)
    """The kinds of objects that the operator may write."""
    public: PublicWorld = field(default_factory=PublicWorld)


@dataclass(frozen=True)
class IssuerKeys:
    """The public keys of an issuer of tokens."""

    keys: tuple[PublicKey, ...] = ()
    """The last ones that were read."""
    problem: str = ""
    """Why they cannot be read now; empty if they can."""


@dataclass(frozen=True)
class ClientsWorld:
    """What there is to authenticate the session's clients with."""

    keys: Mapping[str, bytes] | None = field(default=None, repr=False)
    """API keys by client; None if the Secret does not exist."""
    problem: str = ""
    """Why the Secret cannot be read; empty if it can."""
    issuer: IssuerKeys = IssuerKeys()
    """Those of the issuer that spec.clients names, if the operator reads them."""


@dataclass(frozen=True)
class PlanCheck:
    """The last check of a plan's answers to samples."""

    plan: str
    question: str
    """Digest of spec.quality and the samples."""
    result: QualityResult | None = None
    problem: str = ""
    """Why there is no result, although the check has ended."""
    finished: datetime | None = None
    """None while it runs."""


@dataclass(frozen=True)
class QualityWorld:
    """What there is to check the session's answers with."""

    samples: str | None = None
    """None if the ConfigMap or its key does not exist."""
    problem: str = ""
    """Why the ConfigMap cannot be read; empty if it can."""
    check: PlanCheck | None = None


@dataclass(frozen=True)
class SessionWorld:
    """The observed state around one session."""

    session: InferenceSession
    cluster: Cluster
    """All objects, the session itself included."""
    settings: OperatorSettings
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Profiles of the session's namespace that it requires or that its plans were made from, by content key."""
    runs: Mapping[tuple[str, int], ProfileRun] = field(default_factory=dict)
    """Profiling runs by key and attempt."""
    serving: ServingStatus | None = field(default_factory=ServingStatus)
    """What the engine runs; None if it does not answer."""
    has_applications: bool = False
    """Whether the engine still has applications of a deleted session."""
    signals: ServingSignals | None = None
    rates: RateHistory = field(default_factory=RateHistory)
    traffic: TrafficHistory = field(default_factory=TrafficHistory)
    search: Search | None = None
    exposure: ExposureWorld | None = None
    """None while the operator has not read the objects."""
    clients: ClientsWorld = ClientsWorld()
    quality: QualityWorld = QualityWorld()
    problem: str = ""
    """Errors of the engine or of the last pass's actions."""

    @cached_property
    def availability(self) -> Availability:
        """What the session may use of the pools."""
        return Availability(self.session, self.cluster)

    @cached_property
    def keeping_pools(self) -> frozenset[str]:
        """Elastic pools of the session whose nodes have just come: their replicas are not released yet."""
        return frozenset(
            name
            for name, pool in selected_pools(self.session, self.cluster.pools).items()
            if pool.status.elastic is not None and pool.status.elastic.keep_until is not None
        )

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
    cordoned: bool = False
    departure: str = ""
    """What says that the node is about to go; empty if nothing does."""

    @property
    def unschedulable(self) -> bool:
        """Whether it takes no new pods."""
        return self.cordoned or bool(self.departure)


@dataclass(frozen=True)
class OfferedDevice:
    """One device of a node, as its DRA driver offers it in a ResourceSlice."""

    name: str
    node: str
    attributes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Attributes whose value is a string, by domain and name."""
    counters: Mapping[tuple[str, str, str], Decimal] = field(default_factory=dict)
    """What it takes of counters that it shares with other devices: the slices of a GPU. By the pool of the driver, set
    of counters and counter."""
    tainted: bool = False
    """Whether a taint keeps new claims away."""


@dataclass(frozen=True)
class DeviceOffer:
    """What one driver offers."""

    has_class: bool = True
    """Whether the pool's DeviceClass exists."""
    devices: tuple[OfferedDevice, ...] = ()
    counters: Mapping[tuple[str, str, str], Decimal] = field(default_factory=dict)
    """All that there is of the shared counters."""
    problem: str = ""
    """Why devices cannot be read; empty if they can."""


@dataclass(frozen=True)
class PartitionerWorld:
    """The observed state of the partitioner, which cuts the GPUs of a pool's nodes."""

    published: Mapping[str, Entries] | None = None
    """The published configurations by name; None if they are unreadable or belong to another owner."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Number of Partita's pods with accelerators, by node, for nodes that are being drained."""
    problem: str = ""
    """Why the configurations are unreadable, or the error of the last steps."""


@dataclass(frozen=True)
class PoolWorld:
    """The observed state around one pool."""

    pool: GPUPool
    cluster: Cluster
    settings: OperatorSettings
    nodes: tuple[Node, ...] = ()
    """The nodes that the pool's selector matches."""
    engine_capacity: Mapping[str, float] | None = None
    """Units of each custom resource of the default engine; None if it does not answer."""
    problem: str = ""
    """Why the engine does not answer."""
    partitioner: PartitionerWorld = field(default_factory=PartitionerWorld)
    offer: DeviceOffer | None = None
    """The devices of the pool's driver; None for a pool without `spec.devices`."""
