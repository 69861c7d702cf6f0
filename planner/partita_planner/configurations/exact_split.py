"""The cheapest latency split, exactly: one option for each module such that every path keeps the SLO.

An option is a point, <latency, cost>, or a curve: a configuration whose batches are filled sooner with dummy requests.
It takes d + y seconds, y being the time of collection, and costs a / y; from y = a / cost on it needs no dummies and
costs no less.

1. Each path has a price per second of latency. For any prices, the sum of every module's cheapest option, its latency
   priced in, less what all paths' seconds cost, is a bound on every split's cost (Lagrange). The prices are improved by
   subgradient steps, which also come by splits.
2. An option whose excess over its module's cheapest lifts that bound to the best split is dropped.
3. Depth-first search over the options that are left, by excess, with the same bound.

With the options of all modules chosen, the curves' times of collection are a convex problem (`collection`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.configurations.collection import shortest_collections
from partita_planner.configurations.workload import Workload

STEPS: Final = 60
SAME: Final = 1e-10
"""Relative to the cost: a split must be better by more than this to replace another."""
SAFETY: Final = 1e-12
"""Share of the SLO that is kept for rounding."""


@dataclass(frozen=True)
class Option:
    """One way to run a module: a point, or a curve where `area` is above 0."""

    seconds: float
    """Latency; of a curve, without the collection of batches."""
    cost: float
    """Price per hour; of a curve, without dummies."""
    area: float = 0.0
    """a: price per hour times seconds of collection, along the part of the curve that has dummies."""

    @property
    def longest_collection(self) -> float:
        """Seconds from which on the curve is flat."""
        return self.area / self.cost if self.area else 0.0


@dataclass(frozen=True)
class Choice:
    """What a split gives a module."""

    option: int
    """Index among the module's options."""
    collection: float
    """Seconds, on a curve."""


@dataclass(frozen=True)
class SplitFound:
    """The cheapest split."""

    choices: Mapping[str, Choice]
    cost: float
    bound: float
    """The Lagrangian bound: the least of every module at the path prices, less what the paths' seconds cost."""
    second_price: Mapping[str, float]
    """What the paths of each module charge for a second of its latency, at these prices."""
    least: Mapping[str, float]
    """Each module's cheapest option, its latency priced in."""

    def excess_of(self, module: str, seconds: float, cost: float) -> float:
        """What an option, given or not, adds to the bound at least."""
        return cost + self.second_price[module] * seconds - self.least[module]


def cheapest_split(workload: Workload, options: Mapping[str, Sequence[Option]]) -> SplitFound | None:
    """The cheapest choice of one option for each module of the workload; None if none keeps the SLO.

    Exact but for SAME, and for SAFETY of the SLO.
    """
    if not all(options[module.name] for module in workload.modules):
        return None
    search = _Search(workload, options)
    search.improve_prices()
    search.descend()
    return search.found()


