"""The reasons that conditions give: one table with the severity and the meaning of each.

Events take their type from the severity. `docs/reference/conditions.md` explains every reason to users.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

from partita_planner.problem import NoPlanReason


class Severity(StrEnum):
    """How serious a reason is: the two types of Kubernetes events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Reason(StrEnum):
    """A CamelCase word for programs, with its severity and its meaning."""

    severity: Severity
    meaning: str

    def __new__(cls, value: str, severity: Severity, meaning: str) -> Self:
        """A member of this value; as a string it equals the value."""
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.severity = severity
        reason.meaning = meaning
        return reason

    # A person has to change something.
    INVALID_SPEC = "InvalidSpec", Severity.WARNING, "the spec is invalid"
    FORBIDDEN_MODEL = "ForbiddenModel", Severity.WARNING, "the platform does not allow a model, file or function"
    FORBIDDEN_POD_TEMPLATE = (
        "ForbiddenPodTemplate",
        Severity.WARNING,
        "the platform, the engine or a pool does not allow a part of spec.podTemplate, or the image of a function",
    )
    FORBIDDEN_RAY_CLUSTER = (
        "ForbiddenRayCluster",
        Severity.WARNING,
        "the platform does not offer the Ray cluster of spec.engine.cluster to the namespace",
    )
    FORBIDDEN_REQUEST_LOG = (
        "ForbiddenRequestLog",
        Severity.WARNING,
        "the platform does not allow the sink of spec.frontend.requestLog, or its Secret",
    )
    FORBIDDEN_CLIENTS = "ForbiddenClients", Severity.WARNING, "the platform does not allow what spec.clients names"
    AUTHENTICATION_REQUIRED = (
        "AuthenticationRequired",
        Severity.WARNING,
        "the platform requires that the session authenticates its clients",
    )
    CLIENT_SECRET_MISSING = "ClientSecretMissing", Severity.WARNING, "the Secret with the API keys does not exist"
    CLIENT_SECRET_UNREADABLE = (
        "ClientSecretUnreadable",
        Severity.WARNING,
        "the operator cannot read the Secret with the API keys",
    )
    INVALID_CLIENT_KEYS = "InvalidClientKeys", Severity.WARNING, "API keys of the session's Secret cannot be used"
    ISSUER_UNAVAILABLE = "IssuerUnavailable", Severity.WARNING, "the public keys of the issuer of tokens cannot be read"
    POOL_NOT_FOUND = "PoolNotFound", Severity.WARNING, "spec.pools names a pool that does not exist"
    POOL_TERMINATING = "PoolTerminating", Severity.WARNING, "all selected pools are being deleted"
    NO_POOL_SELECTED = "NoPoolSelected", Severity.WARNING, "spec.poolSelector selects no pool"
    INVALID_POOL = "InvalidPool", Severity.WARNING, "the spec of a selected pool is invalid"
    POWER_UNKNOWN = "PowerUnknown", Severity.WARNING, "objective Power, and a usable pool has no spec.powerWatts"
    NO_CAPACITY = "NoCapacity", Severity.WARNING, "no selected pool has accelerators"
    PROFILING_FAILED = "ProfilingFailed", Severity.WARNING, "no pool has a profile of a model"
    QUOTA_EXCEEDED = "QuotaExceeded", Severity.WARNING, "the quota of the namespace leaves too few accelerators"
    OUTRANKED = "Outranked", Severity.WARNING, "sessions of higher priority have the accelerators"
    CANNOT_SCALE_FROM_ZERO = (
        "CannotScaleFromZero",
        Severity.WARNING,
        "scaled to zero, and other sessions have its accelerators",
    )
    ROLLBACK_REFUSED = "RollbackRefused", Severity.WARNING, "the plan to roll back to does not exist or does not fit"
    PARTITIONING_DISABLED = "PartitioningDisabled", Severity.WARNING, "the operator may not cut GPUs"
    PARTITIONING_FAILED = "PartitioningFailed", Severity.WARNING, "mig-manager failed, or its ConfigMap is not writable"
    LABELS_CHANGED = "LabelsChanged", Severity.WARNING, "another client changed the MIG configuration of a node"
    NOT_ENOUGH_NODES = "NotEnoughNodes", Severity.WARNING, "fewer nodes can be cut than spec.mig requests"
    SOME_PROFILES_MISSING = "SomeProfilesMissing", Severity.WARNING, "some pools have no profile of a model"
    IN_USE = "InUse", Severity.WARNING, "sessions use the pool, which is being deleted"
    NO_NODES = "NoNodes", Severity.WARNING, "no Kubernetes or Ray node belongs to the pool"
    NO_ACCELERATORS = "NoAccelerators", Severity.WARNING, "the nodes of the pool offer no accelerators"
    DEVICE_CLASS_MISSING = "DeviceClassMissing", Severity.WARNING, "the DeviceClass of spec.devices does not exist"
    DEVICES_UNREADABLE = "DevicesUnreadable", Severity.WARNING, "the operator cannot read the devices of DRA drivers"
    PROVISIONING_TIMED_OUT = "ProvisioningTimedOut", Severity.WARNING, "requested nodes did not come in time"
    NO_COUNT = "NoCount", Severity.WARNING, "spec.count is 0"
    NAME_TAKEN = "NameTaken", Severity.WARNING, "an object of another owner has the name that the session needs"
    EXPOSE_NOT_ALLOWED = "ExposeNotAllowed", Severity.WARNING, "the platform does not allow what spec.expose requests"
    EXPOSE_UNSUPPORTED = "ExposeUnsupported", Severity.WARNING, "engine Ray cannot be exposed by spec.expose"
    HOST_TAKEN = "HostTaken", Severity.WARNING, "a session of another namespace has the host of spec.expose"
    INGRESS_CLASS_MISSING = "IngressClassMissing", Severity.WARNING, "the IngressClass does not exist"
    TLS_SECRET_MISSING = "TLSSecretMissing", Severity.WARNING, "the Secret with the certificate does not exist"
    GATEWAY_API_MISSING = "GatewayAPIMissing", Severity.WARNING, "the cluster lacks kinds of the Gateway API"
    GATEWAY_MISSING = "GatewayMissing", Severity.WARNING, "the Gateway does not exist"
    NO_LISTENER = "NoListener", Severity.WARNING, "no listener of the Gateway accepts the session's route"
    ROUTE_REJECTED = "RouteRejected", Severity.WARNING, "the Gateway's controller rejects the session's route"
    NO_CLUSTER_DNS = "NoClusterDNS", Severity.WARNING, "names of Services do not resolve in pods"
    EXPOSURE_FAILED = "ExposureFailed", Severity.WARNING, "the session's addresses cannot be read or written"
    VERSION_MISSING = "VersionMissing", Severity.WARNING, "a session of spec.versions does not exist"
    VERSION_ELSEWHERE = "VersionElsewhere", Severity.WARNING, "a session of spec.versions has another engine"
    VERSION_WITHDRAWN = "VersionWithdrawn", Severity.WARNING, "a session of spec.versions has missed its SLO"
    VERSION_UNCHECKED = "VersionUnchecked", Severity.WARNING, "a session of spec.versions fails its quality check"
    QUALITY_MISSED = "QualityMissed", Severity.WARNING, "the plan's answers to samples are not as expected"
    SAMPLES_MISSING = "SamplesMissing", Severity.WARNING, "the samples of spec.quality cannot be read"
    SLO_MISSED = "SLOMissed", Severity.WARNING, "too few requests were answered in time over the last window"
    # The operator tries again.
    ENGINE_UNAVAILABLE = "EngineUnavailable", Severity.WARNING, "the serving engine does not answer"
    ACTION_FAILED = "ActionFailed", Severity.WARNING, "the engine refused a request"
    # In progress.
    WAITING_FOR_POOLS = "WaitingForPools", Severity.NORMAL, "the accelerators of new pools are being counted"
    PROFILING = "Profiling", Severity.NORMAL, "profiling runs are in progress"
    WAITING_FOR_PROFILES = "WaitingForProfiles", Severity.NORMAL, "planning starts when the profiles are complete"
    PLANNING = "Planning", Severity.NORMAL, "the planner searches for a plan"
    ROLLING_OUT = "RollingOut", Severity.NORMAL, "replicas start, or the frontends switch to the pending plan"
    PARTITIONING = "Partitioning", Severity.NORMAL, "nodes are drained and cut"
    WAITING_FOR_NODES = "WaitingForNodes", Severity.NORMAL, "pods wait for nodes that a node autoscaler brings"
    CHECKING_QUALITY = "CheckingQuality", Severity.NORMAL, "the plan's answers to samples are being checked"
    SCALING = "Scaling", Severity.NORMAL, "the session serves, and some replicas are still starting"
    SCALING_FROM_ZERO = "ScalingFromZero", Severity.NORMAL, "replicas start for requests that are held"
    WAITING_FOR_RAY_CLUSTER = "WaitingForRayCluster", Severity.NORMAL, "the Service follows once there is a Ray cluster"
    WAITING_FOR_CONTROLLER = "WaitingForController", Severity.NORMAL, "no controller has accepted the public address"
    VERSION_NOT_READY = "VersionNotReady", Severity.NORMAL, "a session of spec.versions is not ready"
    DELETING = "Deleting", Severity.NORMAL, "applications and profiling runs are being removed"
    # Held back on purpose.
    AWAITING_APPROVAL = "AwaitingApproval", Severity.NORMAL, "a person has to approve the plan or the change"
    OUTSIDE_WINDOW = "OutsideWindow", Severity.NORMAL, "the plan waits for the next maintenance window"
    PAUSED = "Paused", Severity.NORMAL, "a person paused the session"
    ROLLED_BACK = "RolledBack", Severity.NORMAL, "a person rolled the session back to an earlier plan"
    # As desired.
    PROFILES_READY = "ProfilesReady", Severity.NORMAL, "all profiles exist"
    PLAN_READY = "PlanReady", Severity.NORMAL, "a plan for the current inputs exists"
    ROLLED_OUT = "RolledOut", Severity.NORMAL, "all replicas are up"
    SERVING = "Serving", Severity.NORMAL, "the desired plan serves"
    SCALED_TO_ZERO = "ScaledToZero", Severity.NORMAL, "no replicas, since no requests arrive"
    SETTLED = "Settled", Severity.NORMAL, "nothing to do"
    APPROVED = "Approved", Severity.NORMAL, "the plan may be rolled out"
    SUPERSEDED = "Superseded", Severity.NORMAL, "another plan serves"
    SLO_MET = "SLOMet", Severity.NORMAL, "enough requests were answered in time over the last window"
    NO_TRAFFIC = "NoTraffic", Severity.NORMAL, "no requests arrived in the last window"
    NO_SIGNALS = "NoSignals", Severity.NORMAL, "no frontend has reported"
    AVAILABLE = "Available", Severity.NORMAL, "the pool has accelerators"
    PROVISIONED = "Provisioned", Severity.NORMAL, "all accelerators that plans use are present"
    SERVICE_READY = "ServiceReady", Severity.NORMAL, "the session has its Service"
    PUBLIC = "Public", Severity.NORMAL, "clients outside of the cluster reach the session"
    NO_SERVICE = "NoService", Severity.NORMAL, "the engine has no Services for sessions"
    CLIENTS_AUTHENTICATED = "ClientsAuthenticated", Severity.NORMAL, "only clients with valid credentials are answered"
    EVERYBODY_ACCEPTED = "EverybodyAccepted", Severity.NORMAL, "the session has no spec.clients any more"
    QUALITY_MET = "QualityMet", Severity.NORMAL, "the plan's answers to samples are as expected"
    NO_QUALITY = "NoQuality", Severity.NORMAL, "the session has no spec.quality any more"
    VERSIONS_READY = "VersionsReady", Severity.NORMAL, "all versions of the session get their requests"
    NO_VERSIONS = "NoVersions", Severity.NORMAL, "the session has no spec.versions any more"
    PARTITIONED = "Partitioned", Severity.NORMAL, "all nodes are cut"


