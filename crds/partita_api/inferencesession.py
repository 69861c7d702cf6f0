"""InferenceSession: an application as a DAG of modules, its latency SLO, its rate, and what to optimise."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from partita_api.conditions import Condition
from partita_api.meta import API_VERSION, NAME_PATTERN, ObjectMeta, SpecModel, StatusModel
from partita_api.plan_changes import MaintenanceWindow, PlanPreview
from partita_api.quantity import Percent, Quantity

MAX_MODULES: Final = 32
ENTRYPOINT_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"

ModuleName = Annotated[str, Field(min_length=1, max_length=40, pattern=NAME_PATTERN)]


class DType(StrEnum):
    """Tensor element types, by their names in the Open Inference Protocol."""

    FP32 = "FP32"
    FP16 = "FP16"
    INT64 = "INT64"
    INT32 = "INT32"
    UINT8 = "UINT8"


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
    """How many requests arrive, and how."""

    requests_per_second: int = Field(
        ge=1, le=10_000_000, description="Requests per second to plan for; with source Observed, until enough is seen."
    )
    source: RateSource = Field(
        default=RateSource.DECLARED,
        description="Declared: plan for this number. Observed: follow what is measured.",
    )
    arrival: ArrivalProcess = Field(default=ArrivalProcess.POISSON, description="How arrivals are spread in time.")
    gamma_shape: Quantity | None = Field(
        default=None, description='Shape of a Gamma arrival process; below 1 is bursty, such as "0.25".'
    )


class TensorSpec(SpecModel):
    """One tensor of a request, without its batch dimension."""

    shape: tuple[Annotated[int, Field(ge=1, le=1_048_576)], ...] = Field(
        min_length=1, max_length=8, description="Dimensions of one sample, such as [3, 224, 224]."
    )
    dtype: DType = Field(default=DType.FP32, description="Element type.")


class ImageLayout(StrEnum):
    """The order of an image tensor's dimensions: channels, height, width."""

    CHW = "CHW"
    HWC = "HWC"


class ImageFit(StrEnum):
    """How an image of other proportions becomes one of the tensor's."""

    STRETCH = "Stretch"
    CROP = "Crop"


class ImageInput(SpecModel):
    """How JPEG and PNG images become a module's input tensor; its size is that of the tensor."""

    layout: ImageLayout = Field(default=ImageLayout.CHW, description="Order of the tensor's dimensions: CHW or HWC.")
    fit: ImageFit = Field(
        default=ImageFit.STRETCH,
        description="Stretch: the whole image, its proportions changed. Crop: the largest middle part that fits.",
    )
    mean: tuple[Quantity, ...] = Field(
        default=(),
        max_length=3,
        description="Subtracted from each channel, which is from 0 to 1 before. Not for UINT8, which is 0 to 255.",
    )
    deviation: tuple[Quantity, ...] = Field(
        default=(), max_length=3, description="What each channel is then divided by. Not for UINT8."
    )


