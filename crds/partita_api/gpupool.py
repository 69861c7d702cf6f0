"""GPUPool: a class of accelerators, how to find it, what it costs and how it may be shared."""

from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from partita_api.conditions import Condition
from partita_api.fields.label_selector import LabelSelector
from partita_api.fields.quantity import Quantity, cel_comparison
from partita_api.meta import API_VERSION, NAME_PATTERN, POOL_LABEL, ObjectMeta, Rule, SpecModel, StatusModel
from partita_api.pod.template import PodTemplate
from partita_api.pool.devices import Devices
from partita_api.pool.elastic import MOST_ACCELERATORS, Elastic, ElasticStatus
from partita_api.pool.mig import MigPartitioning, PartitioningStatus
from partita_api.pool.unschedulable import UnschedulableStatus


class SharingMode(StrEnum):
    """How one accelerator of the pool is divided into vGPUs."""

    WHOLE = "Whole"
    MPS = "MPS"
    MIG = "MIG"
    CPU = "CPU"


class Sharing(SpecModel):
    """Which vGPU fractions of one accelerator may be used."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "sharing.maxDivisor above 1 needs sharing.mode MPS",
            lambda sharing: sharing.max_divisor == 1 or sharing.mode is SharingMode.MPS,
            "!has(self.maxDivisor) || self.maxDivisor == 1 || (has(self.mode) && self.mode == 'MPS')",
        ),
    )

    mode: SharingMode = Field(
        default=SharingMode.WHOLE,
        description="Whole: no sharing. MPS: equal fractions of 1/1 to 1/maxDivisor. MIG: the resource is already a "
        "slice. CPU: CPU cores in place of accelerators.",
    )
    max_divisor: int = Field(
        default=1, ge=1, le=8, description="The most vGPUs that one accelerator is divided into (MPS only)."
    )


class LatencyCurve(SpecModel):
    """Execution time of a whole model on an emulated accelerator: alpha * batch + beta."""

    model: str = Field(max_length=253, description="The module this curve is for; `*` for all others.")
    alpha_micros: int = Field(ge=1, le=60_000_000, description="Microseconds for each sample of a batch.")
    beta_micros: int = Field(ge=0, le=60_000_000, description="Microseconds for each batch, independent of its size.")


class Emulation(SpecModel):
    """Accelerators that are not there: for tests, demonstrations and capacity planning.

    With `curves`, an execution takes the curve's time and computes nothing (answers are zeros of the right
    shape). With `slowdown`, the CPU computes the answer, and the execution takes `slowdown` times the CPU time that the
    profile has measured for a batch of this size.
    """

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "emulation needs exactly one of curves and slowdown",
            lambda emulation: bool(emulation.curves) != (emulation.slowdown is not None),
            "has(self.slowdown) != (has(self.curves) && size(self.curves) > 0)",
        ),
        Rule(
            "emulation.slowdown must be from 1 to 100",
            lambda emulation: emulation.slowdown is None or 1 <= emulation.slowdown.value <= 100,
            f"!has(self.slowdown) || ({cel_comparison('self.slowdown', '>=', '1')} && "
            f"{cel_comparison('self.slowdown', '<=', '100')})",
        ),
    )

    curves: tuple[LatencyCurve, ...] = Field(
        default=(),
        max_length=64,
        description="Latency curves by module. An execution waits for this time, and computes nothing.",
    )
    slowdown: Quantity | None = Field(
        default=None,
        description="Compute on the CPU; an execution takes this multiple of the CPU time (1 to 100).",
    )


class Quota(SpecModel):
    """The most accelerators of the pool that one namespace may hold."""

    namespace: str = Field(max_length=63, pattern=NAME_PATTERN, description="The namespace of the sessions.")
    gpus: int = Field(
        ge=0, le=1_000_000, description="The most accelerators that its sessions may hold together. 0: none."
    )


class GPUPoolSpec(SpecModel):
    """Desired state of a GPUPool."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "mig cuts GPUs into slices, which needs sharing.mode MIG",
            lambda spec: spec.mig is None or spec.sharing.mode is SharingMode.MIG,
            "!has(self.mig) || (has(self.sharing) && has(self.sharing.mode) && self.sharing.mode == 'MIG')",
        ),
        Rule.exclusive(
            "mig",
            "emulation",
            "mig cuts real GPUs; remove emulation",
        ),
        Rule.exclusive(
            "devices",
            "mig",
            "devices are claimed as they are, so that mig cannot cut them; remove mig or devices",
        ),
        Rule.exclusive(
            "devices",
            "emulation",
            "devices are real accelerators; remove devices or emulation",
        ),
        Rule.exclusive(
            "elastic",
            "count",
            "elastic counts the accelerators of nodes and limits them by elastic.maxCount; remove count",
        ),
        Rule.exclusive(
            "elastic",
            "emulation",
            "emulated accelerators are on no node, so that none can come; remove elastic or emulation",
        ),
        Rule.exclusive(
            "elastic",
            "mig",
            "mig cuts nodes that are present; remove elastic, or remove mig and let nodes come with their slices",
        ),
        Rule(
            "bandwidth must be at least 1M bits per second, such as 10G",
            lambda spec: spec.bandwidth.value >= 10**6,
            cel_comparison("self.bandwidth", ">=", "1M"),
        ),
        Rule(
            "quotas has a namespace twice; keep one entry for it",
            lambda spec: len({quota.namespace for quota in spec.quotas}) == len(spec.quotas),
            None,
        ),
    )

    node_selector: LabelSelector = Field(
        default=LabelSelector(),
        description="Which Kubernetes nodes have these accelerators. Empty: the nodes labelled "
        "partita.dev/pool=<name of the pool>.",
    )
    resource_name: str = Field(
        default="nvidia.com/gpu",
        max_length=253,
        description="The extended resource that stands for one accelerator, as its device plugin names it, such as "
        "amd.com/gpu or gpu.intel.com/xe. Pods tolerate a taint of this name.",
    )
    devices: Devices | None = Field(
        default=None,
        description="Claim accelerators by Dynamic Resource Allocation instead of resourceName. An empty nodeSelector "
        "then means all nodes that offer such devices.",
    )
    ray_resource: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[^@]+$",
        description="The custom resource that stands for one accelerator on the nodes of a Ray cluster. "
        "Default: partita-pool-<name of the pool>.",
    )
    count: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="How many accelerators Partita may use. Default: as many as the nodes have.",
    )
    elastic: Elastic | None = Field(
        default=None,
        description="Plan with accelerators that are not there yet, and let pods that wait for a node bring them. "
        "Default: only present accelerators.",
    )
    gpus_per_node: int = Field(default=1, ge=1, le=64, description="Accelerators in one node, sharing its network.")
    price_per_hour: Quantity = Field(
        default=Quantity("1"),
        description='Price of one accelerator per hour, such as "0.71". Use one currency for all pools.',
    )
    power_watts: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Power of one allocated accelerator in watts, such as 350. Only objective Power needs it.",
    )
    bandwidth: Quantity = Field(
        default=Quantity("10G"), description="Network bandwidth of one node in bits per second, such as 10G."
    )
    memory: Quantity | None = Field(
        default=None, description="Memory of one accelerator, such as 24Gi. Default: not checked."
    )
    sharing: Sharing = Field(default=Sharing(), description="Which vGPU fractions may be used.")
    mig: MigPartitioning | None = Field(
        default=None,
        description="Cut the GPUs of the pool's nodes into MIG slices, by NVIDIA's mig-manager. Other pools of the "
        "same nodes offer the other profiles. Default: the GPUs are not cut.",
    )
    emulation: Emulation | None = Field(
        default=None, description="Emulate accelerators that do not exist. Default: they are real."
    )
    pod_template: PodTemplate = Field(
        default=PodTemplate(),
        description="What the pods on the pool's nodes have in addition, such as volumes: those of profiling Jobs, and "
        "those of Ray clusters that KubeRay makes.",
    )
    quotas: tuple[Quota, ...] = Field(
        default=(),
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["namespace"]},
        description="The most accelerators that namespaces may hold. A namespace without a quota may hold all.",
    )

    def quota(self, namespace: str | None) -> int | None:
        """The most accelerators that the sessions of a namespace may hold; None if there is no limit."""
        return next((q.gpus for q in self.quotas if q.namespace == (namespace or "default")), None)


