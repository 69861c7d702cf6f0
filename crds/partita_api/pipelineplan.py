"""PipelinePlan: the planner's answer for one session. It is immutable except for its approval."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from math import ceil
from typing import ClassVar, Self

from pydantic import Field, model_validator

from partita_api.conditions import Condition
from partita_api.digests import CONTENT_PATTERN
from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import ObjectiveType
from partita_api.measured import Measured
from partita_api.meta import API_VERSION, ObjectMeta, SpecModel, StatusModel, TransitionRule, is_unset
from partita_api.quality import QualityResult
from partita_api.session.autoscaling import Loss
from partita_api.session.module import ModuleName


def whole_accelerators(vgpus: Iterable[tuple[str, int, int]]) -> dict[str, int]:
    """Accelerators that vGPUs take, by pool; each item is pool, divisor and number of vGPUs.

    An accelerator is divided into vGPUs of one size only, and only by one plan.
    """
    counts: dict[tuple[str, int], int] = {}
    for pool, divisor, count in vgpus:
        counts[pool, divisor] = counts.get((pool, divisor), 0) + count
    taken: dict[str, int] = {}
    for (pool, divisor), count in sorted(counts.items()):
        taken[pool] = taken.get(pool, 0) + ceil(count / divisor)
    return taken


class BlockRange(SpecModel):
    """Blocks `first` up to, but without, `end`."""

    first: int = Field(ge=0, le=64, description="The first block.")
    end: int = Field(ge=1, le=64, description="The block after the last one.")


class Stage(SpecModel):
    """One partition of a module on one pool: `replicas` vGPUs that all run the same blocks."""

    blocks: BlockRange = Field(description="The blocks of the module that this stage runs.")
    pool: str = Field(max_length=253, description="The GPUPool.")
    vgpu_divisor: int = Field(default=1, ge=1, le=8, description="Each replica has 1/vgpuDivisor of an accelerator.")
    replicas: int = Field(ge=1, le=1_000_000, description="How many vGPUs.")
    latency_micros: int = Field(ge=0, description="Execution time of one batch, from the profile.")
    transfer_micros: int = Field(ge=0, default=0, description="Time to send one batch to the next stage.")
    subcluster: ModuleName | None = Field(
        default=None,
        description="The sub-cluster that runs the stage: each of its vGPUs holds all models whose stages name "
        "it, and runs their batches in turn. Unset: the stage has its own vGPUs.",
    )


class PooledPipeline(SpecModel):
    """Stages in a row; any replica of one may feed any replica of the next (PPipe, section 3)."""

    name: str = Field(max_length=40, description="Name of the pipeline, unique in its module.")
    batch_size: int = Field(ge=1, le=1024, description="The batch size of all of its stages.")
    stages: tuple[Stage, ...] = Field(min_length=1, max_length=8, description="Its stages, in order.")
    throughput: Quantity = Field(description="Samples per second that it can serve.")


class ModulePlan(SpecModel):
    """How one module of the session is served."""

    name: ModuleName = Field(description="The module.")
    rate: Quantity = Field(description="Samples per second that the module is planned for.")
    budget_micros: int = Field(ge=0, description="Its share of the SLO: collection, execution and transfers.")
    pipelines: tuple[PooledPipeline, ...] = Field(
        default=(), max_length=16, description="Its pooled pipelines; empty for a CPU function, and with paddedTo."
    )
    padded_to: ModuleName | None = Field(
        default=None,
        exclude_if=is_unset,
        description="Of a size class without replicas of its own: the larger class that its samples are padded to. The "
        "rate of that class includes them.",
    )


class ProfileRef(SpecModel):
    """A profile that the plan was made from."""

    module: ModuleName = Field(description="The module.")
    pool: str = Field(max_length=253, description="The GPUPool.")
    key: str = Field(max_length=64, description="Content key of the profile.")
    content: str | None = Field(
        default=None,
        pattern=CONTENT_PATTERN,
        exclude_if=is_unset,
        description="What the model was loaded from when it was profiled, and what the plan's replicas load. Unset if "
        "not known.",
    )


class Alternative(SpecModel):
    """The result of another strategy, or of the same one without a pool."""

    strategy: str = Field(max_length=40, description="The strategy.")
    without_pool: str | None = Field(
        default=None, max_length=253, description="A GPUPool of the plan that the alternative may not use."
    )
    feasible: bool = Field(description="Whether it found a plan.")
    value: Quantity | None = Field(default=None, description="Its objective value.")
    summary: str = Field(default="", max_length=1024, description="Its plan in one line.")


class ConstraintType(StrEnum):
    """What may bound a plan."""

    GPUS = "GPUs"
    LATENCY = "Latency"


class Evidence(StrEnum):
    """How the worth of a constraint was computed."""

    RESOLVED = "Resolved"
    RELAXED = "Relaxed"


class Constraint(SpecModel):
    """A limit that the plan keeps, and the gain from a little more of it."""

    type: ConstraintType = Field(
        description='GPUs: the accelerators of a pool; "more" means one more. Latency: the SLO; "more" means a '
        "tenth more."
    )
    pool: str | None = Field(default=None, max_length=253, description="The GPUPool, of type GPUs.")
    modules: tuple[ModuleName, ...] = Field(
        default=(), max_length=32, description="Of type Latency: the modules that would take more time."
    )
    binding: bool = Field(
        description="Whether more would make a better plan. If no worth is known: whether it is used up."
    )
    worth: Quantity | None = Field(
        default=None,
        description="Gain from more, in the objective's unit: price per hour or watts saved, requests per second "
        "gained (the shadow price).",
    )
    evidence: Evidence | None = Field(
        default=None,
        description="Resolved: planned again with that much more. Relaxed: a dual of the linear relaxation, which "
        "allows fractions of an accelerator; one whole accelerator may be worth more or less, or "
        "nothing.",
    )


class WorstLoss(SpecModel):
    """The loss that leaves least of a plan, of those that its session survives by spec.availability."""

    lost: str = Field(max_length=512, description="What is lost.")
    throughput: Quantity = Field(description="Requests per second that the rest can serve.")
    value_without: Quantity | None = Field(
        default=None,
        description="Objective value of the best plan that need not survive losses. Unset if it is not known.",
    )


class Solution(SpecModel):
    """How good the plan is, and how that is known."""

    strategy: str = Field(max_length=40, description="The planning strategy.")
    objective: ObjectiveType = Field(description="What was optimised.")
    value: Quantity = Field(description="Objective value: price per hour, watts, or requests per second.")
    bound: Quantity = Field(description="Proven bound on the objective value.")
    gap: Quantity = Field(description="Relative distance between value and bound.")
    seconds: Quantity = Field(description="Seconds that the search took.")
    explanation: str = Field(
        default="", max_length=4096, description="What binds the plan, and why the runner-up is worse."
    )
    constraints: tuple[Constraint, ...] = Field(
        default=(), max_length=64, description="What limits the plan, and the gain from more of it."
    )
    runner_up: Alternative | None = Field(
        default=None,
        description="The best other known plan: with whole models on whole accelerators, or of the same strategy "
        "without one of the used pools.",
    )
    worst_loss: WorstLoss | None = Field(
        default=None, exclude_if=is_unset, description="The worst loss, and the cost of surviving it."
    )


class Costs(SpecModel):
    """Price per hour under both cost models, and power."""

    allocated_per_hour: Quantity = Field(description="Whole vGPUs, as on a bill.")
    occupancy_per_hour: Quantity = Field(
        description="In proportion to the time in which vGPUs work at the planned rate."
    )
    power_watts: Quantity | None = Field(
        default=None, description="Watts of all vGPUs; unset if a used pool has no powerWatts."
    )


class SessionRef(SpecModel):
    """The session that a plan is for."""

    name: str = Field(max_length=253, description="Name of the InferenceSession.")
    uid: str = Field(default="", max_length=64, description="Its uid.")
    generation: int = Field(default=0, ge=0, description="Its generation when the plan was made.")


def _is_kept(field: str) -> str:
    """In CEL: an optional field is as before. The API server cannot bound the cost of `self.?field == ...`."""
    return f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"


class PipelinePlanSpec(SpecModel):
    """The plan. Only `approved` may change."""

    transition_rules: ClassVar[tuple[TransitionRule, ...]] = (
        TransitionRule(
            "only spec.approved of a PipelinePlan may change; to get another plan, change the InferenceSession",
            lambda old, new: old.model_copy(update={"approved": new.approved}) == new,
            "self.session == oldSelf.session && self.inputsDigest == oldSelf.inputsDigest && "
            "self.solution == oldSelf.solution && self.modules == oldSelf.modules && self.cost == oldSelf.cost && "
            f"self.throughput == oldSelf.throughput && {_is_kept('alternatives')} && {_is_kept('profiles')} && "
            f"{_is_kept('measured')}",
        ),
    )

    approved: bool = Field(default=True, description="Whether the plan may be rolled out.")
    session: SessionRef = Field(description="The session that this plan is for.")
    inputs_digest: str = Field(
        max_length=64, description="Digest of the session, pools and profiles that the plan was made from."
    )
    solution: Solution = Field(description="Objective value, bound and explanation of the plan.")
    modules: tuple[ModulePlan, ...] = Field(min_length=1, max_length=32, description="How each module is served.")
    cost: Costs = Field(description="What the plan costs.")
    throughput: Quantity = Field(description="Requests per second that the plan can serve.")
    alternatives: tuple[Alternative, ...] = Field(
        default=(), max_length=16, description="Other plans that were considered."
    )
    profiles: tuple[ProfileRef, ...] = Field(default=(), max_length=1024, description="The profiles it was made from.")
    measured: Measured | None = Field(
        default=None,
        exclude_if=is_unset,
        description="What it was made for instead of what the session's spec says, because it was measured.",
    )

    @model_validator(mode="after")
    def _subclusters_agree(self) -> Self:
        sizes: dict[str, tuple[str, int, int]] = {}
        for module, pipeline, _, stage in self.stages():
            if stage.subcluster is None:
                continue
            if len(pipeline.stages) > 1:
                raise ValueError(
                    f"{module.name}/{pipeline.name}: a sub-cluster holds whole models, not one of "
                    f"{len(pipeline.stages)} stages"
                )
            size = stage.pool, stage.vgpu_divisor, stage.replicas
            if sizes.setdefault(stage.subcluster, size) != size:
                raise ValueError(
                    f"sub-cluster {stage.subcluster!r}: all of its stages need the same pool, vgpuDivisor and "
                    f"replicas, not {sizes[stage.subcluster]} and {size}"
                )
        return self

    def stages(self) -> Iterator[tuple[ModulePlan, PooledPipeline, int, Stage]]:
        """All stages, each with its module, its pipeline and its position there."""
        for module in self.modules:
            for pipeline in module.pipelines:
                for position, stage in enumerate(pipeline.stages):
                    yield module, pipeline, position, stage

    @property
    def shares_gpus(self) -> bool:
        """Whether it has sub-clusters."""
        return any(stage.subcluster is not None for _, _, _, stage in self.stages())

    def gpus(self, replicas: Mapping[tuple[str, str, int], int] | None = None) -> dict[str, int]:
        """Whole accelerators that the plan takes, by pool.

        `replicas` replaces the planned replicas: by module, pipeline and position of the stage. The stages of a
        sub-cluster share its vGPUs, so the stage with the most replicas counts.
        """
        present = replicas or {}
        vgpus: dict[tuple[str, ...], tuple[str, int, int]] = {}
        for module, pipeline, position, stage in self.stages():
            own = (module.name, pipeline.name, str(position))
            place = own if stage.subcluster is None else (stage.subcluster,)
            count = present.get((module.name, pipeline.name, position), stage.replicas)
            most = max(count, vgpus[place][2]) if place in vgpus else count
            vgpus[place] = stage.pool, stage.vgpu_divisor, most
        return whole_accelerators(vgpus.values())


def after_losses(plan: PipelinePlanSpec, loss: Loss) -> Iterator[tuple[str, tuple[ModulePlan, ...]]]:
    """For each loss: what is lost, and the modules with the pipelines that are left. They keep their figures.

    A pipeline is gone once one of its stages has no replica.
    """
    match loss:
        case Loss.REPLICA:
            for module, pipeline, position, stage in plan.stages():
                lost = f"a replica of {module.name}/{pipeline.name}, stage {position}, on {stage.pool}"
                fewer = _with_one_less(pipeline, position)
                yield lost, tuple(_with(m, pipeline, fewer) if m is module else m for m in plan.modules)
        case Loss.POOL:
            for pool in sorted({stage.pool for _, _, _, stage in plan.stages()}):
                yield f"pool {pool}", tuple(_without_pool(module, pool) for module in plan.modules)


def _with_one_less(pipeline: PooledPipeline, position: int) -> PooledPipeline | None:
    stages = list(pipeline.stages)
    if stages[position].replicas == 1:
        return None
    stages[position] = stages[position].model_copy(update={"replicas": stages[position].replicas - 1})
    return pipeline.model_copy(update={"stages": tuple(stages)})


def _with(module: ModulePlan, pipeline: PooledPipeline, other: PooledPipeline | None) -> ModulePlan:
    changed = (other if each is pipeline else each for each in module.pipelines)
    return module.model_copy(update={"pipelines": tuple(each for each in changed if each is not None)})


def _without_pool(module: ModulePlan, pool: str) -> ModulePlan:
    left = tuple(each for each in module.pipelines if not any(stage.pool == pool for stage in each.stages))
    return module.model_copy(update={"pipelines": left})


class StageStatus(StatusModel):
    """One stage of the plan as it runs."""

    module: str = Field(description="The module.")
    pipeline: str = Field(description="The pipeline.")
    stage: int = Field(description="Position in the pipeline, from 0.")
    pool: str = Field(description="The GPUPool.")
    desired: int = Field(description="Replicas requested now: the planned number, changed by the autoscaler.")
    ready: int = Field(default=0, description="Replicas that are up.")
    message: str = Field(default="", max_length=1024, description="What is wrong; empty if nothing is.")


class PipelinePlanStatus(StatusModel):
    """Observed state of a PipelinePlan."""

    observed_generation: int = Field(default=0, description="The generation that this status is about.")
    stages: tuple[StageStatus, ...] = Field(
        default=(), max_length=4096, description="The present state of every stage."
    )
    quality: QualityResult | None = Field(
        default=None, description="How its answers have passed the quality check of its session."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


class PipelinePlan(SpecModel):
    """The solver's answer for one InferenceSession (namespaced, owned by it)."""

    model_config = StatusModel.model_config

    api_version: str = API_VERSION
    kind: str = "PipelinePlan"
    metadata: ObjectMeta
    spec: PipelinePlanSpec
    status: PipelinePlanStatus = PipelinePlanStatus()
