"""What the reconcilers need from the outside world, each behind a narrow port.

Adapters: `engines/` (Ray Serve), `profiling/` (batch/v1 Jobs, Ray jobs), `planning` (a process of its own).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession, Signals
from partita_api.pipelineplan import PipelinePlan
from partita_api.profile import Profile, ProfileRequest
from partita_operator.engines.kuberay.settings import KubeRaySettings
from partita_operator.partitioning.settings import MigSettings
from partita_planner.mig.parted import Entries
from partita_planner.problem import Outcome, PlanningProblem
from partita_runtime.autoscaling.stages import StageTarget as StageTarget
from partita_runtime.models.policy import ModelPolicy
from partita_runtime.serving.transport.kind import Transport


class EngineUnavailableError(Exception):
    """The serving engine cannot be reached now; the message says which address, and why."""


@dataclass(frozen=True)
class ServingSpec:
    """What should be running for one session."""

    session: InferenceSession
    plan: PipelinePlan
    """The plan whose replicas should be up and which the frontends should use."""
    targets: tuple[StageTarget, ...]
    profiles: Mapping[tuple[str, str], Profile]
    """By (module, pool)."""
    pools: Mapping[str, GPUPool]


@dataclass(frozen=True)
class StageReadiness:
    """How one stage runs."""

    module: str
    pipeline: str
    stage: int
    ready: int
    message: str = ""


@dataclass(frozen=True)
class PlanServing:
    """How the replicas of one plan run."""

    plan: str
    stages: tuple[StageReadiness, ...]


@dataclass(frozen=True)
class ServingStatus:
    """What is running for one session."""

    plans: tuple[PlanServing, ...] = ()
    """Plans whose applications exist, whether wanted or not."""
    serving_plan: str | None = None
    """The plan that the frontends use now."""
    frontend_ready: bool = False
    url: str | None = None
    grpc_address: str | None = None
    http_address: str | None = None
    """Where the frontend answers by HTTP itself, without Serve's proxy."""
    message: str = ""


@dataclass(frozen=True)
class StageSignals:
    """What was measured of one stage of the serving plan over the last window."""

    module: str
    pipeline: str
    stage: int
    ready: int
    """Replicas that the frontends can hand batches to."""
    idle_fraction: float
    """Share of the ready replicas' time without work (Symphony's f)."""
    bad_rate: float
    """Share of the module's requests that were dropped or late (Symphony's r)."""


@dataclass(frozen=True)
class SessionSignals:
    """What the frontends of one session measured over the last window."""

    reported: Signals
    """The totals, as the session's status shows them."""
    plan: str | None
    """The plan that the frontends used."""
    stages: tuple[StageSignals, ...]
    held: int = 0
    """Requests that wait for replicas, or did until a moment ago."""
    idle_seconds: float = 0.0
    """For how long no request has been there."""


class ServingEngine(Protocol):
    """Runs frontends and stage replicas. All calls are idempotent; all raise EngineUnavailableError."""

    async def apply(self, spec: ServingSpec) -> None:
        """Make the session's applications as `spec` says.

        A new plan's replicas come up beside the old ones; the frontends move to it once they are ready, and
        the old plan's replicas are retired when drained. Calling it again carries the migration on.
        """

    async def observe(self, session_key: str) -> ServingStatus:
        """What runs for the session (namespace/name)."""

    async def signals(self, session_key: str) -> SessionSignals | None:
        """What the session's frontends measured over the last window; None if there is no frontend."""

    async def remove(self, session_key: str) -> bool:
        """Take everything of the session down; True once nothing is left."""

    async def sessions(self) -> frozenset[str]:
        """Keys of all sessions that have applications on the engine."""

    async def capacity(self) -> Mapping[str, float]:
        """Total units of each custom resource in the engine's cluster."""


class ServingEngines(Protocol):
    """The engines that sessions may be served on."""

    def of(self, session: InferenceSession) -> ServingEngine:
        """The engine that the session names, or the operator's own; the same object for the same address."""

    def known(self) -> tuple[ServingEngine, ...]:
        """The operator's own engine, and then every other one that `of` has given."""


class RunPhase(StrEnum):
    """State of a profiling run."""

    ABSENT = "Absent"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True)
class ProfileRun:
    """One profiling run as it stands."""

    phase: RunPhase
    profile: Profile | None = None
    message: str = ""
    """For a failed run: what went wrong, the last lines of its log included."""


