"""The pools as the formulations see them: GPUs, prices, and what a stage takes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from partita_planner.problem import Pool
from partita_planner.templates.templates import Template, TemplateStage


class PriceUnit(Enum):
    """What a GPU is paid for in: every price is in this unit."""

    MONEY = auto()
    """The pools' price per hour."""
    WATTS = auto()
    """The pools' power."""
    GPUS = auto()
    """Every GPU costs 1."""


@dataclass(frozen=True)
class AvailableResources:
    """The pools, and the allocation unit: a stage takes a whole number of GPUs if `whole_gpus`, else of vGPUs."""

    pools: Mapping[str, Pool]
    whole_gpus: bool = False
    price_unit: PriceUnit = PriceUnit.MONEY

    @cached_property
    def gpu_price(self) -> Mapping[str, float]:
        """Price of one whole GPU, by pool; 0 watts for a pool that does not state its power."""
        match self.price_unit:
            case PriceUnit.MONEY:
                return {name: float(pool.spec.price_per_hour) for name, pool in self.pools.items()}
            case PriceUnit.WATTS:
                return {name: float(pool.spec.power_watts or 0) for name, pool in self.pools.items()}
            case PriceUnit.GPUS:
                return dict.fromkeys(self.pools, 1.0)

    def price(self, stage: TemplateStage) -> float:
        """Price per hour of one allocation unit."""
        whole = self.gpu_price[stage.pool]
        return whole if self.whole_gpus else whole / stage.divisor

    def unit_rate(self, stage: TemplateStage) -> float:
        """Samples per second of one allocation unit."""
        return stage.gpu_throughput if self.whole_gpus else stage.throughput

    def gpus(self, stage: TemplateStage) -> float:
        """GPUs in one allocation unit."""
        return 1.0 if self.whole_gpus else 1 / stage.divisor

    def sample_price(self, template: Template) -> float:
        """Price per hour of one sample per second, for the time that the stages work."""
        return sum(self.price(s) / self.unit_rate(s) for s in template.stages)

    def vgpus(self, stage: TemplateStage, units: int) -> int:
        """vGPUs in so many allocation units."""
        return units * stage.divisor if self.whole_gpus else units


def missing_price(pool: Pool) -> float:
    """Price of one GPU that the pool lacks, for AllocationObjective.MISSING; a free GPU counts as 1 an hour."""
    return float(pool.spec.price_per_hour) or 1.0
