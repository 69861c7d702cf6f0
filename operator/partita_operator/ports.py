"""What the reconcilers need from the outside world: one narrow interface (port) for each need.

Implementations: `engines/` (ServingEngine), `profiling/` (ProfileRunner), `partitioning/` (GpuPartitioner) and
`solver/` (PlanSolver).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession, Signals
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile, ProfileRequest
from partita_api.session.request_log import RequestLog
from partita_planner.mig.mig_parted import Entries
from partita_planner.problem import Outcome, PlanningProblem
from partita_runtime.autoscaling.stages import StageTarget as StageTarget
from partita_runtime.autoscaling.traffic import TrafficCounts
from partita_runtime.serving.deploy.allowed_clients import AllowedClients
from partita_runtime.serving.deploy.epochs import CheckState
from partita_runtime.serving.deploy.version_routes import VersionRoute

_LISTED_STAGES: Final = 4
"""Most stages that a remark names."""


REDACTED: Final = "<redacted>"
"""What Ray's dashboard shows in place of secrets. A configuration that contains it is not written back."""


class EngineUnavailableError(Exception):
    """The serving engine cannot be reached now; the message names the address and the reason."""


@dataclass(frozen=True)
class ServingSpec:
    """What should be running for one session."""

    session: InferenceSession
    plan: PipelinePlan
    """The plan that the frontends should use, with all its replicas."""
    targets: tuple[StageTarget, ...]
    profiles: Mapping[tuple[str, str], Profile]
    """By (module, pool)."""
    pools: Mapping[str, GPUPool]
    departing_nodes: frozenset[str] = frozenset()
    """Nodes of any pool that are about to go."""
    clients: AllowedClients | None = None
    """The clients whose requests are answered; None for everybody's."""
    versions: tuple[VersionRoute, ...] = ()
    """Other versions of the session."""
    request_log: RequestLog | None = None
    """Where frontends log requests, as the platform allows; None for nowhere."""
    check: CheckState | None = None
    """Whether the plan's answers are checked before it serves; None for a session without a quality check."""


@dataclass(frozen=True)
class StageReadiness:
    """The state of one stage."""

    module: str
    pipeline: str
    stage: int
    ready: int
    """Replicas that serve."""
    message: str = ""
    """Why replicas are missing; empty if none are or they are still starting."""
    content_changed: bool = False
    """Whether a replica refuses to start, because its model has other content than its profile names."""


@dataclass(frozen=True)
class PlanServing:
    """The stages of one plan as they run."""

    plan: str
    stages: tuple[StageReadiness, ...]


@dataclass(frozen=True)
class Remark:
    """Something that is not as planned, such as replicas on the CPU, and the stages that it concerns."""

    text: str
    stages: tuple[str, ...] = ()
    """As module/pipeline/number; empty if it concerns the session as a whole."""

    def __str__(self) -> str:
        """Its sentences; the first one has the first stages."""
        more = f" and {len(self.stages) - _LISTED_STAGES} more" if len(self.stages) > _LISTED_STAGES else ""
        where = f" ({', '.join(self.stages[:_LISTED_STAGES])}{more})" if self.stages else ""
        first, _, rest = self.text.partition(". ")
        return f"{first[:1].upper()}{first[1:]}{where}.{f' {rest}.' if rest else ''}"


@dataclass(frozen=True)
class ServingStatus:
    """What is running for one session."""

    plans: tuple[PlanServing, ...] = ()
    """Plans that have applications, including those that are being removed."""
    serving_plan: str | None = None
    """The plan that the frontends use now."""
    frontend_ready: bool = False
    url: str | None = None
    grpc_address: str | None = None
    http_address: str | None = None
    """Where the frontend itself answers by HTTP, without Serve's proxy."""
    message: str = ""
    """What the roll-out waits for, and what is wrong."""
    remarks: tuple[Remark, ...] = ()
    """What is not as planned, each text once."""

    @property
    def summary(self) -> str:
        """The message and the remarks."""
        return " ".join([part for part in (self.message, *map(str, self.remarks)) if part])


HTTP_DIRECT: Final = "http-direct"
GRPC: Final = "grpc"
"""Names of the ports of a session's Service that lead to frontends without Serve's proxy."""


@dataclass(frozen=True)
class FrontendPort:
    """A port of a frontend beside Serve's proxy, in a pod of the session's namespace."""

    name: str
    """HTTP_DIRECT or GRPC."""
    address: str
    """IP address of the pod."""
    port: int
    pod: str
    uid: str
    """Of the pod."""
    node: str = ""


@dataclass(frozen=True)
class SessionBackend:
    """The pods that take the requests of a session."""

    selector: Mapping[str, str]
    """Labels of the pods with a ready Serve proxy."""
    port: int
    """Port of Serve's proxies."""
    frontends: tuple[FrontendPort, ...] | None = None
    """The frontends' own ports; None while no frontend reports them."""
    unknown: tuple[str, ...] = ()
    """Addresses that frontends report and that belong to no pod of the Ray cluster."""