class NamespaceUse(StatusModel):
    """What a namespace with a quota holds."""

    namespace: str = Field(description="The namespace.")
    gpus: int = Field(description="The most accelerators that it may hold.")
    allocated: int = Field(description="Accelerators that its sessions hold.")


class Hardware(StatusModel):
    """One product among the pool's nodes, as GPU Feature Discovery labels it."""

    product: str = Field(max_length=63, description="Label nvidia.com/gpu.product.")
    nodes: int = Field(description="Nodes that have this product.")
    gpus_per_node: int = Field(description="Label nvidia.com/gpu.count, the largest of these nodes.")
    memory: Quantity | None = Field(default=None, description="Label nvidia.com/gpu.memory, the least of these nodes.")
    mig_capable: bool = Field(default=False, description="Label nvidia.com/mig.capable of all these nodes.")


class GPUPoolStatus(StatusModel):
    """Observed state of a GPUPool."""

    observed_generation: int = Field(default=0, description="The generation that this status is about.")
    nodes: int = Field(default=0, description="Nodes that have the pool's accelerators.")
    capacity: int = Field(
        default=0,
        ge=0,
        le=MOST_ACCELERATORS,
        description="Accelerators that plans may use; in an elastic pool including absent ones.",
    )
    allocated: Quantity = Field(default=Quantity("0"), description="Accelerators that current plans use.")
    free: Quantity = Field(default=Quantity("0"), description="Capacity minus allocated accelerators.")
    elastic: ElasticStatus | None = Field(
        default=None, description="Present, pending and most accelerators; only with spec.elastic."
    )
    unschedulable: UnschedulableStatus | None = Field(
        default=None, description="Accelerators of nodes that take no new pods; unset if there is no such node."
    )
    hardware: tuple[Hardware, ...] = Field(
        default=(), max_length=16, description="GPUs of the labelled nodes, by product."
    )
    partitioning: PartitioningStatus | None = Field(
        default=None, description="How far the nodes are cut; only with spec.mig."
    )
    idle_fraction: Quantity | None = Field(
        default=None, description="Share of the allocated accelerators' time without work, over the last window."
    )
    sessions: tuple[str, ...] = Field(
        default=(), max_length=256, description="Sessions (namespace/name) whose plans use the pool."
    )
    quotas: tuple[NamespaceUse, ...] = Field(
        default=(), max_length=256, description="Accelerators that namespaces with a quota hold."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )

    @property
    def present(self) -> int:
        """The accelerators of `capacity` that are there."""
        return self.capacity if self.elastic is None else min(self.capacity, self.elastic.present)

    @property
    def departing_nodes(self) -> tuple[str, ...]:
        """The nodes of the pool that are about to go."""
        return self.unschedulable.departing_nodes if self.unschedulable is not None else ()

    @property
    def pending(self) -> int:
        """The accelerators that plans use and that are not there yet."""
        return 0 if self.elastic is None else self.elastic.pending

    @property
    def backs_off(self) -> bool:
        """Whether plans use only present accelerators for a while, because requested nodes did not come."""
        return self.elastic is not None and self.elastic.back_off_until is not None