class ProfileRunner(Protocol):
    """Runs profiling where the accelerators are. Runs are named by key and attempt, so starting twice is harmless."""

    async def start(self, namespace: str, request: ProfileRequest, pool: GPUPool, attempt: int) -> None:
        """Start the run, unless it is there."""

    async def observe(self, namespace: str, key: str, attempt: int) -> ProfileRun:
        """How the run stands."""

    async def remove(self, namespace: str, key: str, attempt: int) -> None:
        """Stop the run and delete what it left."""


class StepKind(StrEnum):
    """What is done with the GPUs of a node, in this order."""

    DRAIN = "Drain"
    """Place nothing new on the node."""
    EVICT = "Evict"
    """Take the replicas that are left off the node."""
    CUT = "Cut"
    """Have the GPUs cut."""
    FINISH = "Finish"
    """They are cut: replicas may be placed there again."""
    RELEASE = "Release"
    """They are not going to be cut after all: the node is as it was."""


@dataclass(frozen=True)
class NodeStep:
    """One step with the GPUs of one node; taking it twice is harmless."""

    kind: StepKind
    node: str
    uid: str
    """Of the node: nothing is done to another one of the same name."""
    pool: str
    """The pool that has the node cut."""
    config: str
    """The configuration that the node gets."""
    present: str = ""
    """The configuration that Partita had it cut to before; empty if it never did."""


class GpuPartitioner(Protocol):
    """Cuts the GPUs of nodes into slices. All calls are idempotent; all raise ApiServerUnavailableError."""

    async def published(self) -> Mapping[str, Entries]:
        """The configurations that may be asked for, by name. Raises PartitionerError if they cannot be read."""

    async def publish(self, configurations: Mapping[str, Entries]) -> None:
        """Have these configurations known, and no others. Raises PartitionerError."""

    async def replicas(self, node: str) -> int:
        """Pods of Partita's on the node that have accelerators, whether they serve or profile."""

    async def take(self, step: NodeStep) -> None:
        """Take a step. Raises PartitionerError where somebody else has a say in it."""


class PartitionerError(Exception):
    """GPUs cannot be cut as asked; the message says why, and what to do."""


class PlanSolver(Protocol):
    """Solves planning problems outside of the event loop."""

    async def solve(self, problem: PlanningProblem) -> Outcome:
        """The planner's answer; NoPlan with reason TimeLimit if it did not answer in time."""


@dataclass(frozen=True)
class OperatorSettings:
    """Settings of the operator; each is an environment variable PARTITA_<NAME> and a flag of `partita operator run`."""

    ray_address: str = "http://127.0.0.1:8265"
    """URL of the Ray dashboard for sessions that name none; empty if there is no such cluster."""
    ray_token: str | None = None
    """Bearer token of that Ray dashboard, if it asks for one. It is sent to no other."""
    ray_tokens: Mapping[str, str] = field(default_factory=dict)
    """Bearer tokens of the Ray dashboards that sessions name, by URL."""
    serve_url: str = "http://127.0.0.1:8000"
    """URL under which clients reach Ray Serve's HTTP proxy."""
    serve_http_port: int = 8000
    """Port of that proxy on a Ray cluster where Serve does not run yet, so that Partita starts it."""
    kuberay: KubeRaySettings | None = None
    """How sessions are served through KubeRay. None: not at all."""
    kuberay_token: str | None = None
    """Bearer token of the dashboards of KubeRay's clusters, if they ask for one."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Ray runtime environment of frontends, replicas and profiling runs; it must have Partita and the models."""
    transport: Transport = Transport.STREAMS
    """How batches travel between the processes of a session."""
    model_policy: ModelPolicy = field(default_factory=ModelPolicy)
    """Which code and which files sessions may name."""
    mig: MigSettings | None = None
    """How GPUs of pools with spec.mig are cut. None: not at all."""
    profiler_image: str | None = None
    """Image of the profiling Jobs. None: KubeRay's image; without KubeRay, profiling runs as Ray jobs."""
    profile_timeout_seconds: int = 1800
    profile_attempts: int = 3
    profile_backoff_seconds: int = 20
    resync_seconds: float = 5.0
    """How often a settled session is looked at again."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose sessions are looked after. Empty: all."""
    lease: str = ""
    """namespace/name of the Lease by which replicas of the operator agree on which one works; empty: there is one."""
    lease_seconds: int = 15
    """After how many seconds without a sign of life another replica takes over."""
    metrics_port: int = 9090
    health_port: int = 8080
    """Port of the liveness endpoint, /healthz."""
    webhook_certificates: Path | None = None
    """Directory with tls.crt and tls.key of the admission webhook. None: there is no webhook."""
    webhook_port: int = 9443
    versions: Mapping[str, str] = field(default_factory=dict)
    """Library versions that are part of every profile's key, such as torch's."""
