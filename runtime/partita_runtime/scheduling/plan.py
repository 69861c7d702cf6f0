"""The scheduling core's form of a plan: stages with their latency tables."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Self

from pydantic import model_validator

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.meta import SpecModel
from partita_api.module_graph import longest_after, with_size_classes
from partita_api.pipelineplan import PipelinePlanSpec, PooledPipeline
from partita_api.profile import Profile
from partita_api.session.execution import Batching, BatchingPolicy, CutDType
from partita_runtime.scheduling.events import StageRef


class ScheduledStage(SpecModel):
    """One stage of a pooled pipeline."""

    pool: str
    first_block: int
    end_block: int
    vgpu_divisor: int
    replicas: int
    latency_micros: tuple[int, ...]
    """Execution time of a batch of b samples at index b - 1, for b up to the pipeline's batch size."""
    output_bytes: int = 0
    """Bytes of one sample's feature map to the next stage, at the cut's element type; 0 for the last stage."""
    subcluster: str | None = None
    """Stages of the same sub-cluster have the same workers."""

    @model_validator(mode="after")
    def _has_work(self) -> Self:
        if not 0 <= self.first_block < self.end_block:
            raise ValueError(f"a stage needs one block or more, not [{self.first_block}, {self.end_block})")
        if min(self.latency_micros, default=0) < 0:
            raise ValueError("a latency is negative; give microseconds of 0 or more")
        return self


class ScheduledPipeline(SpecModel):
    """One pooled pipeline: any worker of a stage may feed any worker of the next."""

    name: str
    batch_size: int
    stages: tuple[ScheduledStage, ...]

    @model_validator(mode="after")
    def _stages_meet(self) -> Self:
        if not self.stages:
            raise ValueError(f"pipeline {self.name!r} has no stage; leave it out")
        for number, (before, after) in enumerate(pairwise(self.stages)):
            if before.end_block != after.first_block:
                raise ValueError(
                    f"pipeline {self.name!r}: stage {number} ends before block {before.end_block}, and stage "
                    f"{number + 1} begins with block {after.first_block}; stages must meet"
                )
        for number, stage in enumerate(self.stages):
            if not 1 <= self.batch_size <= len(stage.latency_micros):
                raise ValueError(
                    f"pipeline {self.name!r}: stage {number} has latencies for batches of 1 to "
                    f"{len(stage.latency_micros)}, not for {self.batch_size}"
                )
        return self


class ScheduledModule(SpecModel):
    """One module that the core batches for."""

    name: str
    budget_micros: int
    downstream_micros: int
    """Longest sum of budgets after this module: its deadlines are this much before the request's."""
    pipelines: tuple[ScheduledPipeline, ...]
    policy: str | None = None
    """Its batching policy, if it differs from the plan's."""

    @model_validator(mode="after")
    def _pipelines_differ(self) -> Self:
        if not self.pipelines:
            raise ValueError(f"module {self.name!r} has no pipeline; leave it out")
        _differ("pipeline", [pipeline.name for pipeline in self.pipelines])
        return self


class SchedulingPlan(SpecModel):
    """A plan as the scheduling core reads it."""

    name: str
    policy: str = BatchingPolicy.DEFERRED
    """The name of a batching policy, with its parameters if it has some (see `policies.registry`)."""
    bandwidth: dict[str, float] = {}
    """Bits per second of one node's network, by GPUPool."""
    modules: tuple[ScheduledModule, ...]

    @property
    def policies(self) -> tuple[str, ...]:
        """The names of all batching policies in use, each once."""
        return tuple(dict.fromkeys([self.policy, *(module.policy or self.policy for module in self.modules)]))

    def stages(self) -> Iterator[tuple[StageRef, ScheduledStage]]:
        """All stages, in the plan's order."""
        for module in self.modules:
            for pipeline in module.pipelines:
                for number, stage in enumerate(pipeline.stages):
                    yield StageRef(module.name, pipeline.name, number), stage

    def width(self, replicas: Mapping[StageRef, Collection[str]]) -> int:
        """Samples in progress at once if each replica runs a full batch; the least of all modules."""
        return min(
            sum(
                pipeline.batch_size
                * min(len(replicas[StageRef(module.name, pipeline.name, n)]) for n in range(len(pipeline.stages)))
                for pipeline in module.pipelines
            )
            for module in self.modules
        )

    @model_validator(mode="after")
    def _modules_differ(self) -> Self:
        _differ("module", [module.name for module in self.modules])
        return self


