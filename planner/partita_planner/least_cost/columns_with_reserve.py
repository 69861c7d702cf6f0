"""Columns that survive the loss of any one replica, priced: see `cover_columns`. They are not enumerated."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from partita_planner.allocation.deployments import allocated_price, in_dispatch_order
from partita_planner.allocation.resources import AvailableResources
from partita_planner.least_cost.cover_columns import CoverColumn, Floats, Priced, VGpuSize, vgpus_of
from partita_planner.least_cost.covers_with_reserve import CoversWithReserve
from partita_planner.solver.deadline import Deadline
from partita_planner.templates.templates import TemplateStage


@dataclass(frozen=True)
class ReserveSpace:
    """The columns of one module with a reserve, at their allocated price."""

    covers: CoversWithReserve
    resources: AvailableResources
    sizes: tuple[VGpuSize, ...]

    def worth(self, column: CoverColumn, scarcity: Floats) -> float:
        """The cost of a column plus the scarcity of its vGPUs."""
        return column.cost + float(np.array(column.vgpus) @ scarcity)

    def cheapest(self, scarcity: Floats, micros_worth: float, below: float, deadline: Deadline) -> Iterator[Priced]:
        """Columns of least worth within shorter and shorter latencies, while one may be worth less than `below`."""
        scarce: dict[VGpuSize, float] = dict(zip(self.sizes, scarcity.tolist(), strict=True))

        def price(stage: TemplateStage) -> float:
            return self.resources.price(stage) + scarce[stage.pool, stage.divisor]

        fastest = min((template.latency_micros for template in self.covers.templates), default=0)
        for found, bound in self.covers.by_falling_latency(price, deadline):
            deployments = in_dispatch_order(found, self.resources)
            column = CoverColumn(
                self.covers.demand.module,
                max(deployment.template.latency_micros for deployment in deployments),
                deployments,
                vgpus_of(deployments, self.sizes),
                allocated_price(deployments, self.resources),
            )
            paid = self.worth(column, scarcity)
            least = min(bound, paid)
            yield Priced(column, paid, least)
            if least + micros_worth * fastest >= below:
                return

    def within(self, scarcity: Floats, micros_worth: float, limit: float, deadline: Deadline) -> None:
        """There are too many columns."""
