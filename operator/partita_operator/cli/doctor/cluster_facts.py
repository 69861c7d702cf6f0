"""What is known of a cluster. `cluster_probe.py` reads it, `cluster_checks.py` evaluates it."""

from collections.abc import Mapping
from dataclasses import dataclass

from partita_operator.cli.doctor.findings import Unknown


@dataclass(frozen=True)
class NoCluster:
    """There is no cluster to check, or it does not answer."""

    reason: str
    """One sentence."""
    is_expected: bool
    """Whether the user named a cluster, or a kubeconfig names one."""


@dataclass(frozen=True)
class DefinitionFacts:
    """One of Partita's CustomResourceDefinitions."""

    kind: str
    is_served: bool
    """Whether the API server serves the kind."""
    is_current: bool | Unknown
    """Whether its schema is the one of this package."""


@dataclass(frozen=True)
class AccessFacts:
    """What the caller may do with one kind."""

    kind: str
    denied: tuple[str, ...]
    """The verbs that the caller may not use, of those that were checked."""


@dataclass(frozen=True)
class LeaseFacts:
    """The Lease of an operator."""

    holder: str
    """Empty: no replica has it."""
    age_seconds: float
    """Time since its last renewal, by the clock of this machine."""
    duration_seconds: int


@dataclass(frozen=True)
class OperatorFacts:
    """A Deployment of the operator."""

    namespace: str
    name: str
    version: str
    """The chart's version of Partita; empty if it has no such label."""
    replicas: int
    ready: int
    lease: LeaseFacts | Unknown | None
    """None: there is no Lease."""


@dataclass(frozen=True)
class WebhookFacts:
    """The admission webhook's configuration."""

    name: str
    has_authority: bool
    """Whether the API server has a certificate authority to check it with."""
    service: str
    """NAMESPACE/NAME of its Service; empty if it is a URL."""
    endpoints: int | Unknown
    """Ready pods behind the Service."""


@dataclass(frozen=True)
class KubeRayFacts:
    """KubeRay, which sessions with engine.type KubeRay need."""

    kinds: tuple[str, ...]
    """Kinds of group ray.io/v1 that are served."""
    version: str | Unknown | None
    """Version of its operator, from the image; None: no operator was found."""
    sessions: tuple[str, ...] | Unknown
    """Sessions that need it, as NAMESPACE/NAME."""


@dataclass(frozen=True)
class NodeFacts:
    """A node with accelerators."""

    name: str
    ready: bool
    product: str
    """Label nvidia.com/gpu.product; empty without it."""
    accelerators: Mapping[str, int]
    """Allocatable accelerators by resource name."""


@dataclass(frozen=True)
class ObjectFacts:
    """A pool or a session, as its status describes it."""

    kind: str
    key: str
    """NAME of a pool, NAMESPACE/NAME of a session."""
    is_processed: bool
    """Whether the operator has seen its latest spec."""
    ready: str
    """Status of its condition Ready: True, False or Unknown."""
    reason: str
    """Message of its condition Ready."""


@dataclass(frozen=True)
class MetricsFacts:
    """Where Prometheus can read the operator's metrics."""

    services: tuple[str, ...]
    """Services with the operator's metrics, as NAMESPACE/NAME."""
    has_prometheus_operator: bool
    """Whether the API server serves ServiceMonitors."""
    monitors: tuple[str, ...] | Unknown
    """Partita's ServiceMonitors, as NAMESPACE/NAME."""


@dataclass(frozen=True)
class ClusterFacts:
    """All facts on a cluster."""

    server: str
    """URL of the API server."""
    flags: str
    """Flags that lead kubectl and partita to this cluster and namespace, for a shell."""
    namespace: str
    version: tuple[int, int] | Unknown
    """Major and minor version of the API server."""
    definitions: tuple[DefinitionFacts, ...] | Unknown
    access: tuple[AccessFacts, ...] | Unknown
    operators: tuple[OperatorFacts, ...] | Unknown
    objects: tuple[ObjectFacts, ...] | Unknown
    """All pools, and the sessions that the caller may list."""
    webhooks: tuple[WebhookFacts, ...] | Unknown
    kuberay: KubeRayFacts | Unknown
    nodes: tuple[NodeFacts, ...] | Unknown
    """The nodes with accelerators."""
    metrics: MetricsFacts | Unknown
