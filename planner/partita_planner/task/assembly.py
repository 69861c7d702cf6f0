"""Turns a solution into a PipelinePlan's spec: budgets, names and costs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal

from partita_api.digests import digest
from partita_api.fields.quantity import Quantity
from partita_api.module_graph import with_size_classes
from partita_api.pipelineplan import (
    BlockRange,
    Costs,
    ModulePlan,
    PipelinePlanSpec,
    PooledPipeline,
    ProfileRef,
    Solution,
    Stage,
    WorstLoss,
)
from partita_api.session.autoscaling import Loss
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import TemplateDeployment, allocated_price, occupancy_price
from partita_planner.allocation.loss_margin import LossMargin, Remaining
from partita_planner.allocation.resources import PriceUnit
from partita_planner.problem import PlanningProblem
from partita_planner.session.latency import distribute_slack
from partita_planner.session.session_graph import module_rates
from partita_planner.task.task import Task, TaskSolution

DECIMALS = Decimal("0.000001")


def assemble(
    task: Task,
    solution: TaskSolution,
    strategy: str,
    seconds: float,
) -> PipelinePlanSpec:
    """The plan of `solution`."""
    problem, deployments = task.problem, solution.deployments
    rates = module_rates(problem.spec, solution.rate)
    calls = module_rates(problem.spec, 1.0)
    budgets = {**task.graph.fixed, **distribute_slack(task.graph, solution.latencies)}
    served = deployments.request_rate(calls)
    return PipelinePlanSpec(
        session=problem.session,
        inputs_digest=inputs_digest(problem),
        solution=Solution(
            strategy=strategy,
            objective=problem.spec.objective.type,
            value=quantity(solution.value),
            bound=quantity(solution.bound),
            gap=quantity(solution.relative_gap),
            seconds=quantity(seconds),
            worst_loss=_worst_loss(task, solution, calls),
        ),
        modules=tuple(
            ModulePlan(
                name=module.name,
                rate=quantity(rates[module.name]),
                budget_micros=budgets[module.name],
                pipelines=tuple(
                    _pipeline(f"p{i}", deployment) for i, deployment in enumerate(deployments.get(module.name, ()))
                ),
            )
            for module in with_size_classes(problem.spec).modules
        ),
        cost=_costs(task, solution),
        throughput=quantity(served, ROUND_FLOOR),
        profiles=tuple(
            ProfileRef(module=module, pool=pool, key=problem.profiles[module, pool].key)
            for module, pool in sorted(_profiles_used(solution))
        ),
    )


def inputs_digest(problem: PlanningProblem) -> str:
    """Digest of everything that the plan depends on, except the current plan."""
    return digest(
        {
            "session": problem.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
            "rate": problem.rate,
            "pools": {p.name: [p.spec.model_dump(mode="json", by_alias=True), p.gpus] for p in problem.pools},
            "profiles": {f"{module}/{pool}": profile.key for (module, pool), profile in problem.profiles.items()},
        }
    )


def quantity(number: float, rounding: str = ROUND_HALF_EVEN) -> Quantity:
    """`number` to six decimals, as Kubernetes writes it."""
    return Quantity(Decimal(repr(float(number))).quantize(DECIMALS, rounding=rounding))


def _pipeline(name: str, deployment: TemplateDeployment) -> PooledPipeline:
    template = deployment.template
    return PooledPipeline(
        name=name,
        batch_size=template.batch,
        throughput=quantity(deployment.throughput, ROUND_FLOOR),
        stages=tuple(
            Stage(
                blocks=BlockRange(first=stage.first, end=stage.end),
                pool=stage.pool,
                vgpu_divisor=stage.divisor,
                replicas=replicas,
                latency_micros=stage.latency_micros,
                transfer_micros=stage.transfer_micros,
            )
            for stage, replicas in zip(template.stages, deployment.replicas, strict=True)
        ),
    )


def _costs(task: Task, solution: TaskSolution) -> Costs:
    rates = module_rates(task.problem.spec, solution.rate)
    needed = [ModuleDemand(name, rates[name], rates[name] / (1 - task.kept_free), ()) for name in solution.deployments]
    everything = solution.deployments.everything
    money, watts = (
        replace(task.resources, price_unit=PriceUnit.MONEY),
        replace(task.resources, price_unit=PriceUnit.WATTS),
    )
    said = all(task.resources.pools[name].spec.power_watts for name in solution.deployments.gpus())
    return Costs(
        allocated_per_hour=quantity(allocated_price(everything, money)),
        occupancy_per_hour=quantity(sum(occupancy_price(solution.deployments[d.module], d, money) for d in needed)),
        power_watts=quantity(allocated_price(everything, watts)) if said else None,
    )


def _worst_loss(task: Task, solution: TaskSolution, calls: Mapping[str, float]) -> WorstLoss | None:
    if task.margin is None:
        return None
    served, lost = min(
        (left.throughput / calls[module], _lost(task.margin, module, group, left))
        for module, group in solution.deployments.items()
        for left in task.margin.after_losses(group)
    )
    without = None if solution.without_margin is None else quantity(solution.without_margin)
    return WorstLoss(lost=lost, throughput=quantity(served, ROUND_FLOOR), value_without=without)


def _lost(margin: LossMargin, module: str, group: Sequence[TemplateDeployment], left: Remaining) -> str:
    pool = group[left.deployment].template.stages[left.stage].pool
    if margin.loss is Loss.POOL:
        return f"pool {pool}"
    return f"a replica of {module}/p{left.deployment}, stage {left.stage}, on {pool}"


def _profiles_used(solution: TaskSolution) -> set[tuple[str, str]]:
    return {
        (module, stage.pool)
        for module, group in solution.deployments.items()
        for deployment in group
        for stage in deployment.template.stages
    }