_NO_PLAN: Final[Mapping[NoPlanReason, str]] = {
    NoPlanReason.INVALID_SESSION: "the planner does not support the session",
    NoPlanReason.NO_POOLS: "the session may not use any pool",
    NoPlanReason.SLO_TOO_TIGHT: "no pipeline meets the SLO at any cost",
    NoPlanReason.INSUFFICIENT_CAPACITY: "the pools have too few free accelerators",
    NoPlanReason.TIME_LIMIT: "the planner found no answer within its time limit",
    NoPlanReason.INVALID_PLAN: "the planner failed, or its plan did not pass validation",
}
_SEVERITIES: Final[Mapping[str, Severity]] = {
    **{str(reason): reason.severity for reason in Reason},
    **{str(reason): Severity.WARNING for reason in NoPlanReason},
}
_MEANINGS: Final[Mapping[str, str]] = {
    **{str(reason): reason.meaning for reason in Reason},
    **{str(reason): meaning for reason, meaning in _NO_PLAN.items()},
}


def severity_of(reason: str) -> Severity:
    """The severity of a condition's reason: Partita's own, or the planner's for having no plan, which is a warning."""
    return _SEVERITIES[reason]


def is_problem(reason: str) -> bool:
    """Whether the reason is a warning; not for reasons of another version of Partita, which are not known."""
    return _SEVERITIES.get(reason) is Severity.WARNING


def meaning_of(reason: str) -> str:
    """What a condition's reason means; empty for one of another version of Partita."""
    return _MEANINGS.get(reason, "")
