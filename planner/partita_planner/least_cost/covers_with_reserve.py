"""The cheapest cover of one module's demand that survives the loss of any one replica, from unlimited pools.

Let no loss cost the cover more than l samples per second. Then a template that serves x needs on each stage

    max(ceil(x / r), 1 + ceil((x - l) / r))        replicas of rate r

and all templates together serve the demand, and the share of it that is served after a loss plus l. For a given l this
is a covering problem as without losses, with other steps (`bundle_search`). The loss of a cover is one of finitely many
values, so each of them is tried as l. For a range of values, the demand of the lowest one and the steps of the highest
one give a bound.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import TemplateDeployment
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.least_cost.bundle_search import Bundles, cheapest_bundles
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template, TemplateStage

Numbers = NDArray[np.float64]
Chosen = list[tuple[int, float]]
"""Template and coverage of the bundles of a cover."""


@dataclass(frozen=True)
class CoversWithReserve:
    """The covers of a module's demand by its templates."""

    demand: ModuleDemand
    margin: LossMargin
    templates: tuple[Template, ...]
    rates: Numbers
    """[template][stage]: samples per second of one replica; infinite where there is no stage."""
    losses: tuple[float, ...]
    """All samples per second that a loss may cost, rising."""

    @classmethod
    def of(cls, demand: ModuleDemand, margin: LossMargin) -> "CoversWithReserve":
        """The covers by all templates of the demand."""
        rates = _by_stage(demand.templates, lambda stage: stage.throughput, np.inf)
        return cls(demand, margin, demand.templates, rates, _losses(demand, margin))

    def faster_than(self, micros: int) -> "CoversWithReserve":
        """Only the covers by templates with a lower latency."""
        rows = [row for row, template in enumerate(self.templates) if template.latency_micros < micros]
        return replace(self, templates=tuple(self.templates[row] for row in rows), rates=self.rates[rows])

    def by_falling_latency(
        self, price: Callable[[TemplateStage], float], deadline: Deadline
    ) -> Iterator[tuple[list[TemplateDeployment], float]]:
        """The cheapest cover at these prices, then the cheapest among faster covers, and so on; each with its bound.

        Raises OutOfTimeError.
        """
        covers = self
        while covers.templates:
            found, bound = covers.cheapest(price, deadline)
            yield found, bound
            covers = covers.faster_than(max(d.template.latency_micros for d in found))

    def cheapest(
        self, price: Callable[[TemplateStage], float], deadline: Deadline
    ) -> tuple[list[TemplateDeployment], float]:
        """The deployments of the cheapest cover at these prices of replicas, and a bound on all covers.

        Ranges of l are halved, the one with the lowest bound first, until one value is left. Raises OutOfTimeError.
        """
        prices = _by_stage(self.templates, price, 0.0)

        def tried(first: int, last: int) -> tuple[float, int, int, Chosen]:
            if deadline.passed:
                raise OutOfTimeError
            steps = _Steps(self, self.losses[first], self.losses[last])
            chosen, bound = cheapest_bundles(steps.bundles(prices), steps.needed, deadline)
            return bound, first, last, chosen

        heap = [tried(0, len(self.losses) - 1)]
        while True:
            bound, first, last, chosen = heappop(heap)
            if first == last:
                return _Steps(self, self.losses[first], self.losses[last]).deployments(chosen), bound
            middle = (first + last) // 2
            heappush(heap, tried(first, middle))
            heappush(heap, tried(middle + 1, last))


@dataclass(frozen=True)
class _Steps:
    """The covering problem in which a loss costs at least `lower` and at most `upper`."""

    covers: CoversWithReserve
    lower: float
    upper: float

    @property
    def needed(self) -> float:
        """Samples per second that all templates together serve."""
        capacity = self.covers.demand.capacity
        return max(capacity, self.covers.margin.served_share * capacity + self.lower)

    def bundles(self, prices: Numbers) -> Bundles:
        """What the templates serve with 1, 2, ... replicas of a stage, up to what is needed.

        Other steps are not needed: in a cover that is not used to less than its capacity, some stage of each template
        is full.
        """
        rows, columns = np.nonzero(np.isfinite(self.covers.rates))
        rates = self.covers.rates[rows, columns]
        counts = np.ceil(self.needed / rates).astype(np.int64)
        replicas = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + 1
        served = np.minimum(self.needed, np.repeat(rates, counts) * replicas)
        templates = np.repeat(rows, counts)
        return Bundles(templates, (prices[templates] * self._replicas(templates, served)).sum(axis=1), served)

    def deployments(self, chosen: Chosen) -> list[TemplateDeployment]:
        """The deployments of chosen bundles."""
        covered: dict[int, float] = {}
        for template, covers in chosen:
            covered[template] = covered.get(template, 0.0) + covers
        rows = np.array(list(covered))
        counts = self._replicas(rows, np.minimum(self.needed, list(covered.values()))).astype(int).tolist()
        templates = [self.covers.templates[row] for row in covered]
        return [TemplateDeployment(t, tuple(n[: len(t.stages)])) for t, n in zip(templates, counts, strict=True)]

    def _replicas(self, templates: NDArray[np.int64], served: Numbers) -> Numbers:
        """[template][stage]: the fewest replicas."""
        rates = self.covers.rates[templates]
        least = np.ceil(served[:, None] / rates - ROUNDING)
        with_one_less = 1 + np.ceil(np.maximum(0.0, served - self.upper)[:, None] / rates - ROUNDING)
        counts: Numbers = np.maximum(self.covers.margin.min_replicas, np.maximum(least, with_one_less))
        return counts


def _losses(demand: ModuleDemand, margin: LossMargin) -> tuple[float, ...]:
    """All samples per second that a loss may cost, rising.

    A stage that limits its pipeline loses a replica's rate. Another stage loses what its other replicas do not serve.
    """
    rates = [stage.throughput for template in demand.templates for stage in template.stages]
    most = demand.capacity + max(rates)
    found = [np.array(rates)]
    for template in demand.templates:
        for limiting, other in permutations(template.stages, 2):
            served = limiting.throughput * np.arange(1, most / limiting.throughput + margin.min_replicas + 1)
            found.append(served - (np.ceil(served / other.throughput - ROUNDING) - 1) * other.throughput)
    return tuple(np.unique(np.concatenate(found)).tolist())


def _by_stage(templates: Sequence[Template], value: Callable[[TemplateStage], float], absent: float) -> Numbers:
    """[template][stage]: a value of each stage."""
    table = np.full((len(templates), max(len(template.stages) for template in templates)), absent)
    for row, template in enumerate(templates):
        table[row, : len(template.stages)] = [value(stage) for stage in template.stages]
    return table
