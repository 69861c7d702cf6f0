"""The cheapest way to cover one module's demand from pools without end, exactly and fast.

A template serves x samples per second at a price c(x) that rises in steps. At the end of a step its units are a
*bundle*: a price and what it covers. Some cheapest cover is a multiset of bundles, since a partly used step may as well
be used to its end. So this is an unbounded covering knapsack over bundles, solved by best-first search over labels
(price so far, covered so far):

- a bundle that costs more and covers less than another is left out;
- every label is completed by the cheapest bundle that covers what is left, which gives a cover, at best of price U;
- with u the least price of a sample per second, a bundle with price - u * covered >= U - u * demand is part of no cover
  cheaper than U, and neither is such a label;
- labels are taken in the order of their price, and one that covers no more than one before it is dropped.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation import Demand, Deployment, Market, allocated_price, in_dispatch_order
from partita_planner.deadline import NEVER, Deadline, OutOfTimeError
from partita_planner.templates import Template

MAX_LABELS: Final = 100_000
"""After so many labels the best cover so far is taken, with the bound that is proven by then."""
ROUNDING: Final = 1e-9


@dataclass(frozen=True)
class Cover:
    """Deployments that cover the demand."""

    deployments: tuple[Deployment, ...]
    price: float
    """Price per hour."""
    bound: float
    """Proven: nothing is cheaper."""


@dataclass(frozen=True)
class Bundles:
    """All bundles of some templates, as columns."""

    template: NDArray[np.int64]
    price: NDArray[np.float64]
    covers: NDArray[np.float64]

    @staticmethod
    def of(templates: Sequence[Template], demand: Demand, market: Market, deadline: Deadline = NEVER) -> "Bundles":
        """Every step of every template, up to the one that covers the whole demand. Raises OutOfTimeError."""
        owners, prices, covers = [], [], []
        for t, template in enumerate(templates):
            if deadline.passed:
                raise OutOfTimeError
            units = [(market.price(stage), market.unit_rate(stage)) for stage in template.stages]
            ends = np.unique(np.concatenate([step_ends(rate, demand.capacity) for _, rate in units]))
            owners.append(np.full(len(ends), t))
            prices.append(np.sum([price * np.ceil(ends / rate - ROUNDING) for price, rate in units], axis=0))
            covers.append(ends)
        return Bundles(np.concatenate(owners), np.concatenate(prices), np.concatenate(covers))

    def where(self, keep: NDArray[np.bool_]) -> "Bundles":
        """Only the rows that are true in `keep`."""
        return Bundles(self.template[keep], self.price[keep], self.covers[keep])

    def undominated(self) -> "Bundles":
        """Those that cover more than every cheaper one, by price."""
        order = np.lexsort((-self.covers, self.price))
        covers = self.covers[order]
        best_before = np.concatenate(([0.0], np.maximum.accumulate(covers)[:-1]))
        kept = order[covers > best_before]
        return Bundles(self.template[kept], self.price[kept], self.covers[kept])


def cheapest_cover(
    demand: Demand, templates: Sequence[Template], bundles: Bundles, market: Market, deadline: Deadline = NEVER
) -> Cover:
    """The cheapest cover of `demand.capacity`; out of time, the best so far.

    `bundles` are those of `templates`, or some of them.
    """
    needed = demand.capacity
    chosen, bound = cheapest_bundles(bundles, needed, deadline)
    covered: dict[int, float] = {}
    for template, covers in chosen:
        covered[template] = covered.get(template, 0.0) + covers
    found = (Deployment(templates[t], templates[t].replicas(min(x, needed))) for t, x in covered.items())
    deployments = in_dispatch_order(found, market)
    price = allocated_price(deployments, market)
    return Cover(deployments, price, min(price, bound))


def cheapest_bundles(
    bundles: Bundles, needed: float, deadline: Deadline = NEVER
) -> tuple[list[tuple[int, float]], float]:
    """Template and coverage of the bundles of the cheapest cover, and a proven bound on every cover's price.

    Out of time, of the cheapest one so far. None of them, and infinite, if the bundles cover nothing.
    """
    if not len(bundles.price):
        return [], inf
    least = float(np.min(bundles.price / bundles.covers))
    last = bundles.undominated()
    last_covers, last_prices = last.covers.tolist(), last.price.tolist()
    best, best_end = inf, (-1, -1)
    items = _rows(last)
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
        finish = bisect_left(last_covers, (needed - covered) * (1 - ROUNDING))
        if finish < len(last_prices) and price + last_prices[finish] < best * (1 - ROUNDING):
            best, best_end = price + last_prices[finish], (label, finish)
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
    return [*_trail(last, labels, label), (int(last.template[finish]), last_covers[finish])], bound


def _rows(bundles: Bundles) -> list[tuple[int, float, float]]:
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
    """What 1, 2, ... units serve that serve `rate` each, until `needed` is covered; that last of all."""
    ends = rate * np.arange(1, np.ceil(needed / rate - ROUNDING))
    return np.append(ends[ends < needed], needed)
