"""Least cost from limited pools, by column generation and enumeration.

1. A master problem chooses one column for each module (`cover_columns`, `master_problem`). Its linear relaxation gives
   a price to every pool and to every module's latency.
2. The cheapest columns of each module at these prices are found exactly (`bundle_search`). Columns that improve the
   relaxation are added to the master, until there are none. The cost of the cheapest columns at any prices, less the
   worth of the pools and the SLO, is a bound on every plan (Lagrange).
3. A plan that costs d more than the bound consists of columns that cost at most d more than the cheapest column of
   their module. All these columns are enumerated, for growing d, and the integer master over them is solved. A plan
   within d of the bound is the optimum. If there is none, the bound rises by d.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

import numpy as np

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found, NothingFound
from partita_planner.least_cost.columns_with_reserve import ReserveSpace
from partita_planner.least_cost.cover_columns import CoverColumn, CoverSpace, Floats, Priced
from partita_planner.least_cost.covers_with_reserve import CoversWithReserve
from partita_planner.least_cost.master_problem import Chosen, Columns, Duals, Master
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.tolerances import COST_GAP

CONVERGED: Final = 1e-7
"""Relative distance between relaxation and bound."""
PENALTY: Final = 10
"""Penalty of a missing GPU, as a multiple of the highest GPU price."""
DISTANCES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, inf)
"""Distances above the relaxation, as shares of it, within which plans are searched one after the other."""
LEAST_SCALE: Final = 0.01
"""The base of these shares is at least this share of the price of all GPUs."""
MASTER_SHARE: Final = 0.3
"""Share of the time for the first plan, over the columns of the relaxation."""


def least_cost_within_pools(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    graph: LatencyGraph,
    objective: AllocationObjective,
    bound: float,
    deadline: Deadline,
    margin: LossMargin | None = None,
) -> Found | NothingFound:
    """The cheapest deployments; `objective` is ALLOCATED or OCCUPANCY, and `bound` a known bound.

    With `margin`, they survive the loss of a replica; `objective` is then ALLOCATED. The bound of the result is lower
    than its value if time or the enumeration's limits end the proof.
    """
    sizes = tuple(sorted({(s.pool, s.divisor) for d in demands for t in d.templates for s in t.stages}))
    try:
        found = {
            d.module: CoverSpace.of(d, resources, objective, sizes, deadline)
            if margin is None
            else ReserveSpace(CoversWithReserve.of(d, margin), resources, sizes)
            for d in demands
        }
    except OutOfTimeError:
        return NothingFound(proven=False)
    spaces: dict[str, ColumnSpace] = {name: space for name, space in found.items() if space is not None}
    highest_price = max(resources.gpu_price[pool] for pool, _ in sizes)
    if len(spaces) < len(demands) or highest_price == 0:
        return NothingFound(proven=False)
    return _Generation(Master(resources, graph, sizes, PENALTY * highest_price), spaces, bound).run(deadline)


class ColumnSpace(Protocol):
    """The columns of one module, in no particular order; see `CoverSpace`."""

    def worth(self, column: CoverColumn, scarcity: Floats) -> float: ...

    def cheapest(self, scarcity: Floats, micros_worth: float, below: float, deadline: Deadline) -> Iterator[Priced]: ...

    def within(
        self, scarcity: Floats, micros_worth: float, limit: float, deadline: Deadline
    ) -> Sequence[CoverColumn] | None: ...


@dataclass(frozen=True)
class _Root:
    """The relaxation's bound, with its prices."""

    value: float
    duals: Duals
    least: Mapping[str, float]
    """By module: the least worth of a column, with its latency."""