class ModelSource(SpecModel):
    """Where a neural network comes from."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        ("has(self.entrypoint) != has(self.file)", "a model needs either entrypoint or file, and not both"),
        ("!has(self.sha256) || has(self.file)", "sha256 is the digest of a file, and needs file"),
    )

    entrypoint: str | None = Field(
        default=None,
        max_length=253,
        pattern=ENTRYPOINT_PATTERN,
        description="Python callable that returns a torch.nn.Module, such as partita_models.vision:detector.",
    )
    kwargs: dict[str, Any] = Field(
        default={}, max_length=64, description="Keyword arguments for the entrypoint (JSON values)."
    )
    file: str | None = Field(
        default=None, max_length=1024, description="Path or URI of a torch.export (.pt2) or TorchScript (.pt) file."
    )
    sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 digest of the file, which is checked before it is loaded.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.entrypoint is None) == (self.file is None):
            raise ValueError("a model needs either entrypoint or file, and not both")
        if self.sha256 is not None and self.file is None:
            raise ValueError("sha256 is the digest of a file, and needs file")
        return self


class FunctionSource(SpecModel):
    """A CPU function between models, such as cropping what a detector found."""

    entrypoint: str = Field(
        max_length=253, pattern=ENTRYPOINT_PATTERN, description="Python callable, such as examples.traffic:crop."
    )
    kwargs: dict[str, Any] = Field(default={}, max_length=64, description="Keyword arguments (JSON values).")
    max_millis: int = Field(default=10, ge=0, le=60_000, description="Milliseconds of the SLO set aside for one call.")


class Module(SpecModel):
    """One node of the application's DAG: a model, or a CPU function."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        # `function` is a reserved word of CEL, which Kubernetes escapes with underscores.
        ("has(self.model) != has(self.__function__)", "a module needs either model or function, and not both"),
        ("!has(self.model) || has(self.input)", "a module with a model needs input: its tensor's shape and dtype"),
        (
            "!has(self.image) || (has(self.input) && size(self.input.shape) == 3)",
            "image needs an input of three dimensions: channels, height and width",
        ),
    )

    name: ModuleName = Field(description="Name of the module, unique in the session.")
    model: ModelSource | None = Field(default=None, description="A neural network, run on the pools.")
    function: FunctionSource | None = Field(default=None, description="A CPU function, run beside the frontend.")
    input: TensorSpec | None = Field(default=None, description="The tensor that one sample of the model's input is.")
    image: ImageInput | None = Field(
        default=None, description="Clients may send JPEG and PNG images as the input, which become tensors like this."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.model is None) == (self.function is None):
            raise ValueError(f"module {self.name!r} needs either model or function, and not both")
        if self.model is not None and self.input is None:
            raise ValueError(f"module {self.name!r} has a model and needs input: its tensor's shape and dtype")
        return self

    @model_validator(mode="after")
    def _images_fit(self) -> Self:
        if self.image is None:
            return self
        if self.input is None or len(self.input.shape) != 3:
            raise ValueError(f"module {self.name!r}: image needs an input of three dimensions")
        channels = self.input.shape[0 if self.image.layout is ImageLayout.CHW else 2]
        if channels not in (1, 3):
            raise ValueError(f"module {self.name!r}: an image has 1 or 3 channels, not {channels}; see image.layout")
        if self.input.dtype in (DType.INT32, DType.INT64):
            raise ValueError(f"module {self.name!r}: images become FP32, FP16 or UINT8, not {self.input.dtype}")
        normalisation = (self.image.mean, self.image.deviation)
        if self.input.dtype is DType.UINT8 and any(normalisation):
            raise ValueError(f"module {self.name!r}: images as UINT8 are not normalised; leave mean and deviation out")
        if any(len(numbers) not in (0, channels) for numbers in normalisation):
            raise ValueError(f"module {self.name!r}: image.mean and image.deviation need {channels} numbers each")
        if any(number.value <= 0 for number in self.image.deviation):
            raise ValueError(f"module {self.name!r}: image.deviation must be above 0")
        return self


class FanOut(SpecModel):
    """How many sub-requests one upstream answer makes on an edge."""

    mean: Quantity = Field(default=Quantity("1"), description='Average number, to plan rates with, such as "1.5".')
    max: int = Field(default=1, ge=1, le=64, description="Most sub-requests taken from one answer; more are left out.")


class Edge(SpecModel):
    """The answer of one module goes to another."""

    source: ModuleName = Field(alias="from", description="The upstream module.")
    target: ModuleName = Field(alias="to", description="The downstream module.")
    fan_out: FanOut = Field(default=FanOut(), description="How many sub-requests one answer makes.")