def scheduling_plan(
    name: str,
    session: InferenceSessionSpec,
    plan: PipelinePlanSpec,
    profiles: Mapping[tuple[str, str], Profile],
    bandwidth: Mapping[str, float],
) -> SchedulingPlan:
    """The scheduling plan of a pipeline plan; profiles are by (module, pool), bandwidth in bit/s by pool.

    Raises KeyError naming the (module, pool) whose profile is missing.
    """
    session = with_size_classes(session)
    downstream = longest_after(session, {module.name: module.budget_micros for module in plan.modules})
    policies = {name: _policy(session.batching, policy) for name, policy in session.batching.modules.items()}
    return SchedulingPlan(
        name=name,
        policy=_policy(session.batching, session.batching.policy),
        bandwidth=dict(bandwidth),
        modules=tuple(
            ScheduledModule(
                name=module.name,
                budget_micros=module.budget_micros,
                downstream_micros=downstream[module.name],
                pipelines=tuple(
                    _pipeline(module.name, pipeline, profiles, session.execution.cut_dtype)
                    for pipeline in module.pipelines
                ),
                policy=policies.get(module.name),
            )
            for module in plan.modules
            if module.pipelines
        ),
    )


def _policy(batching: Batching, policy: BatchingPolicy) -> str:
    """A policy as `policies.registry` names it, with its parameters."""
    elsa = batching.elsa
    if policy is not BatchingPolicy.ELSA or elsa is None:
        return policy
    return f"{policy}:{elsa.alpha_percent / 100:g}:{elsa.beta_percent / 100:g}"


def one_model_plan(
    name: str, latency_ms: Sequence[float], gpus: int, policy: str = BatchingPolicy.DEFERRED
) -> SchedulingPlan:
    """A plan for one model on whole GPUs of a pool named "gpu": one pipeline "a" with one stage.

    `latency_ms` is the execution time of a batch of b samples at index b - 1, up to the largest batch.
    """
    stage = ScheduledStage(
        pool="gpu",
        first_block=0,
        end_block=1,
        vgpu_divisor=1,
        replicas=gpus,
        latency_micros=tuple(round(1000 * millis) for millis in latency_ms),
    )
    pipeline = ScheduledPipeline(name="a", batch_size=len(latency_ms), stages=(stage,))
    module = ScheduledModule(name=name, budget_micros=0, downstream_micros=0, pipelines=(pipeline,))
    return SchedulingPlan(name=name, policy=policy, modules=(module,))


def stage_latency(profile: Profile, first: int, end: int, divisor: int, batch: int) -> float:
    """Microseconds of blocks [first, end) for a batch: measured, or interpolated between measured batch sizes.

    A smaller batch never takes longer than a larger one: noise only adds to a measurement. Deferred batches rely on
    it: they wait as long as a batch with one more request would still be in time.

    Raises KeyError if the profile lacks the vGPU divisor, ValueError if the batch is larger than all measured ones.
    """
    vgpu = profile.divisor(divisor)
    if vgpu is None:
        raise KeyError(f"profile {profile.key} has no times for vGPUs of 1/{divisor}")
    sizes = profile.batch_sizes
    if batch > sizes[-1]:
        raise ValueError(f"profile {profile.key} goes up to batches of {sizes[-1]}, not {batch}")
    measured = [sum(vgpu.median_micros[block][i] for block in range(first, end)) for i in range(len(sizes))]
    totals = list(accumulate(reversed(measured), min))[::-1]
    at = next(i for i, size in enumerate(sizes) if size >= batch)
    if sizes[at] == batch or at == 0:
        return totals[at]
    share = (batch - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
    return totals[at - 1] + share * (totals[at] - totals[at - 1])


def _pipeline(
    module: str, pipeline: PooledPipeline, profiles: Mapping[tuple[str, str], Profile], cut_dtype: CutDType
) -> ScheduledPipeline:
    stages = []
    for stage in pipeline.stages:
        profile = profiles[module, stage.pool]
        first, end = stage.blocks.first, stage.blocks.end
        crossing = profile.cuts[end - 1].bytes if end < profile.blocks else 0
        stages.append(
            ScheduledStage(
                pool=stage.pool,
                first_block=first,
                end_block=end,
                vgpu_divisor=stage.vgpu_divisor,
                replicas=stage.replicas,
                latency_micros=tuple(
                    round(stage_latency(profile, first, end, stage.vgpu_divisor, b))
                    for b in range(1, pipeline.batch_size + 1)
                ),
                output_bytes=crossing // 2 if cut_dtype is CutDType.FP16 else crossing,
                subcluster=stage.subcluster,
            )
        )
    return ScheduledPipeline(name=pipeline.name, batch_size=pipeline.batch_size, stages=tuple(stages))


def _differ(kind: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{kind} {twice[0]!r} exists twice; give each a unique name")
