"""The cheapest latency split, exactly: one option for each module, so that every path keeps the SLO.

An option is a point, <latency, cost>, or a curve: a configuration whose batches are filled sooner with dummy requests.
It takes d + y seconds and costs a / y, where y is the time of collection. From y = a / cost upwards it needs no
dummies, and its cost is constant.

1. Each path has a price per second of latency. For any prices, take the sum of every module's cheapest option with its
   latency priced, less the price of all paths' seconds. It is a bound on every split's cost (Lagrange). Subgradient
   steps improve the prices, and also find splits.
2. An option is dropped if its excess over its module's cheapest option raises the bound to the cost of the best split.
3. A depth-first search over the remaining options, by excess, uses the same bound.

Once the options of all modules are chosen, the curves' times of collection are a convex problem (`collection`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.configurations.collection import shortest_collections
from partita_planner.configurations.workload import Workload
from partita_planner.solver.deadline import NEVER, Deadline

STEPS: Final = 60
STALLED: Final = 20
"""The steps stop after so many steps without a higher bound."""
SAME: Final = 1e-10
"""Relative to the cost: a split must be better by more than this to replace another."""
SAFETY: Final = 1e-12
"""Share of the SLO that is reserved for rounding."""


@dataclass(frozen=True)
class SplitOption:
    """One way to run a module: a point, or a curve where `area` is above 0."""

    seconds: float
    """Latency; of a curve, without the collection of batches."""
    cost: float
    """Price per hour; of a curve, without dummies."""
    area: float = 0.0
    """a: price per hour times seconds of collection, along the part of the curve that has dummies."""

    @property
    def longest_collection(self) -> float:
        """Seconds from which the curve is flat."""
        return self.area / self.cost if self.area else 0.0


@dataclass(frozen=True)
class Choice:
    """The option of one module in a split."""

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
    """The Lagrangian bound: the least cost of every module at the path prices, less the price of the paths' seconds."""
    second_price: Mapping[str, float]
    """By module: the price of a second of its latency, over all its paths."""
    prices: tuple[float, ...]
    """By path with modules: the price of a second."""
    path_value: float
    """The price of all paths' seconds."""


def cheapest_split(
    workload: Workload,
    options: Mapping[str, Sequence[SplitOption]],
    prices: Sequence[float] = (),
    deadline: Deadline = NEVER,
) -> SplitFound | None:
    """The cheapest choice of one option for each module of the workload; None if none keeps the SLO.

    Exact up to SAME, and SAFETY of the SLO; the best split so far when time runs out. `prices` are known prices of the
    paths to start from, if any.
    """
    if not all(options[module.name] for module in workload.modules):
        return None
    search = _SplitSearch(workload, options, deadline)
    search.improve_prices(prices)
    search.descend()
    return search.found()