class ObjectiveKind(StrEnum):
    """What a plan optimises."""

    COST = "Cost"
    POWER = "Power"
    THROUGHPUT = "Throughput"
    THROUGHPUT_THEN_FEWEST_GPUS = "ThroughputThenFewestGPUs"

    @property
    def seeks_throughput(self) -> bool:
        """Whether a plan serves as much as its pools can, rather than a given rate at the least price."""
        return self in (ObjectiveKind.THROUGHPUT, ObjectiveKind.THROUGHPUT_THEN_FEWEST_GPUS)

    @property
    def unit(self) -> str:
        """What the objective value counts, for people."""
        return "requests/s" if self.seeks_throughput else "W" if self is ObjectiveKind.POWER else "an hour"


class CostModel(StrEnum):
    """What a vGPU costs: `Allocated` as on a bill, `Occupancy` in proportion to the time it works."""

    ALLOCATED = "Allocated"
    OCCUPANCY = "Occupancy"


class Objective(SpecModel):
    """What to optimise."""

    kind: ObjectiveKind = Field(
        default=ObjectiveKind.COST,
        description="Cost: serve the rate at the least price. Power: serve it with the fewest watts, for which every "
        "pool that may be used needs powerWatts. Throughput: serve the most from the pools. ThroughputThenFewestGPUs: "
        "the same, and of all such plans one with the fewest accelerators.",
    )
    weight: int = Field(
        default=1, ge=1, le=1000, description="Weight among the sessions that maximise throughput and share pools."
    )
    cost_model: CostModel = Field(
        default=CostModel.ALLOCATED,
        description="Allocated: whole vGPUs, as on a bill. Occupancy: in proportion to the time they work. Counts "
        "watts in the same way.",
    )


class Approval(StrEnum):
    """Whether a new plan takes effect by itself."""

    AUTOMATIC = "Automatic"
    MANUAL = "Manual"


