"""InferenceSession: an application as a DAG of modules, its latency SLO, its rate, and what to optimise."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from partita_api.conditions import Condition
from partita_api.digests import CONTENT_PATTERN
from partita_api.fields.approval import Approval
from partita_api.fields.label_selector import LabelSelector
from partita_api.fields.quantity import Percent, Quantity
from partita_api.measured import Measured
from partita_api.meta import API_VERSION, NAME_PATTERN, ObjectMeta, Rule, SpecModel, StatusModel, Timestamp, is_unset
from partita_api.pod.template import PodTemplate
from partita_api.profile import ProfilingProgress
from partita_api.quality import OptionalQuality
from partita_api.session.autoscaling import Autoscaling, AvailabilityGoal
from partita_api.session.clients import Clients
from partita_api.session.edge import Edge
from partita_api.session.execution import Batching, Execution
from partita_api.session.expose import NEEDS_GRPC, Expose, HostClaim
from partita_api.session.frontend import Frontend
from partita_api.session.module import MAX_MODULES, MAX_NAME, Module, ModuleName
from partita_api.session.output_maps import MAP_RULES
from partita_api.session.plan_changes import MaintenanceWindow, PlanPreview
from partita_api.session.sizes import size_class_rules
from partita_api.session.versions import MAX_VERSIONS, VERSION_RULES, Versions, VersionStatus
from partita_api.session.when import WHEN_RULES

MAX_PRIORITY: Final = 1000


class Slo(SpecModel):
    """End-to-end latency objective of a request."""

    latency_ms: int = Field(ge=1, le=600_000, description="Milliseconds from a request's arrival to its answer.")
    attainment: Percent = Field(
        default=Percent("99%"), description='Share of requests that must be answered in time, such as "99%".'
    )


class RateSource(StrEnum):
    """Where the request rate that is planned for comes from."""

    DECLARED = "Declared"
    OBSERVED = "Observed"


class ArrivalProcess(StrEnum):
    """How requests are spread in time."""

    POISSON = "Poisson"
    GAMMA = "Gamma"
    UNIFORM = "Uniform"


class Rate(SpecModel):
    """How many requests arrive, and when."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "rate.gammaShape needs rate.arrival Gamma; set it, or remove gammaShape",
            lambda rate: rate.gamma_shape is None or rate.arrival is ArrivalProcess.GAMMA,
            "!has(self.gammaShape) || (has(self.arrival) && self.arrival == 'Gamma')",
        ),
    )

    requests_per_second: int = Field(
        ge=1,
        le=10_000_000,
        description="Requests per second to plan for; with source Observed, until enough requests were measured.",
    )
    source: RateSource = Field(
        default=RateSource.DECLARED,
        description="Declared: plan for this number. Observed: plan for the measured rate.",
    )
    arrival: ArrivalProcess = Field(default=ArrivalProcess.POISSON, description="Distribution of the arrivals in time.")
    gamma_shape: Quantity | None = Field(
        default=None, description='Shape of a Gamma arrival process; below 1 is bursty, such as "0.25".'
    )


class ObjectiveType(StrEnum):
    """What a plan optimises."""

    COST = "Cost"
    POWER = "Power"
    THROUGHPUT = "Throughput"
    THROUGHPUT_THEN_FEWEST_GPUS = "ThroughputThenFewestGPUs"

    @property
    def seeks_throughput(self) -> bool:
        """Whether a plan serves as much as its pools can, rather than a given rate at the least price."""
        return self in (ObjectiveType.THROUGHPUT, ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS)

    @property
    def unit(self) -> str:
        """What the objective value counts, for people."""
        return "requests/s" if self.seeks_throughput else "W" if self is ObjectiveType.POWER else "an hour"


class CostModel(StrEnum):
    """What a vGPU costs: `Allocated` as on a bill, `Occupancy` in proportion to the time it works."""

    ALLOCATED = "Allocated"
    OCCUPANCY = "Occupancy"


class Objective(SpecModel):
    """What to optimise."""

    type: ObjectiveType = Field(
        default=ObjectiveType.COST,
        description="Cost: serve the rate at the least price. Power: serve it with the fewest watts; every usable "
        "pool needs powerWatts. Throughput: serve as many requests as the pools can. "
        "ThroughputThenFewestGPUs: the same, with the fewest accelerators.",
    )
    weight: int = Field(
        default=1, ge=1, le=1000, description="Weight among the sessions that maximise throughput and share pools."
    )
    cost_model: CostModel = Field(
        default=CostModel.ALLOCATED,
        description="Allocated: whole vGPUs, as on a bill. Occupancy: in proportion to the time they work. Counts "
        "watts in the same way.",
    )


