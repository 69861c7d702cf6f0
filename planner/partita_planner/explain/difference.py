"""The differences between two plans: pipelines, batch sizes, replicas, budgets, GPUs, cost and throughput."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from partita_api.pipelineplan import ModulePlan, PipelinePlanSpec, PooledPipeline, Stage


@dataclass(frozen=True)
class PlanDifference:
    """One thing that differs."""

    where: str
    """The plan, a pool, a module, or a pipeline by its module, blocks and pools."""
    what: str
    before: str | None
    """None if it is new."""
    after: str | None
    """None if it is removed."""


def differences(before: PipelinePlanSpec, after: PipelinePlanSpec) -> tuple[PlanDifference, ...]:
    """What a roll-out of `after` changes while `before` serves; empty if nothing changes.

    Two pipelines are the same if their stages have the same blocks, pools and vGPU sizes. Names do not count, nor how
    the plans were found.
    """
    return tuple(change for change in _all(before, after) if change.before != change.after)


def _all(before: PipelinePlanSpec, after: PipelinePlanSpec) -> Iterator[PlanDifference]:
    old = {module.name: module for module in before.modules}
    new = {module.name: module for module in after.modules}
    for name in dict.fromkeys((*old, *new)):
        yield from _module(name, old.get(name), new.get(name))
    gpus_before, gpus_after = before.gpus(), after.gpus()
    for pool in sorted({*gpus_before, *gpus_after}):
        yield PlanDifference(
            f"pool {pool}", "accelerators", str(gpus_before.get(pool, 0)), str(gpus_after.get(pool, 0))
        )
    for what, one, other in (
        ("strategy", before.solution.strategy, after.solution.strategy),
        ("objective", before.solution.objective, after.solution.objective),
        ("cost an hour", before.cost.allocated_per_hour, after.cost.allocated_per_hour),
        ("cost an hour by occupancy", before.cost.occupancy_per_hour, after.cost.occupancy_per_hour),
        ("throughput in requests/s", before.throughput, after.throughput),
    ):
        yield PlanDifference("plan", what, str(one), str(other))
    served_before, served_after = (_served_after_loss(plan) for plan in (before, after))
    yield PlanDifference("plan", "requests/s after the worst loss", served_before, served_after)


def _served_after_loss(plan: PipelinePlanSpec) -> str | None:
    worst = plan.solution.worst_loss
    return None if worst is None else str(worst.throughput)


def _module(name: str, before: ModulePlan | None, after: ModulePlan | None) -> Iterator[PlanDifference]:
    label = f"module {name}"
    if before is None or after is None:
        yield PlanDifference(label, "module", "served" if before else None, "served" if after else None)
    else:
        yield PlanDifference(label, "requests/s", before.rate, after.rate)
        yield PlanDifference(
            label, "budget in ms", f"{before.budget_micros / 1000:g}", f"{after.budget_micros / 1000:g}"
        )
        yield PlanDifference(label, "padded to", before.padded_to, after.padded_to)
    pairs = _paired(before.pipelines if before else (), after.pipelines if after else ())
    for old, new in pairs:
        yield from _pipeline(label, old, new)


def _pipeline(module: str, before: PooledPipeline | None, after: PooledPipeline | None) -> Iterator[PlanDifference]:
    there = after or before
    if there is None:
        return
    label = f"{module}, {' -> '.join(_stage(stage) for stage in there.stages)}"
    if before is None or after is None:
        summary = f"batches of {there.batch_size}, replicas {', '.join(str(s.replicas) for s in there.stages)}"
        yield PlanDifference(label, "pipeline", summary if before else None, summary if after else None)
        return
    yield PlanDifference(label, "batch size", str(before.batch_size), str(after.batch_size))
    for position, (old, new) in enumerate(zip(before.stages, after.stages, strict=True)):
        yield PlanDifference(label, f"replicas of stage {position}", str(old.replicas), str(new.replicas))


def _paired(
    before: Sequence[PooledPipeline], after: Sequence[PooledPipeline]
) -> list[tuple[PooledPipeline | None, PooledPipeline | None]]:
    """Old and new pipelines in pairs: first those with equal stages and batch size, then those with equal stages."""
    old, new = list(before), list(after)
    pairs: list[tuple[PooledPipeline | None, PooledPipeline | None]] = []
    identities: tuple[Callable[[PooledPipeline], Hashable], ...] = (lambda p: (p.batch_size, _shape(p)), _shape)
    for identity in identities:
        for pipeline in list(old):
            same = next((other for other in new if identity(other) == identity(pipeline)), None)
            if same is not None:
                pairs.append((pipeline, same))
                old.remove(pipeline)
                new.remove(same)
    return [*pairs, *((pipeline, None) for pipeline in old), *((None, pipeline) for pipeline in new)]


def _shape(pipeline: PooledPipeline) -> tuple[Hashable, ...]:
    return tuple((s.blocks.first, s.blocks.end, s.pool, s.vgpu_divisor) for s in pipeline.stages)


def _stage(stage: Stage) -> str:
    size = f" (1/{stage.vgpu_divisor})" if stage.vgpu_divisor > 1 else ""
    return f"blocks {stage.blocks.first}-{stage.blocks.end - 1} on {stage.pool}{size}"
