"""A planning problem prepared for strategies: rates, latency graph, and every module's classes and templates."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from partita_api.inferencesession import CostModel, ObjectiveType
from partita_api.session.execution import CutDType
from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.allocation.resources import AvailableResources, PriceUnit
from partita_planner.allocation.template_search import NothingFound
from partita_planner.problem import PlanningProblem
from partita_planner.session.latency import LatencyGraph, collection_micros, latency_graph
from partita_planner.session.session_graph import module_rates
from partita_planner.solver.deadline import Deadline
from partita_planner.templates.enumeration import Enumeration, enumerate_fewer, enumerate_templates, fastest_micros
from partita_planner.templates.templates import ModuleClass, Template, TemplateLimits, module_classes

SIZED_STAGES: Final = 2
"""For least cost, pipelines of up to so many stages are distinguished by their vGPU sizes."""
ENUMERATION_SHARE: Final = 0.3
"""Share of the remaining time for enumerating the templates of all modules."""


@dataclass(frozen=True)
class TaskSolution:
    """What a strategy finds."""

    deployments: ModuleDeployments
    rate: float
    """Requests per second that it is planned for."""
    value: float
    """Price per hour, watts, or requests per second that the pools can serve."""
    bound: float
    """Proven: no plan that the strategy may choose has a better value."""
    without_margin: float | None = None
    """The value of the best plan that need not survive losses; None if there is no margin, or if it is not known."""

    @property
    def latencies(self) -> dict[str, int]:
        """The worst-case latency of every model's slowest pipeline, in microseconds."""
        return self.deployments.latencies

    @property
    def relative_gap(self) -> float:
        """Distance between value and bound, relative to the value."""
        return abs(self.value - self.bound) / self.value if self.value else 0.0


