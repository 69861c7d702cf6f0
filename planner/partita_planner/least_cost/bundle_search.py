"""The cheapest way to cover one module's demand from unlimited pools, exactly and fast.

A template serves x samples per second at a price c(x) that rises in steps. Its vGPUs at the end of a step are a
*bundle*: a price, and the samples per second that it covers. Some cheapest cover is a multiset of bundles, since a
partly used step can be used to its end at the same price. So this is an unbounded covering knapsack over bundles. A
best-first search over labels (price so far, covered so far) solves it:

- A bundle that costs more and covers less than another one is dropped.
- The cheapest bundle that covers the rest completes a label to a cover. U is the price of the best cover so far.
- u is the least price of a sample per second. A bundle or label with price - u * covered >= U - u * demand is part of
  no cover cheaper than U.
- Labels are expanded in the order of their price. A label that covers no more than an earlier one is dropped.

With occupancy, where samples have a price, a bundle that is not used to its end costs less. In some cheapest cover all
bundles but one are used to their ends. The same search finds it: it prices the completing bundle for the rest only.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.deployments import TemplateDeployment, allocated_price, in_dispatch_order
from partita_planner.allocation.resources import AvailableResources
from partita_planner.solver.deadline import NEVER, Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.templates.templates import Template

MAX_LABELS: Final = 100_000
"""After so many labels the search returns the best cover so far, with the bound that is proven by then."""


@dataclass(frozen=True)
class Cover:
    """Deployments that cover the demand."""

    deployments: tuple[TemplateDeployment, ...]
    price: float
    """Price per hour."""
    bound: float
    """Proven: no cover is cheaper."""


@dataclass(frozen=True)
class Bundles:
    """All bundles of some templates, as columns."""

    template: NDArray[np.int64]
    price: NDArray[np.float64]
    covers: NDArray[np.float64]
    sample_price: NDArray[np.float64] | None = None
    """The part of the price that depends on the samples per second that are served; None if there is none."""

    @staticmethod
    def of(
        templates: Sequence[Template], demand: ModuleDemand, resources: AvailableResources, deadline: Deadline = NEVER
    ) -> "Bundles":
        """Every step of every template, up to the one that covers the whole demand. Raises OutOfTimeError."""
        owners, prices, covers = [], [], []
        for t, template in enumerate(templates):
            if deadline.passed:
                raise OutOfTimeError
            stages = [(resources.price(stage), resources.unit_rate(stage)) for stage in template.stages]
            ends = np.unique(np.concatenate([step_ends(rate, demand.capacity) for _, rate in stages]))
            owners.append(np.full(len(ends), t))
            prices.append(np.sum([price * np.ceil(ends / rate - ROUNDING) for price, rate in stages], axis=0))
            covers.append(ends)
        return Bundles(np.concatenate(owners), np.concatenate(prices), np.concatenate(covers))

    def where(self, keep: NDArray[np.bool_]) -> "Bundles":
        """Only the rows that are true in `keep`."""
        return self.at(np.flatnonzero(keep))

    def undominated(self) -> "Bundles":
        """The bundles that cover more than every cheaper one, by price."""
        order = np.lexsort((-self.covers, self.price))
        covers = self.covers[order]
        best_before = np.concatenate(([0.0], np.maximum.accumulate(covers)[:-1]))
        return self.at(order[covers > best_before])

    def at(self, rows: NDArray[np.intp]) -> "Bundles":
        """The rows at these positions."""
        sample_price = None if self.sample_price is None else self.sample_price[rows]
        return Bundles(self.template[rows], self.price[rows], self.covers[rows], sample_price)


def cheapest_cover(
    demand: ModuleDemand,
    templates: Sequence[Template],
    bundles: Bundles,
    resources: AvailableResources,
    deadline: Deadline = NEVER,
) -> Cover:
    """The cheapest cover of `demand.capacity`, or the best so far when time runs out.

    `bundles` are bundles of `templates`.
    """
    needed = demand.capacity
    chosen, bound = cheapest_bundles(bundles, needed, deadline)
    covered: dict[int, float] = {}
    for template, covers in chosen:
        covered[template] = covered.get(template, 0.0) + covers
    found = (TemplateDeployment(templates[t], templates[t].replicas(min(x, needed))) for t, x in covered.items())
    deployments = in_dispatch_order(found, resources)
    price = allocated_price(deployments, resources)
    return Cover(deployments, price, min(price, bound))


def cheapest_bundles(
    bundles: Bundles, needed: float, deadline: Deadline = NEVER
) -> tuple[list[tuple[int, float]], float]:
    """Template and coverage of the bundles of the cheapest cover, and a proven bound on every cover's price.

    When time runs out, those of the cheapest cover so far. An empty list and infinity if there are no bundles.
    """
    if not len(bundles.price):
        return [], inf
    least = float(np.min(bundles.price / bundles.covers))
    repeated = bundles.undominated()
    last = _Last.of(bundles, repeated)
    best, best_end = inf, (-1, -1)
    items = _numbered(repeated)
    labels: list[tuple[int, int]] = [(-1, -1)]
    heap = [(0.0, 0.0, 0)]
    most_covered = -inf
    while heap and len(labels) <= MAX_LABELS:
        price, covered_negated, label = heappop(heap)
        covered = -covered_negated
        if covered <= most_covered or price + least * (needed - covered) >= best * (1 - ROUNDING):
            continue
        if best < inf and deadline.passed:
            heappush(heap, (price, covered_negated, label))
            break
        most_covered = covered + ROUNDING * needed
        finish, finish_price = last.cheapest(needed - covered)
        if price + finish_price < best * (1 - ROUNDING):
            best, best_end = price + finish_price, (label, finish)
            items = [item for item in items if item[1] - least * item[2] < best - least * needed]
        for item, more_price, more_covered in items:
            new_price, new_covered = price + more_price, covered + more_covered
            if new_covered < needed and new_price + least * (needed - new_covered) < best * (1 - ROUNDING):
                labels.append((label, item))
                heappush(heap, (new_price, -new_covered, len(labels) - 1))
    bound = min([best, *(price + least * max(0.0, needed + covered_negated) for price, covered_negated, _ in heap)])
    label, finish = best_end
    if finish < 0:
        return [], bound
    ending = int(last.bundles.template[finish]), float(last.bundles.covers[finish])
    return [*_trail(repeated, labels, label), ending], bound


@dataclass(frozen=True)
class _Last:
    """The bundles that may complete a cover."""

    bundles: Bundles
    """In the order of what they cover."""
    covers: list[float]
    price: list[float]
    vgpu_price: NDArray[np.float64]
    """The part of each price that is for vGPUs."""

    @staticmethod
    def of(bundles: Bundles, undominated: Bundles) -> "_Last":
        """The completing bundles of `bundles`: without a sample price, the undominated ones suffice."""
        if bundles.sample_price is None:
            return _Last(undominated, undominated.covers.tolist(), undominated.price.tolist(), undominated.price)
        ordered = bundles.at(np.argsort(bundles.covers, kind="stable"))
        assert ordered.sample_price is not None, "these are rows of the bundles"
        vgpu_price = ordered.price - ordered.sample_price * ordered.covers
        return _Last(ordered, ordered.covers.tolist(), [], vgpu_price)

    def cheapest(self, rest: float) -> tuple[int, float]:
        """The bundle that covers `rest` at the least price, and this price; -1 and infinity if there is none."""
        first = bisect_left(self.covers, rest * (1 - ROUNDING))
        if first == len(self.covers):
            return -1, inf
        if self.bundles.sample_price is None:
            return first, self.price[first]
        prices = self.vgpu_price[first:] + self.bundles.sample_price[first:] * rest
        cheapest = int(prices.argmin())
        return first + cheapest, float(prices[cheapest])


def _numbered(bundles: Bundles) -> list[tuple[int, float, float]]:
    """Position, price and coverage of every bundle."""
    return list(zip(range(len(bundles.price)), bundles.price.tolist(), bundles.covers.tolist(), strict=True))


def _trail(bundles: Bundles, labels: Sequence[tuple[int, int]], label: int) -> list[tuple[int, float]]:
    """Template and coverage of every bundle that led to a label."""
    chosen = []
    while label > 0:
        label, item = labels[label]
        chosen.append((int(bundles.template[item]), float(bundles.covers[item])))
    return chosen


def step_ends(rate: float, needed: float) -> NDArray[np.float64]:
    """The rates that 1, 2, ... vGPUs of `rate` each serve, up to `needed`, which is the last one."""
    ends = rate * np.arange(1, np.ceil(needed / rate - ROUNDING))
    return np.append(ends[ends < needed], needed)