class GPUPool(SpecModel):
    """A class of accelerators (cluster-scoped)."""

    model_config = StatusModel.model_config

    api_version: str = API_VERSION
    kind: str = "GPUPool"
    metadata: ObjectMeta
    spec: GPUPoolSpec = GPUPoolSpec()
    status: GPUPoolStatus = GPUPoolStatus()

    @property
    def ray_resource(self) -> str:
        """The Ray custom resource that stands for one accelerator of the pool."""
        return self.spec.ray_resource or f"partita-pool-{self.metadata.name}"

    @property
    def accelerator_name(self) -> str:
        """What Kubernetes calls one accelerator: its extended resource, or the DeviceClass of its claim."""
        return self.spec.resource_name if self.spec.devices is None else self.spec.devices.device_class_name

    @property
    def provision_seconds(self) -> float:
        """Expected seconds until a requested node offers its accelerators, as measured or declared; 0 if none comes."""
        if self.spec.elastic is None or self.status.backs_off:
            return 0.0
        measured = self.status.elastic.measured_provision_seconds if self.status.elastic is not None else None
        return float(self.spec.elastic.provision_seconds if measured is None else measured)

    @property
    def node_selector(self) -> LabelSelector:
        """Which Kubernetes nodes belong to the pool. An empty selector selects all."""
        if self.spec.node_selector.is_empty and self.spec.devices is None:
            return LabelSelector(match_labels={POOL_LABEL: self.metadata.name})
        return self.spec.node_selector