@dataclass(frozen=True)
class Task:
    """What a strategy solves: a planning problem, and the templates that may be used."""

    problem: PlanningProblem
    max_stages: int
    undivided: bool = False
    """Whether only undivided GPUs are used, not vGPUs."""
    pooled: bool = False
    """Whether stages may share GPUs when throughput is maximised; for least cost they always may."""

    @classmethod
    def of(cls, problem: PlanningProblem) -> "Task":
        """The task with all templates that the session and its pools allow."""
        return cls(problem, problem.spec.planner.max_stages)

    def without_partitioning(self) -> "Task":
        """The same task for one stage on whole GPUs."""
        return replace(self, max_stages=1, undivided=True, pooled=False)

    def without_margin(self) -> "Task":
        """The same task for plans that need not survive losses."""
        spec = self.problem.spec.model_copy(update={"availability": None})
        return replace(self, problem=replace(self.problem, spec=spec))

    def with_gpus(self, gpus: Mapping[str, int]) -> "Task":
        """The same task with so many GPUs in the named pools."""
        return replace(self, problem=self.problem.with_gpus(gpus))

    def with_slo(self, millis: int) -> "Task":
        """The same task with another SLO, in milliseconds."""
        return replace(self, problem=self.problem.with_slo(millis))

    def with_rate(self, rate: float) -> "Task":
        """The same task for another rate, in requests per second."""
        return replace(self, problem=self.problem.with_rate(rate))

    @property
    def objective(self) -> AllocationObjective:
        """What is optimised for the session."""
        objective = self.problem.spec.objective
        if objective.type.seeks_throughput:
            return AllocationObjective.THROUGHPUT
        return (
            AllocationObjective.OCCUPANCY
            if objective.cost_model is CostModel.OCCUPANCY
            else AllocationObjective.ALLOCATED
        )

    @property
    def margin(self) -> LossMargin | None:
        """The losses that plans survive."""
        return LossMargin.of(self.problem.spec.availability)

    @cached_property
    def resources(self) -> AvailableResources:
        """The pools and their prices; stages take whole GPUs if throughput is maximised, else vGPUs."""
        price_unit = PriceUnit.WATTS if self.problem.spec.objective.type is ObjectiveType.POWER else PriceUnit.MONEY
        pools = {pool.name: pool for pool in self.problem.pools}
        return AvailableResources(
            pools,
            whole_gpus=self.objective is AllocationObjective.THROUGHPUT and not self.pooled,
            price_unit=price_unit,
        )

    @cached_property
    def graph(self) -> LatencyGraph:
        """The session's DAG and the time limit of its paths."""
        return latency_graph(self.problem.spec)

    @cached_property
    def classes(self) -> Mapping[str, tuple[ModuleClass, ...]]:
        """For every model the pools with GPUs on which it has a profile."""
        fp16 = self.problem.spec.execution.cut_dtype is CutDType.FP16
        return {
            name: module_classes(name, self.problem.pools, self.problem.profiles, fp16) for name in self.graph.models
        }

    @property
    def coupled(self) -> LatencyGraph | None:
        """The graph if several models share its paths; None if each template only has to keep its own latency limit."""
        return self.graph if len(self.graph.models) > 1 else None

    @property
    def kept_free(self) -> float:
        """Share of the capacity that is kept free for bursts."""
        return self.problem.spec.planner.headroom_percent / 100

    def limits(self, module_rate: float, budget_micros: int) -> TemplateLimits:
        """Limits on a module's templates at its rate."""
        return TemplateLimits(
            budget_micros=budget_micros,
            collection=lambda batch: collection_micros(batch, module_rate),
            max_stages=self.max_stages,
            max_batch_size=self.problem.spec.planner.max_batch_size,
            whole_gpus=self.resources.whole_gpus,
            undivided=self.undivided,
            latency_counts=len(self.graph.models) > 1,
        )

    def fastest_micros(self, module: str) -> int | None:
        """The least latency of the module on the pools; None if no pool can run it."""
        rate = module_rates(self.problem.spec, self.problem.rate)[module]
        return fastest_micros(self.classes[module], self.limits(rate, 0))

    def templates(self, module: str, limits: TemplateLimits, deadline: Deadline) -> Enumeration:
        """The templates of one module."""
        if self.objective is AllocationObjective.THROUGHPUT:
            return enumerate_templates(self.classes[module], limits, deadline)
        return enumerate_fewer(self.classes[module], limits, SIZED_STAGES, deadline)

    def demands(self, rate: float, deadline: Deadline, collected_at: float | None = None) -> tuple[ModuleDemand, ...]:
        """Every model's demand at `rate` requests per second, with the templates that leave the others enough time.

        Batches are collected while `collected_at` requests per second arrive, by default `rate`. A module has no
        templates if no plan keeps the SLO. Enumerating templates of several stages takes at most ENUMERATION_SHARE of
        the time until `deadline`, an equal part for each module.
        """
        rates = module_rates(self.problem.spec, rate)
        collected = module_rates(self.problem.spec, collected_at or rate)
        slo = self.graph.slo_micros
        ends = deadline.share(ENUMERATION_SHARE)
        found: dict[str, Enumeration] = {}
        for left, module in zip(range(len(self.classes), 0, -1), self.classes, strict=True):
            found[module] = self.templates(module, self.limits(collected[module], slo), ends.share(1 / left))
        least = {m: min((t.latency_micros for t in e.templates), default=slo + 1) for m, e in found.items()}
        headroom = self.graph.latency_headroom(least)
        return tuple(
            ModuleDemand(m, rates[m], rates[m] / (1 - self.kept_free), _within(e.templates, headroom[m]), e.complete)
            for m, e in found.items()
        )


SolveTask = Callable[[Task, Deadline], TaskSolution | NothingFound]
"""Solves a task by the deadline."""


def _within(templates: tuple[Template, ...], budget_micros: int) -> tuple[Template, ...]:
    return tuple(t for t in templates if t.latency_micros <= budget_micros)
