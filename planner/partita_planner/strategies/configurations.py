"""The cost papers' strategies on a planning task: one-stage templates as configurations, and schedules as deployments.

The strategies plan with their own worst case, which is never below the worst case of Partita's scheduler: it collects
batches at the whole rate of a module. Dummy requests are not sent. If a schedule keeps the SLO only with dummy requests
(they fill batches sooner than the module's own requests can), the strategy plans again without them. A load of at most
`1 - headroom` on every machine leaves capacity for bursts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from partita_api.inferencesession import ObjectiveType
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import (
    ModuleDeployments,
    TemplateDeployment,
    allocated_price,
    in_dispatch_order,
)
from partita_planner.allocation.template_search import AllocationProblem, NothingFound, value_of
from partita_planner.configurations.schedule import WorkloadSchedule
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule
from partita_planner.problem import NoPlan, NoPlanReason
from partita_planner.session.latency import SECOND
from partita_planner.session.session_graph import module_rates
from partita_planner.solver.deadline import Deadline
from partita_planner.strategies.strategy import Strategy, StrategyRefusal, WorkloadSolver
from partita_planner.task.task import Task, TaskSolution
from partita_planner.templates.templates import Template


def configuration_strategy(
    name: str, answer: WorkloadSolver, without_dummies: WorkloadSolver | None = None
) -> Strategy:
    """A strategy for least cost with models in one stage; `without_dummies` is the solver without dummy requests."""
    return Strategy(
        name,
        restrict=lambda task: replace(task, max_stages=1),
        solve=lambda task, deadline: _solve(
            name, task, [answer, *([without_dummies] if without_dummies else [])], deadline
        ),
        objectives=frozenset({ObjectiveType.COST}),
        solve_workload=answer,
    )


@dataclass(frozen=True)
class _Posed:
    """A task in the papers' terms."""

    demands: tuple[ModuleDemand, ...]
    workload: Workload
    templates: Mapping[str, Mapping[Configuration, Template]]
    """The template of every configuration of a module."""


def _solve(name: str, task: Task, answers: list[WorkloadSolver], deadline: Deadline) -> TaskSolution | NothingFound:
    posed = _pose(task, deadline)
    for answer in answers:
        found = answer(posed.workload, deadline) if posed is not None else None
        if posed is None or found is None:
            continue
        deployments = _deployments(task, posed, found)
        if task.graph.keeps_slo(deployments.latencies):
            return _within_the_pools(name, task, deployments, posed)
    if deadline.passed:
        return NothingFound(proven=False)
    return StrategyRefusal(
        proven=False,
        why=NoPlan(
            NoPlanReason.SLO_TOO_TIGHT,
            f"Strategy {name!r} finds no plan that keeps the SLO. Set planner.strategy to partita, which finds a plan "
            f"if there is one, or raise slo.latencyMs.",
        ),
    )


def _pose(task: Task, deadline: Deadline) -> _Posed | None:
    """The task as a workload; None if some module has no template within the SLO."""
    demands = task.demands(task.problem.rate, deadline)
    templates = {demand.module: demand.templates for demand in demands}
    if not all(templates.values()):
        return None
    by_configuration = {module: {_configuration(task, t): t for t in own} for module, own in templates.items()}
    rates = module_rates(task.problem.spec, task.problem.rate)
    workload = Workload(
        modules=tuple(WorkloadModule(name, rates[name], tuple(own)) for name, own in by_configuration.items()),
        edges=task.graph.edges,
        slo=task.graph.slo_micros / SECOND,
        delays={name: micros / SECOND for name, micros in task.graph.fixed.items()},
    )
    return _Posed(demands, workload, by_configuration)


def _configuration(task: Task, template: Template) -> Configuration:
    (stage,) = template.stages
    return Configuration(
        batch=template.batch,
        duration=stage.latency_micros / SECOND,
        hardware=stage.pool if stage.divisor == 1 else f"{stage.pool}/{stage.divisor}",
        price=task.resources.price(stage),
        concurrency=stage.divisor,
        load=1 - task.kept_free,
    )


def _deployments(task: Task, posed: _Posed, answer: WorkloadSchedule) -> ModuleDeployments:
    found = {
        module: [
            TemplateDeployment(posed.templates[module][allocation.configuration], (allocation.machines,))
            for allocation in schedule.allocations
        ]
        for module, schedule in answer.schedules.items()
    }
    return ModuleDeployments({module: in_dispatch_order(group, task.resources) for module, group in found.items()})


def _within_the_pools(
    name: str, task: Task, deployments: ModuleDeployments, posed: _Posed
) -> TaskSolution | NothingFound:
    """The deployments as a solution, if the pools have the GPUs for them; the strategy does not know the limits.

    The bound is the cost of the cheapest template of each module for the time that it works.
    """
    missing = deployments.missing_gpus(task.resources.pools)
    if missing:
        lacking = ", ".join(f"{count} more of {pool}" for pool, count in missing.items())
        price = sum(allocated_price(group, task.resources) for group in deployments.values())
        return StrategyRefusal(
            proven=False,
            why=NoPlan(
                NoPlanReason.INSUFFICIENT_CAPACITY,
                f"Strategy {name!r} does not know the pools' limits; its plan for {price:g} an hour needs more "
                f"accelerators than the pools have. Add accelerators ({lacking}), or set planner.strategy to partita.",
                gpus_missing=missing,
            ),
        )
    value = value_of(AllocationProblem(posed.demands, task.resources, task.objective), deployments)
    least = sum(d.rate * min(task.resources.sample_price(t) for t in d.templates) for d in posed.demands)
    return TaskSolution(deployments, task.problem.rate, value, min(value, least))