class PlannerSettings(SpecModel):
    """How the planner searches for plans."""

    strategy: str = Field(
        default="partita", max_length=40, pattern=NAME_PATTERN, description="Planning strategy, by name."
    )
    margin_percent: int = Field(
        default=20,
        ge=0,
        le=90,
        description="Share of the SLO kept free for queueing, the network and other time that profiles do not contain.",
    )
    headroom_percent: int = Field(
        default=10,
        ge=0,
        le=80,
        description="Share of the capacity kept free for bursts, since arrivals are random.",
    )
    max_stages: int = Field(default=2, ge=1, le=4, description="Most stages in a pipeline of one module.")
    blocks: int = Field(default=10, ge=1, le=20, description="Blocks that a model is pre-partitioned into.")
    max_batch_size: int = Field(default=16, ge=1, le=64, description="Largest batch size that is profiled and planned.")
    share_gpus: bool = Field(
        default=False,
        description="Whether whole models that leave GPUs partly idle share fewer GPUs, each with all of these "
        "models (sub-clusters). Needs objective Cost or Power, and costModel Allocated.",
    )
    time_limit_seconds: int = Field(
        default=30,
        ge=1,
        le=3600,
        description="Most seconds that one solve may take. The platform may allow less "
        "(planning.maxTimeLimitSeconds of the chart).",
    )
    approval: Approval = Field(
        default=Approval.AUTOMATIC,
        description="Automatic: a new plan is rolled out at once. Manual: it waits until `partita approve` or the "
        "annotation partita.dev/approved-plan names it; status.preview shows what it would change.",
    )


class EngineType(StrEnum):
    """What runs the replicas."""

    RAY = "Ray"
    KUBERAY = "KubeRay"


class Engine(SpecModel):
    """The engine that serves the session."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "engine.cluster needs engine.type Ray",
            lambda engine: engine.cluster is None or engine.type is not EngineType.KUBERAY,
            "!has(self.cluster) || !has(self.type) || self.type == 'Ray'",
        ),
    )

    type: EngineType | None = Field(
        default=None,
        description="Ray: an existing Ray cluster, through its dashboard's REST API. KubeRay: a Ray cluster that "
        "KubeRay creates for the session's namespace. Default: Ray with a cluster, else what the operator's setting "
        "defaultEngine says; status.engine shows it.",
    )
    cluster: str | None = Field(
        default=None,
        max_length=63,
        pattern=NAME_PATTERN,
        description="Name of a Ray cluster that the platform offers to the session's namespace, in ray.clusters of the "
        "chart. Default: the cluster of ray.address.",
    )

    def type_or(self, default: EngineType) -> EngineType:
        """The engine that serves the session, if the operator's default is `default`."""
        return self.type or (default if self.cluster is None else EngineType.RAY)