@dataclass(frozen=True)
class StageSignals:
    """Measurements of one stage of the serving plan over the last window."""

    module: str
    pipeline: str
    stage: int
    ready: int
    """Replicas that take batches."""
    idle_fraction: float
    """Share of the ready replicas' time without work (Symphony's f)."""
    bad_rate: float
    """Share of the module's requests that were dropped or late (Symphony's r)."""


@dataclass(frozen=True)
class ServingSignals:
    """What the frontends of one session measured over the last window."""

    reported: Signals
    """The totals for the session's status."""
    plan: str | None
    """The plan that the frontends used."""
    stages: tuple[StageSignals, ...]
    held: int = 0
    """Requests that wait for replicas, or did until a few seconds ago."""
    idle_seconds: float = 0.0
    """Time since the last request."""
    traffic: TrafficCounts = field(default_factory=TrafficCounts)


class ServingEngine(Protocol):
    """Runs frontends and stage replicas. All calls are idempotent; all raise EngineUnavailableError."""

    async def apply(self, spec: ServingSpec) -> None:
        """Take the next step toward `spec`; repeated calls complete a migration.

        The replicas of a new plan start while the old ones still run. Once they are ready, the frontends move to the
        new plan. Once the frontends have no batch left on the old plan, its replicas are removed.
        """

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""

    async def signals(self, session_key: str) -> ServingSignals | None:
        """What the session's frontends measured over the last window; None if there is no frontend."""

    async def ask(self, session_key: str, plan: str, sample: bytes) -> tuple[int, bytes]:
        """The status and the body of the plan's answer to a sample, a request in JSON. It need not serve yet."""

    async def backend(self, session_key: str, serving: ServingStatus | None) -> SessionBackend | None:
        """The pods of the session, if Kubernetes knows them; `serving` is what `observe` returned last.

        None if the engine's processes are no pods, or none serve yet.
        """

    async def remove(self, session_key: str) -> bool:
        """Remove everything of the session, step by step; True once nothing is left."""

    async def sessions(self) -> frozenset[str]:
        """Keys of all sessions that have applications on the engine."""

    async def capacity(self) -> Mapping[str, float]:
        """Total units of each custom resource in the engine's cluster."""


class ServingEngines(Protocol):
    """The engines that sessions may use."""

    def of(self, session: InferenceSession) -> ServingEngine:
        """The engine that the session names, or the default; the same object for the same cluster."""

    def known(self) -> tuple[ServingEngine, ...]:
        """All engines that the operator is set up for, the default one first."""

    async def has_left(self, session: InferenceSession, engine: ServingEngine) -> bool:
        """Whether another engine serves the session now, so that all it has on this one is a leftover.

        False while the session names an engine that it cannot have. Raises EngineUnavailableError.
        """


class RunPhase(StrEnum):
    """State of a profiling run."""

    ABSENT = "Absent"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class ProfileRun:
    """The state of one profiling run."""

    phase: RunPhase
    profile: Profile | None = None
    message: str = ""
    """For a failed run: what went wrong, with the last lines of its log."""
    waits: bool = False
    """Whether its pod cannot start, and the message says why."""


class ProfileRunner(Protocol):
    """Runs profiling on the accelerators. A run is identified by key and attempt; starting it twice has no effect."""

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        """Start the run, unless it exists."""

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        """The state of the run."""

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        """Stop the run and delete its objects."""


class StepKind(StrEnum):
    """Steps of partitioning the GPUs of a node, in this order."""

    DRAIN = "Drain"
    """Stop placing replicas on the node."""
    EVICT = "Evict"
    """Evict the replicas that are left on the node."""
    CUT = "Cut"
    """Partition the GPUs."""
    FINISH = "Finish"
    """The GPUs are partitioned: allow replicas on the node again."""
    RELEASE = "Release"
    """The change was withdrawn: allow replicas on the unchanged node again."""


@dataclass(frozen=True)
class NodeStep:
    """One step of partitioning the GPUs of one node. It is idempotent."""

    kind: StepKind
    node: str
    uid: str
    """Of the node, so that a later node of the same name is not changed."""
    pool: str
    """The pool that partitions the node."""
    config: str
    """The configuration to apply to the node."""
    present: str = ""
    """The configuration that Partita applied before; empty if it never did."""


class GpuPartitioner(Protocol):
    """Partitions the GPUs of nodes into slices. All calls are idempotent; all raise ApiServerUnavailableError."""

    async def published(self) -> Mapping[str, Entries]:
        """The configurations that steps may name. Raises PartitionerError if they cannot be read."""

    async def publish(self, configurations: Mapping[str, Entries]) -> None:
        """Publish these configurations in place of the present ones. Raises PartitionerError."""

    async def replicas(self, node: str) -> int:
        """Number of Partita's pods with accelerators on the node, both serving and profiling."""

    async def take(self, step: NodeStep) -> None:
        """Take a step. Raises PartitionerError if another client changed the node's labels."""


class PartitionerError(Exception):
    """The GPUs cannot be partitioned; the message says why, and what to do."""


class PlanSolver(Protocol):
    """Solves planning problems outside the event loop."""

    async def solve(self, namespace: str, problem: PlanningProblem) -> Outcome:
        """The planner's answer for a session of the namespace.

        NoPlan with reason TimeLimit if it did not answer in time.
        """