@dataclass(frozen=True)
class _OptionTable:
    """The options of all modules, a row for each module, padded with options of infinite cost."""

    seconds: NDArray[np.float64]
    cost: NDArray[np.float64]
    area: NDArray[np.float64] | None
    """None if all options are points."""
    most: NDArray[np.float64]
    """The longest collection."""
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, options: Sequence[Sequence[SplitOption]]) -> "_OptionTable":
        """The table of these options."""
        width = max(map(len, options))

        def column(value: Callable[[SplitOption], float], otherwise: float) -> NDArray[np.float64]:
            return np.array([[*map(value, own), *[otherwise] * (width - len(own))] for own in options])

        area = column(lambda o: o.area, 0.0)
        return cls(
            seconds=column(lambda o: o.seconds, 0.0),
            cost=column(lambda o: o.cost, inf),
            area=area if area.any() else None,
            most=column(lambda o: o.longest_collection, 0.0),
            rows=np.arange(len(options)),
        )

    def priced(self, second_price: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The least cost of every option with its latency priced, and this latency."""
        price = second_price[:, None]
        if self.area is None:
            return self.cost + price * self.seconds, self.seconds
        cheapest = np.sqrt(np.divide(self.area, price, out=np.full_like(self.area, inf), where=price > 0))
        collection = np.minimum(self.most, cheapest)
        latency = self.seconds + collection
        cost = np.divide(self.area, collection, out=self.cost.copy(), where=self.area > 0)
        return cost + price * latency, latency


@dataclass(frozen=True)
class _Level:
    """A module in the depth-first search."""

    module: int
    options: Sequence[tuple[float, float, float, int]]
    """Excess, seconds, cost and index, least excess first."""
    paths: Sequence[int]
    reserved: Sequence[float]
    """Seconds of each path that the modules of the levels below need at least."""
    unpaid: float
    """The least cost of these modules."""


class _SplitSearch:
    """State of one search: prices of the paths, the bound, and the best split so far."""

    def __init__(self, workload: Workload, options: Mapping[str, Sequence[SplitOption]], deadline: Deadline) -> None:
        self.deadline = deadline
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
        self.prices = np.zeros(len(self.paths))
        self.hopeless = any(path.seconds < 0 for path in workload.paths)

    def found(self) -> SplitFound | None:
        """The best split."""
        if self.best is None:
            return None
        return SplitFound(
            {n: Choice(*c) for n, c in zip(self.names, self.best, strict=True)},
            self.best_cost,
            min(self.bound, self.best_cost),
            dict(zip(self.names, (self.prices @ self.on_path).tolist(), strict=True)),
            tuple(self.prices.tolist()),
            float(self.prices @ np.array(self.seconds)),
        )

    def improve_prices(self, prices: Sequence[float] = ()) -> None:
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
        table = _OptionTable.of(self.options)
        allowed = np.array(self.seconds)
        at = np.array(prices) if prices else np.zeros(len(self.paths))
        scale, stalled = 1.0, 0
        for step in range(STEPS):
            paid, latency = table.priced(at @ self.on_path)
            chosen = paid.argmin(axis=1)
            least = paid[table.rows, chosen]
            value = float(least.sum() - at @ allowed)
            if value > self.bound:
                self.bound, self.prices, stalled = value, at, 0
                excess = paid - least[:, None]
            else:
                stalled += 1
                if stalled % 5 == 0:
                    scale /= 2
                if stalled >= STALLED:
                    break
            over = self.on_path @ latency[table.rows, chosen] - allowed
            if step == 0 or (over <= 0).all():
                self._try(chosen.tolist())
            over = np.where((at <= 0) & (over < 0), 0.0, over)
            size = float(over @ over)
            if self.bound >= self.best_cost * (1 - SAME) or size == 0:
                break
            at = np.maximum(0.0, at + scale * (self.best_cost - value) / size * over)
        self.excess = [row[: len(own)] for row, own in zip(excess, self.options, strict=True)]

    def descend(self) -> None:
        """Depth-first search over the options that may be in a better split."""
        if self.best is not None and not self.hopeless:
            self._descend(self._levels(), 0, self.seconds, 0.0, self.bound, [0] * len(self.names))

    def _levels(self) -> list["_Level"]:
        """The modules, those with the fewest options first."""
        slack = self.best_cost * (1 - SAME) - self.bound
        order = sorted(range(len(self.names)), key=lambda m: int((self.excess[m] < slack).sum()))
        levels: list[_Level] = []
        reserved, unpaid = [0.0] * len(self.paths), 0.0
        for m in reversed(order):
            own = self.options[m]
            ranked = [int(i) for i in np.argsort(self.excess[m], kind="stable") if self.excess[m][i] < slack]
            ranked_options = [(float(self.excess[m][i]), own[i].seconds, own[i].cost, i) for i in ranked]
            on = [p for p, path in enumerate(self.paths) if m in path]
            levels.append(_Level(m, ranked_options, on, reserved, unpaid))
            fastest, cheapest = min(o.seconds for o in own), min(o.cost for o in own)
            reserved = [s + fastest if p in on else s for p, s in enumerate(reserved)]
            unpaid += cheapest
        return levels[::-1]

    def _descend(
        self,
        levels: Sequence["_Level"],
        depth: int,
        left: Sequence[float],
        paid: float,
        bound: float,
        chosen: list[int],
    ) -> None:
        """Try the options of this level and those below; `left` is the rest of each path after the levels above."""
        if depth == len(levels):
            self._try(chosen, bound)
            return
        if self.deadline.passed:
            return
        level = levels[depth]
        latency_headroom = min((left[p] - level.reserved[p] for p in level.paths), default=inf)
        for excess, seconds, cost, option in level.options:
            limit = self.best_cost * (1 - SAME)
            if bound + excess >= limit:
                break
            if seconds <= latency_headroom and paid + cost + level.unpaid < limit:
                chosen[level.module] = option
                after = [s - seconds if p in level.paths else s for p, s in enumerate(left)]
                self._descend(levels, depth + 1, after, paid + cost, bound + excess, chosen)

    def _try(self, chosen: Sequence[int], bound: float = -inf) -> None:
        """Keep the split with these options if it is feasible and the best so far."""
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