def _map_list(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class InferenceSessionSpec(SpecModel):
    """Desired state of an InferenceSession."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "every edge must name modules of this session in from and to",
            lambda spec: (
                {end for edge in spec.edges for end in (edge.source, edge.target)}
                <= {module.name for module in spec.modules}
            ),
            "!has(self.edges) || self.edges.all(e, self.modules.exists(m, m.name == e.from) && "
            "self.modules.exists(m, m.name == e.to))",
        ),
        Rule(
            "an edge must not lead from a module to itself",
            lambda spec: all(edge.source != edge.target for edge in spec.edges),
            "!has(self.edges) || self.edges.all(e, e.from != e.to)",
        ),
        Rule(
            "a session needs at least one module with a model",
            lambda spec: any(module.model is not None for module in spec.modules),
            "self.modules.exists(m, has(m.model))",
        ),
        *MAP_RULES,
        *WHEN_RULES,
        NEEDS_GRPC,
        *size_class_rules(MAX_MODULES, MAX_NAME),
        *VERSION_RULES,
        Rule(
            "podTemplate needs engine KubeRay, because Partita does not make the pods of engine Ray; remove "
            "podTemplate, or set engine.type KubeRay and no engine.cluster",
            lambda spec: (
                spec.pod_template is None or (spec.engine.cluster is None and spec.engine.type is not EngineType.RAY)
            ),
            "!has(self.podTemplate) || !has(self.engine) || "
            "(!has(self.engine.cluster) && (!has(self.engine.type) || self.engine.type != 'Ray'))",
        ),
    )

    slo: Slo = Field(description="The end-to-end latency objective.")
    rate: Rate = Field(description="How many requests arrive, and when.")
    modules: tuple[Module, ...] = Field(
        min_length=1,
        max_length=MAX_MODULES,
        json_schema_extra=_map_list("name"),
        description="The nodes of the application's DAG. Those without an incoming edge take the request's tensors.",
    )
    edges: tuple[Edge, ...] = Field(default=(), max_length=128, description="The edges of the DAG.")
    objective: Objective = Field(default=Objective(), description="What to optimise.")
    pool_selector: LabelSelector = Field(
        default=LabelSelector(), description="Which GPUPools may be used, by their labels. Empty: all of them."
    )
    pools: tuple[ModuleName, ...] = Field(
        default=(), max_length=32, description="Names of the GPUPools that may be used. Empty: by poolSelector."
    )
    priority: int = Field(
        default=0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="If accelerators are short, sessions of higher priority come first; those of lower priority "
        "run with fewer replicas or wait. Among sessions of one priority, older ones come first and keep "
        "their accelerators.",
    )
    planner: PlannerSettings = Field(default=PlannerSettings(), description="How the planner searches for plans.")
    batching: Batching = Field(default=Batching(), description="How requests form batches.")
    autoscaling: Autoscaling = Field(default=Autoscaling(), description="How replicas follow the load.")
    availability: AvailabilityGoal | None = Field(
        default=None,
        exclude_if=is_unset,
        description="Losses that plans survive, by replicas in reserve. Default: none; a lost replica is replaced.",
    )
    engine: Engine = Field(default=Engine(), description="The engine that serves the session.")
    execution: Execution = Field(default=Execution(), description="How models run.")
    frontend: Frontend = Field(
        default=Frontend(), description="How clients reach the session, in addition to HTTP behind Serve's proxy."
    )
    clients: Clients | None = Field(
        default=None,
        description="The clients whose requests are answered. The platform may require it. Default: everybody's.",
    )
    expose: Expose | None = Field(
        default=None,
        description="An address for clients outside of the cluster. The platform limits what it may be. Default: only "
        "the address in the cluster.",
    )
    pod_template: PodTemplate | None = Field(
        default=None,
        description="What the session's pods have in addition, such as an image of its own: those of profiling Jobs, "
        "replicas and frontends. Where the pool's podTemplate has the same, the pool's counts. podTemplates of the "
        "chart limits what sessions may set. Needs engine KubeRay.",
    )
    maintenance_windows: tuple[MaintenanceWindow, ...] = Field(
        default=(),
        max_length=16,
        description="When another plan may replace the current plan. Empty: at any time. The first roll-out and "
        "repairs do not wait.",
    )
    quality: OptionalQuality = None
    versions: Versions = ()

    @property
    def keeps_planned_replicas(self) -> bool:
        """Whether every stage keeps its planned replicas: for a rate that may arrive at any time, or for losses."""
        return self.rate.source is RateSource.DECLARED or self.availability is not None

    def selects(self, pool: ObjectMeta) -> bool:
        """Whether the GPUPool with this metadata may be used: by `pools` or, if that is empty, by `poolSelector`."""
        return pool.name in self.pools if self.pools else self.pool_selector.matches(pool.labels)


class EndpointLatency(StatusModel):
    """How long the calls of an endpoint took, with the time that they waited for a place."""

    module: ModuleName = Field(description="The module.")
    p50_ms: Quantity = Field(description="Median latency.")
    p99_ms: Quantity = Field(description="99th percentile of the latency.")


class Signals(StatusModel):
    """What the frontends measured over the last window."""

    offered_rate: Quantity = Field(default=Quantity("0"), description="Requests per second that arrived.")
    goodput: Quantity = Field(default=Quantity("0"), description="Requests per second answered within the SLO.")
    bad_rate: Quantity = Field(default=Quantity("0"), description="Share of requests dropped or late.")
    idle_fraction: Quantity = Field(default=Quantity("1"), description="Share of accelerator time without work.")
    p50_ms: Quantity = Field(default=Quantity("0"), description="Median latency of answered requests.")
    p99_ms: Quantity = Field(default=Quantity("0"), description="99th percentile of the latency.")
    endpoints: tuple[EndpointLatency, ...] = Field(default=(), max_length=32, description="Those that were called.")
    recommendation: str = Field(
        default="", max_length=1024, description="What the autoscaler last recommended, and why."
    )


class PlanSummary(StatusModel):
    """Summary of the current plan."""

    name: str = Field(description="Name of the PipelinePlan.")
    cost_per_hour: Quantity = Field(description="Price of the vGPUs that it allocates.")
    throughput: Quantity = Field(description="Requests per second it can serve.")


class InferenceSessionStatus(StatusModel):
    """Observed state of an InferenceSession."""

    observed_generation: int = Field(default=0, description="The generation that this status is about.")
    engine: EngineType | None = Field(
        default=None, description="The engine that serves the session: spec.engine.type, or the operator's default."
    )
    url: str | None = Field(
        default=None,
        description="Base URL for clients of the Open Inference Protocol: the public one, if there is one.",
    )
    cluster_url: str | None = Field(
        default=None, description="Base URL for clients in the cluster, while `url` is the public one."
    )
    grpc_address: str | None = Field(
        default=None,
        description="host:port of the Open Inference Protocol over gRPC, if the session requests it: that of the "
        "session's Service, or with engine Ray one for each frontend, separated by commas.",
    )
    http_address: str | None = Field(
        default=None,
        description="host:port of the Open Inference Protocol over HTTP without Serve's proxy, if the session "
        "requests it: that of the session's Service, or with engine Ray one for each frontend, separated by commas.",
    )
    claimed_hosts: tuple[HostClaim, ...] = Field(
        default=(), max_length=2, description="Hosts of spec.expose that the session holds."
    )
    current_plan: PlanSummary | None = Field(default=None, description="The plan that serves requests.")
    pending_plan: str | None = Field(default=None, description="A plan that waits for approval or is being rolled out.")
    preview: PlanPreview | None = Field(
        default=None, description="What the pending plan would change, while it is held back."
    )
    history: tuple[str, ...] = Field(default=(), max_length=10, description="Earlier plans, newest first.")
    profiling: tuple[ProfilingProgress, ...] = Field(
        default=(), max_length=64, description="Profiles that are being made or could not be made; empty when settled."
    )
    confirmed_contents: tuple[Annotated[str, Field(pattern=CONTENT_PATTERN)], ...] = Field(
        default=(),
        max_length=256,
        description="Contents of models that some replicas did not find, and that profiling found again.",
    )
    planned_rate: Quantity | None = Field(
        default=None, description="Requests per second that plans are made for, after it was measured."
    )
    measured: Measured | None = Field(
        default=None, description="What plans are made for instead of what the spec says, because it was measured."
    )
    last_handled_retry: str | None = Field(
        default=None, max_length=1024, description="Value of the annotation partita.dev/retry that was last handled."
    )
    signals: Signals | None = Field(default=None, description="What the frontends measured.")
    versions: tuple[VersionStatus, ...] = Field(default=(), max_length=MAX_VERSIONS, description="The versions now.")
    version_shares: str | None = Field(default=None, max_length=512, description="Their shares, such as 2=10%.")
    last_scale_time: Timestamp | None = Field(
        default=None,
        description="When the autoscaler last changed replicas.",
    )
    scale_to_zero_time: Timestamp | None = Field(
        default=None,
        description="When the session scaled to zero; unset while the current plan has replicas.",
    )
    conditions: tuple[Condition, ...] = Field(default=(), max_length=16, json_schema_extra=_map_list("type"))


class InferenceSession(SpecModel):
    """A multi-DNN application to serve under a latency SLO (namespaced)."""

    model_config = StatusModel.model_config

    api_version: str = API_VERSION
    kind: str = "InferenceSession"
    metadata: ObjectMeta
    spec: InferenceSessionSpec
    status: InferenceSessionStatus = InferenceSessionStatus()

    @property
    def namespace(self) -> str:
        """The namespace that it is in, also if its manifest names none."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.metadata.name}"