class _Search:
    """State of one search: prices of the paths, bound, and the best split so far."""

    def __init__(self, workload: Workload, options: Mapping[str, Sequence[Option]]) -> None:
        self.names = [module.name for module in workload.modules]
        self.options = [list(options[name]) for name in self.names]
        paths = [path for path in workload.paths if path.modules]
        self.paths = [[self.names.index(name) for name in path.modules] for path in paths]
        self.seconds = [path.seconds * (1 - SAFETY) for path in paths]
        self.on_path = np.array([[float(m in path) for m in range(len(self.names))] for path in self.paths])
        self.best_cost = inf
        self.best: list[tuple[int, float]] | None = None
        self.bound = -inf
        self.excess: list[NDArray[np.float64]] = []
        self.second_price: list[float] = []
        self.least: list[float] = []
        self.hopeless = any(path.seconds < 0 for path in workload.paths)

    def found(self) -> SplitFound | None:
        """The best split."""
        if self.best is None:
            return None
        return SplitFound(
            {n: Choice(*c) for n, c in zip(self.names, self.best, strict=True)},
            self.best_cost,
            min(self.bound, self.best_cost),
            dict(zip(self.names, self.second_price, strict=True)),
            dict(zip(self.names, self.least, strict=True)),
        )

    def improve_prices(self) -> None:
        """Polyak's subgradient steps towards the highest bound."""
        self._try(
            [
                min(range(len(o)), key=lambda i: (o[i].seconds + o[i].longest_collection, o[i].cost))
                for o in self.options
            ]
        )
        self._try([min(range(len(o)), key=lambda i: (o[i].seconds, o[i].cost)) for o in self.options])
        if self.best is None:
            return
        columns = [
            (np.array([o.seconds for o in own]), np.array([o.cost for o in own]), np.array([o.area for o in own]))
            for own in self.options
        ]
        most = [np.divide(area, cost, out=np.zeros_like(area), where=area > 0) for _, cost, area in columns]
        allowed, prices = np.array(self.seconds), np.zeros(len(self.paths))
        scale = 1.0
        for step in range(STEPS):
            latency, chosen, excess, least = np.zeros(len(columns)), [], [], []
            second_price = (prices @ self.on_path).tolist()
            for m, price in enumerate(second_price):
                seconds, cost, area = columns[m]
                collection = np.minimum(most[m], np.sqrt(area / price)) if price > 0 else most[m]
                paid = np.divide(area, collection, out=cost.copy(), where=area > 0) + price * (seconds + collection)
                best = int(np.argmin(paid))
                chosen.append(best)
                excess.append(paid - paid[best])
                latency[m] = seconds[best] + collection[best]
                least.append(float(paid[best]))
            value = sum(least) - float(prices @ allowed)
            if value > self.bound:
                self.bound, self.excess, stalled = value, excess, 0
                self.second_price, self.least = second_price, least
            else:
                stalled += 1
                if stalled % 5 == 0:
                    scale /= 2
            over = self.on_path @ latency - allowed
            if step == 0 or (over <= 0).all():
                self._try(chosen)
            over = np.where((prices <= 0) & (over < 0), 0.0, over)
            size = float(over @ over)
            if self.bound >= self.best_cost * (1 - SAME) or size == 0:
                break
            prices = np.maximum(0.0, prices + scale * (self.best_cost - value) / size * over)

    def descend(self) -> None:
        """Depth-first search over the options that may be in a better split."""
        if self.best is None or self.hopeless:
            return
        least = [min(o.seconds for o in own) for own in self.options]
        order = sorted(range(len(self.names)), key=lambda m: len(self._hopeful(m, 0.0)))
        self._descend(order, list(least), [0] * len(order), 0, self.bound)

    def _descend(self, order: Sequence[int], latency: list[float], chosen: list[int], depth: int, bound: float) -> None:
        if depth == len(order):
            self._try(chosen, bound)
            return
        m = order[depth]
        before = latency[m]
        for option in self._hopeful(m, bound - self.bound):
            if bound + self.excess[m][option] >= self.best_cost * (1 - SAME):
                break
            latency[m], chosen[m] = self.options[m][option].seconds, option
            if all(sum(latency[i] for i in p) <= s for p, s in zip(self.paths, self.seconds, strict=True)):
                self._descend(order, latency, chosen, depth + 1, bound + float(self.excess[m][option]))
        latency[m] = before

    def _hopeful(self, m: int, spent: float) -> list[int]:
        """The options of a module with which the bound stays below the best split, least excess first."""
        slack = self.best_cost * (1 - SAME) - self.bound - spent
        return [int(i) for i in np.argsort(self.excess[m], kind="stable") if self.excess[m][i] < slack]

    def _try(self, chosen: Sequence[int], bound: float = -inf) -> None:
        """Keep the split with these options, if there is one and it is the best so far."""
        own = [self.options[m][option] for m, option in enumerate(chosen)]
        if self.hopeless or bound >= self.best_cost:
            return
        left = [s - sum(own[m].seconds for m in p) for p, s in zip(self.paths, self.seconds, strict=True)]
        if min(left, default=0.0) < 0:
            return
        most = [option.longest_collection for option in own]
        if all(sum(most[m] for m in p) <= space for p, space in zip(self.paths, left, strict=True)):
            cost, collection = sum(option.cost for option in own), most
        else:
            areas = [option.area for option in own]
            solved = shortest_collections(
                areas, most, self.paths, left, self.best_cost - sum(o.cost for o in own if not o.area)
            )
            if solved is None:
                return
            collection = solved
            cost = sum(o.area / y if o.area else o.cost for o, y in zip(own, collection, strict=True))
        if cost < self.best_cost * (1 - SAME):
            self.best_cost, self.best = cost, list(zip(chosen, collection, strict=True))
