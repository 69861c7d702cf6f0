"""The current plan as a solution of the present problem: a warm start for the search."""

from collections.abc import Mapping

from partita_api.pipelineplan import PooledPipeline
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment, in_dispatch_order
from partita_planner.session.latency import SECOND, collection_micros
from partita_planner.session.session_graph import module_rates
from partita_planner.task.task import Task
from partita_planner.templates.templates import ModuleClass, Template, TemplateStage
from partita_planner.validation import validate


def current_deployments(task: Task, rate: float) -> ModuleDeployments | None:
    """The deployments of the current plan; batches are collected while `rate` requests per second arrive.

    None if there is no current plan, if it is invalid for the present problem, or if it uses what the task excludes:
    more stages, vGPUs, sub-clusters, padded size classes, or parts of GPUs where stages own whole GPUs.
    """
    plan = task.problem.current_plan
    if plan is None or plan.shares_gpus or any(module.padded_to is not None for module in plan.modules):
        return None
    if validate(plan, task.problem):
        return None
    rates = module_rates(task.problem.spec, rate)
    found: dict[str, tuple[TemplateDeployment, ...]] = {}
    for module in plan.modules:
        if module.name in task.classes:
            classes = {cls.pool.name: cls for cls in task.classes[module.name]}
            group = [_deployment(pipeline, classes, rates[module.name]) for pipeline in module.pipelines]
            found[module.name] = in_dispatch_order(group, task.resources)
    deployments = ModuleDeployments(found)
    allowed = all(_allowed(task, deployment) for deployment in deployments.everything)
    return deployments if allowed and task.graph.keeps_slo(deployments.latencies) else None


def _deployment(pipeline: PooledPipeline, classes: Mapping[str, ModuleClass], rate: float) -> TemplateDeployment:
    batch = pipeline.batch_size
    stages = []
    for stage in pipeline.stages:
        cls, divisor = classes[stage.pool], stage.vgpu_divisor
        first, end = stage.blocks.first, stage.blocks.end
        served = min(batch * SECOND / stage.latency_micros, cls.link_cap(first, divisor), cls.link_cap(end, divisor))
        stages.append(
            TemplateStage(first, end, stage.pool, divisor, stage.latency_micros, stage.transfer_micros, served)
        )
    template = Template(batch, collection_micros(batch, rate), tuple(stages))
    return TemplateDeployment(template, tuple(stage.replicas for stage in pipeline.stages))


def _allowed(task: Task, deployment: TemplateDeployment) -> bool:
    stages = deployment.template.stages
    whole = all(count % stage.divisor == 0 for stage, count in zip(stages, deployment.replicas, strict=True))
    return (
        len(stages) <= task.max_stages
        and (whole or not task.resources.whole_gpus)
        and not (task.undivided and any(stage.divisor > 1 for stage in stages))
    )