class _Generation:
    """State of one search: columns so far, the best bound, and the best plan."""

    def __init__(self, master: Master, spaces: Mapping[str, ColumnSpace], bound: float) -> None:
        self.master = master
        self.spaces = spaces
        self.columns: dict[str, dict[tuple[int, float, tuple[int, ...]], CoverColumn]] = {name: {} for name in spaces}
        self.best: Chosen | None = None
        self.bound = bound
        pools = master.resources.pools.items()
        self.most = sum(master.resources.gpu_price[name] * pool.gpus for name, pool in pools) * (1 + 10 * COST_GAP)
        """A little more than the price of all GPUs: every plan costs less."""

    def run(self, deadline: Deadline) -> Found | NothingFound:
        """Improves columns, bound and plan until the plan is proven or time runs out."""
        if not self._begin(deadline):
            return NothingFound(proven=not deadline.passed)
        root = self._relaxation(deadline)
        if root is not None:
            self.bound = max(self.bound, root.value)
            self._choose({name: list(own.values()) for name, own in self.columns.items()}, deadline.share(MASTER_SHARE))
            for distance in DISTANCES:
                if deadline.passed or self.bound >= self.ceiling * (1 - COST_GAP):
                    break
                ceiling = min(self.ceiling, root.value + distance * max(root.value, self.most * LEAST_SCALE))
                if ceiling > self.bound and not self._settle(root, ceiling, deadline):
                    break
        if self.best is None:
            return NothingFound(proven=self.bound >= self.most)
        deployments = ModuleDeployments({name: column.deployments for name, column in self.best.columns.items()})
        return Found(deployments, self.best.cost, min(self.best.cost, self.bound))

    @property
    def ceiling(self) -> float:
        """Plans that cost more are not searched."""
        return self.most if self.best is None else self.best.cost

    def _begin(self, deadline: Deadline) -> bool:
        """Every module's frontier from unlimited pools; false if a module cannot be served, or time ran out."""
        plenty = np.zeros(len(self.master.sizes))
        try:
            for space in self.spaces.values():
                for priced in space.cheapest(plenty, 0.0, inf, deadline):
                    self._add(priced.column)
        except OutOfTimeError:
            return False
        return all(self.columns.values())

    def _relaxation(self, deadline: Deadline) -> _Root | None:
        """Generate columns until none improves the relaxation; returns the best bound."""
        best: _Root | None = None
        while not deadline.passed:
            solved = self.master.relaxed({n: list(own.values()) for n, own in self.columns.items()}, deadline)
            if solved is None:
                break
            value, duals = solved
            try:
                grown, root = self._price(duals, deadline)
            except OutOfTimeError:
                break
            best = root if best is None or root.value > best.value else best
            if not grown or value - best.value <= CONVERGED * value:
                break
        return best

    def _price(self, duals: Duals, deadline: Deadline) -> tuple[bool, _Root]:
        """Add the columns that improve the relaxation; returns whether there were any, and the proven bound."""
        scarcity = duals.scarcity(self.master.sizes)
        grown, least = False, {}
        for name, space in self.spaces.items():
            micros_worth = duals.latency[name] / self.master.graph.slo_micros
            known = self.columns[name].values()
            least[name] = min(space.worth(c, scarcity) + micros_worth * c.latency_micros for c in known)
            for priced in space.cheapest(scarcity, micros_worth, least[name], deadline):
                latency = micros_worth * priced.column.latency_micros
                grown |= priced.worth + latency < least[name] and self._add(priced.column)
                least[name] = min(least[name], priced.bound + latency)
        return grown, _Root(sum(least.values()) + duals.potential, duals, least)

    def _settle(self, root: _Root, ceiling: float, deadline: Deadline) -> bool:
        """Find the best plan below `ceiling`, or prove that there is none; false if there are too many columns."""
        scarcity = root.duals.scarcity(self.master.sizes)
        columns: dict[str, Sequence[CoverColumn]] = {}
        for name, space in self.spaces.items():
            micros_worth = root.duals.latency[name] / self.master.graph.slo_micros
            every = space.within(scarcity, micros_worth, root.least[name] + ceiling - root.value, deadline)
            if every is None:
                return False
            columns[name] = every
        bound = self._choose(columns, deadline)
        if bound is not None:
            self.bound = max(self.bound, min(bound, ceiling))
        return bound is not None

    def _choose(self, columns: Columns, deadline: Deadline) -> float | None:
        """The best choice of these columns, kept if it is the best plan so far, and a bound on all of them.

        None if time ran out.
        """
        if not all(columns.values()):
            return inf
        chosen = self.master.solve(columns, deadline)
        if isinstance(chosen, NothingFound):
            return inf if chosen.proven else None
        if self.best is None or chosen.cost < self.best.cost:
            self.best = chosen
        return chosen.bound

    def _add(self, column: CoverColumn) -> bool:
        """Add a column; returns whether it is new."""
        key = column.latency_micros, column.cost, column.vgpus
        new = key not in self.columns[column.module]
        self.columns[column.module].setdefault(key, column)
        return new