class PlannerSettings(SpecModel):
    """How plans are searched for."""

    strategy: str = Field(
        default="partita", max_length=40, pattern=NAME_PATTERN, description="Planning strategy, by name."
    )
    margin_percent: int = Field(
        default=20,
        ge=0,
        le=90,
        description="Share of the SLO kept free for queueing, the network and what profiles do not see.",
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
    time_limit_seconds: int = Field(default=30, ge=1, le=3600, description="Most seconds that one solve may take.")
    approval: Approval = Field(
        default=Approval.AUTOMATIC,
        description="Automatic: a new plan is rolled out at once. Manual: it waits, and status.preview says what it "
        "would change, until `partita approve` or the annotation partita.dev/approved-plan names it.",
    )


class BatchingPolicy(StrEnum):
    """When a batch is dispatched."""

    DEFERRED = "Deferred"
    EAGER = "Eager"
    ELSA = "Elsa"


class Batching(SpecModel):
    """How requests are put together."""

    policy: BatchingPolicy = Field(
        default=BatchingPolicy.DEFERRED,
        description="Deferred: wait, within the deadline, for a batch that fills its GPU. "
        "Eager: dispatch to an idle GPU at once. "
        "Elsa: each call by itself, on the smallest vGPU that is in time (for calls that are batches themselves).",
    )


class AutoscalingMode(StrEnum):
    """What the autoscaler may do."""

    ENABLED = "Enabled"
    ADVISORY = "Advisory"
    DISABLED = "Disabled"


class Autoscaling(SpecModel):
    """How the number of replicas follows the load."""

    mode: AutoscalingMode = Field(
        default=AutoscalingMode.ENABLED,
        description="Enabled: replicas follow the load. Advisory: only say what would be done. Disabled: as planned.",
    )
    bad_rate_threshold: Percent = Field(
        default=Percent("1%"), description="Share of dropped or late requests above which replicas are added."
    )
    idle_fraction_threshold: Percent = Field(
        default=Percent("30%"), description="Idle share of a stage's GPUs above which replicas are given back."
    )
    window_seconds: int = Field(default=10, ge=1, le=3600, description="Seconds over which the signals are averaged.")
    cool_down_seconds: int = Field(default=30, ge=0, le=86_400, description="Seconds between two steps.")
    max_replicas: int = Field(default=1000, ge=1, le=100_000, description="Most replicas of one stage.")


class EngineKind(StrEnum):
    """What runs the replicas."""

    RAY = "Ray"
    KUBERAY = "KubeRay"


class Engine(SpecModel):
    """Where the session is served."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        ("!has(self.address) || !has(self.kind) || self.kind == 'Ray'", "engine.address needs engine.kind Ray"),
    )

    kind: EngineKind = Field(
        default=EngineKind.RAY,
        description="Ray: an existing Ray cluster, through its dashboard's REST API. KubeRay: a Ray cluster that "
        "KubeRay makes for the session's namespace.",
    )
    address: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^https?://.+",
        description="URL of the Ray dashboard. Default: the operator's own setting.",
    )

    @model_validator(mode="after")
    def _address_of_ray(self) -> Self:
        if self.address is not None and self.kind is not EngineKind.RAY:
            raise ValueError(f"engine.address needs engine.kind Ray, not {self.kind}")
        return self


class Backend(StrEnum):
    """How a block is executed."""

    EAGER = "Eager"
    INDUCTOR = "Inductor"


class CutDType(StrEnum):
    """Element type of feature maps between stages."""

    FP16 = "FP16"
    FP32 = "FP32"


class Execution(SpecModel):
    """How models run."""

    backend: Backend = Field(default=Backend.EAGER, description="Eager: as torch runs it. Inductor: compiled.")
    cut_dtype: CutDType = Field(
        default=CutDType.FP16, description="Element type of feature maps between stages; FP16 halves the traffic."
    )


class Frontend(SpecModel):
    """How clients reach the session, besides HTTP."""

    grpc_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="Port of the Open Inference Protocol over gRPC, on the node where the frontend runs; 0 takes a "
        "free one. Without it there is no gRPC. status.grpcAddress says where it is.",
    )


def _map_list(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class InferenceSessionSpec(SpecModel):
    """Desired state of an InferenceSession."""

    cel_rules: ClassVar[tuple[tuple[str, str], ...]] = (
        (
            "!has(self.edges) || self.edges.all(e, self.modules.exists(m, m.name == e.from) && "
            "self.modules.exists(m, m.name == e.to))",
            "every edge must name modules of this session in from and to",
        ),
        ("!has(self.edges) || self.edges.all(e, e.from != e.to)", "an edge must not lead from a module to itself"),
        ("self.modules.exists(m, has(m.model))", "a session needs at least one module with a model"),
        (
            "!has(self.rate.gammaShape) || (has(self.rate.arrival) && self.rate.arrival == 'Gamma')",
            "rate.gammaShape needs rate.arrival Gamma",
        ),
    )

    slo: Slo = Field(description="The end-to-end latency objective.")
    rate: Rate = Field(description="How many requests arrive, and how.")
    modules: tuple[Module, ...] = Field(
        min_length=1,
        max_length=MAX_MODULES,
        json_schema_extra=_map_list("name"),
        description="The nodes of the application's DAG. Those without an incoming edge take the request's tensors.",
    )
    edges: tuple[Edge, ...] = Field(default=(), max_length=128, description="The edges of the DAG.")
    objective: Objective = Field(default=Objective(), description="What to optimise.")
    pool_selector: dict[Annotated[str, Field(max_length=316)], Annotated[str, Field(max_length=63)]] = Field(
        default={}, max_length=16, description="Labels of the GPUPools that may be used. Empty: all of them."
    )
    pools: tuple[ModuleName, ...] = Field(
        default=(), max_length=32, description="Names of the GPUPools that may be used. Empty: by poolSelector."
    )
    planner: PlannerSettings = Field(default=PlannerSettings(), description="How plans are searched for.")
    batching: Batching = Field(default=Batching(), description="How requests are put together.")
    autoscaling: Autoscaling = Field(default=Autoscaling(), description="How replicas follow the load.")
    engine: Engine = Field(default=Engine(), description="Where the session is served.")
    execution: Execution = Field(default=Execution(), description="How models run.")
    frontend: Frontend = Field(default=Frontend(), description="How clients reach the session, besides HTTP.")
    maintenance_windows: tuple[MaintenanceWindow, ...] = Field(
        default=(),
        max_length=16,
        description="When another plan may take the place of one that serves. Empty: at any time. The first roll-out "
        "and repairs are not held back.",
    )

    def selects(self, pool: ObjectMeta) -> bool:
        """Whether the GPUPool with this metadata may be used: `pools` names it or, if that is empty, its labels fit."""
        return pool.name in self.pools if self.pools else self.pool_selector.items() <= pool.labels.items()


class Signals(StatusModel):
    """What the frontends measured over the last window."""

    offered_rate: Quantity = Field(default=Quantity("0"), description="Requests per second that arrived.")
    goodput: Quantity = Field(default=Quantity("0"), description="Requests per second answered within the SLO.")
    bad_rate: Quantity = Field(default=Quantity("0"), description="Share of requests dropped or late.")
    idle_fraction: Quantity = Field(default=Quantity("1"), description="Share of GPU time without work.")
    p50_ms: Quantity = Field(default=Quantity("0"), description="Median latency of answered requests.")
    p99_ms: Quantity = Field(default=Quantity("0"), description="99th percentile of the latency.")
    recommended: str = Field(default="", max_length=1024, description="What the autoscaler last wanted, and why.")


class PlanSummary(StatusModel):
    """The plan in force, in a line."""

    name: str = Field(description="Name of the PipelinePlan.")
    cost_per_hour: Quantity = Field(description="Price of the vGPUs it allocates.")
    throughput: Quantity = Field(description="Requests per second it can serve.")


class ProfilingPhase(StrEnum):
    """Where the profiling of one pair of model and pool stands."""

    RUNNING = "Running"
    WAITING = "Waiting"
    GIVEN_UP = "GivenUp"


class ProfilingProgress(StatusModel):
    """A profile that is being made, or could not be made."""

    module: str = Field(description="The module whose model is profiled.")
    pool: str = Field(description="The GPUPool.")
    key: str = Field(description="Content key of the profile.")
    attempt: int = Field(ge=1, description="Number of the run, from 1.")
    phase: ProfilingPhase = Field(
        description="Running: the run is under way. Waiting: it failed and is tried again soon. "
        "GivenUp: all attempts failed."
    )
    since: str = Field(json_schema_extra={"format": "date-time"}, description="When this phase began.")
    message: str = Field(default="", max_length=1024, description="Why the last attempt failed.")


class InferenceSessionStatus(StatusModel):
    """Observed state of an InferenceSession."""

    observed_generation: int = Field(default=0, description="The generation this status was concluded from.")
    url: str | None = Field(default=None, description="Base URL for clients of the Open Inference Protocol.")
    grpc_address: str | None = Field(
        default=None, description="host:port of the Open Inference Protocol over gRPC, if the session asks for it."
    )
    active_plan: PlanSummary | None = Field(default=None, description="The plan that serves requests.")
    pending_plan: str | None = Field(default=None, description="A plan that waits for approval or is being rolled out.")
    preview: PlanPreview | None = Field(
        default=None, description="What the pending plan would change, while it is held."
    )
    history: tuple[str, ...] = Field(default=(), max_length=10, description="Earlier plans, newest first.")
    profiling: tuple[ProfilingProgress, ...] = Field(
        default=(), max_length=64, description="Profiles that are being made or could not be made; none when settled."
    )
    planned_rate: Quantity | None = Field(
        default=None, description="Requests per second that plans are made for, once it was measured."
    )
    retried: str | None = Field(
        default=None, max_length=1024, description="Value of the annotation partita.dev/retry that was last obeyed."
    )
    signals: Signals | None = Field(default=None, description="What the frontends measured.")
    last_scaled: str | None = Field(default=None, description="When the autoscaler last changed replicas (RFC 3339).")
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
    def key(self) -> str:
        """namespace/name."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"
