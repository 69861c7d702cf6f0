"""The result of an allocation: templates with vGPU counts, for every module."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from partita_api.pipelineplan import whole_accelerators
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.problem import Pool
from partita_planner.templates.templates import Template

MAX_PIPELINES: Final = 16
"""The most pipelines of one module that a PipelinePlan holds."""


@dataclass(frozen=True)
class TemplateDeployment:
    """A template with its vGPU counts."""

    template: Template
    replicas: tuple[int, ...]
    """vGPUs of each stage."""

    @property
    def throughput(self) -> float:
        """Samples per second that it can serve."""
        return self.template.throughput(self.replicas)


@dataclass(frozen=True, eq=False)
class ModuleDeployments(Mapping[str, tuple[TemplateDeployment, ...]]):
    """The deployments of each module, in the order of dispatch: least occupancy cost first."""

    by_module: Mapping[str, tuple[TemplateDeployment, ...]] = field(default_factory=dict)

    def __getitem__(self, module: str) -> tuple[TemplateDeployment, ...]:
        return self.by_module[module]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_module)

    def __len__(self) -> int:
        return len(self.by_module)

    @property
    def everything(self) -> tuple[TemplateDeployment, ...]:
        """The deployments of all modules."""
        return tuple(deployment for group in self.values() for deployment in group)

    @property
    def latencies(self) -> dict[str, int]:
        """For each module the worst-case latency of its slowest template, in microseconds."""
        return {name: max(d.template.latency_micros for d in group) for name, group in self.items()}

    @property
    def fit_a_plan(self) -> bool:
        """Whether no module has more pipelines than a PipelinePlan holds."""
        return all(len(group) <= MAX_PIPELINES for group in self.values())

    def throughput(self, module: str) -> float:
        """Samples per second of the module; 0 if it has no deployment."""
        return sum(deployment.throughput for deployment in self.get(module, ()))

    def request_rate(self, calls: Mapping[str, float]) -> float:
        """Requests per second that all modules can serve, with so many `calls` of each module for one request."""
        return min(self.throughput(module) / calls[module] for module in self)

    def gpus(self) -> dict[str, int]:
        """Whole GPUs in use, by pool; a GPU holds vGPUs of one size only."""
        return whole_accelerators(
            (stage.pool, stage.divisor, count)
            for deployment in self.everything
            for stage, count in zip(deployment.template.stages, deployment.replicas, strict=True)
        )

    def missing_gpus(self, pools: Mapping[str, Pool]) -> dict[str, int]:
        """GPUs in use beyond those of the pools, by pool; empty if the pools suffice."""
        return {name: count - pools[name].gpus for name, count in self.gpus().items() if count > pools[name].gpus}


def allocated_price(deployments: Iterable[TemplateDeployment], resources: AvailableResources) -> float:
    """Price per hour of all vGPUs."""
    return sum(
        count / stage.divisor * resources.gpu_price[stage.pool]
        for deployment in deployments
        for stage, count in zip(deployment.template.stages, deployment.replicas, strict=True)
    )


def occupancy_price(
    deployments: Sequence[TemplateDeployment], demand: ModuleDemand, resources: AvailableResources
) -> float:
    """Price per hour of the time that vGPUs work: they share the rate as they share the capacity.

    `deployments` are in the order of dispatch: each takes what those before it leave.
    """
    left, price = demand.capacity, 0.0
    for deployment in deployments:
        served = min(left, deployment.throughput)
        price += served * resources.sample_price(deployment.template)
        left -= served
    return price * demand.rate / demand.capacity


def in_dispatch_order(
    deployments: Iterable[TemplateDeployment], resources: AvailableResources
) -> tuple[TemplateDeployment, ...]:
    """Cheapest per sample first (Harpagon's throughput-cost order), then the fastest."""
    return tuple(sorted(deployments, key=lambda d: (resources.sample_price(d.template), d.template.latency_micros)))
