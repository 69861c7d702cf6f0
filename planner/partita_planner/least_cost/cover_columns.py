"""Columns, priced and enumerated: a column is a way to serve one module, with the vGPUs that it uses.

With limited pools, a vGPU is worth more than its price, and its worth changes from one solve to the next. So the
bundles of all templates (`bundle_search`) are stored with their vGPUs, and are priced once the worths are known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import MAX_PIPELINES, TemplateDeployment, in_dispatch_order, occupancy_price
from partita_planner.allocation.resources import AvailableResources
from partita_planner.least_cost.bundle_search import Bundles, cheapest_bundles, step_ends
from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.solver.tolerances import ROUNDING

MAX_BUNDLES: Final = 300_000
MAX_VISITS: Final = 200_000
"""Sets of bundles that an enumeration visits before it stops."""
MAX_COLUMNS: Final = 10_000

VGpuSize = tuple[str, int]
"""A pool and the divisor of its vGPUs."""


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CoverColumn:
    """One way to serve a module."""

    module: str
    latency_micros: int
    """Latency of its slowest template."""
    deployments: tuple[TemplateDeployment, ...]
    vgpus: tuple[int, ...]
    """vGPUs of each size."""
    cost: float
    """Price per hour."""


@dataclass(frozen=True)
class Priced:
    """The cheapest column within some latency, at given prices."""

    column: CoverColumn
    worth: float
    """Its cost, plus the scarcity of its vGPUs."""
    bound: float
    """Proven: no column within this latency is worth less."""


def vgpus_of(deployments: Sequence[TemplateDeployment], sizes: Sequence[VGpuSize]) -> tuple[int, ...]:
    """vGPUs of each size."""
    taken = dict.fromkeys(sizes, 0)
    for deployment in deployments:
        for stage, count in zip(deployment.template.stages, deployment.replicas, strict=True):
            taken[stage.pool, stage.divisor] += count
    return tuple(taken.values())


@dataclass(frozen=True)
class CoverSpace:
    """All bundles of one module, ordered by template and then by what they cover."""

    demand: ModuleDemand
    resources: AvailableResources
    objective: AllocationObjective
    """ALLOCATED or OCCUPANCY."""
    sizes: tuple[VGpuSize, ...]
    template: NDArray[np.int64]
    latency: NDArray[np.int64]
    covers: Floats
    vgpus: Floats
    """vGPUs by bundle and vGPU size."""
    first: NDArray[np.int64] = field(repr=False)
    """Index of the first bundle of each template."""

    @staticmethod
    def of(
        demand: ModuleDemand,
        resources: AvailableResources,
        objective: AllocationObjective,
        sizes: Sequence[VGpuSize],
        deadline: Deadline,
    ) -> "CoverSpace | None":
        """The bundles that fit the pools; None if there are more than MAX_BUNDLES. Raises OutOfTimeError."""
        steps = sum(demand.capacity / stage.throughput + 1 for t in demand.templates for stage in t.stages)
        if steps > MAX_BUNDLES:
            return None
        most = np.array([resources.pools[pool].gpus * divisor for pool, divisor in sizes], dtype=float)
        position = {size: r for r, size in enumerate(sizes)}
        owners, latencies, covers, vgpus = [], [], [], []
        for t, template in enumerate(demand.templates):
            if deadline.passed:
                raise OutOfTimeError
            ends = np.unique(np.concatenate([step_ends(s.throughput, demand.capacity) for s in template.stages]))
            taken = np.zeros((len(ends), len(sizes)))
            for stage in template.stages:
                taken[:, position[stage.pool, stage.divisor]] += np.ceil(ends / stage.throughput - ROUNDING)
            fits = (taken <= most).all(axis=1)
            owners.append(np.full(fits.sum(), t))
            latencies.append(np.full(fits.sum(), template.latency_micros))
            covers.append(ends[fits])
            vgpus.append(taken[fits])
        template_of = np.concatenate(owners)
        begins = np.searchsorted(template_of, np.arange(len(demand.templates) + 1))
        return CoverSpace(
            demand,
            resources,
            objective,
            tuple(sizes),
            template_of,
            np.concatenate(latencies),
            np.concatenate(covers),
            np.concatenate(vgpus),
            begins,
        )

    @cached_property
    def unit_price(self) -> Floats:
        """Price of one vGPU of each size while it is allocated."""
        if self.objective is AllocationObjective.OCCUPANCY:
            return np.zeros(len(self.sizes))
        return np.array([self.resources.gpu_price[pool] / divisor for pool, divisor in self.sizes])

    @cached_property
    def sample_price(self) -> Floats | None:
        """By bundle, the price of one sample per second; None if only allocated vGPUs have a price."""
        if self.objective is not AllocationObjective.OCCUPANCY:
            return None
        share = self.demand.rate / self.demand.capacity
        return np.array([share * self.resources.sample_price(t) for t in self.demand.templates])[self.template]

    def worth(self, column: CoverColumn, scarcity: Floats) -> float:
        """The cost of a column plus the scarcity of its vGPUs."""
        return column.cost + float(np.array(column.vgpus) @ scarcity)

    def cheapest(self, scarcity: Floats, micros_worth: float, below: float, deadline: Deadline) -> Iterator[Priced]:
        """Columns of least worth within shorter and shorter latencies, while one may be worth less than `below`.

        `scarcity` is the worth of one vGPU of each size beyond its price, `micros_worth` the worth of a microsecond of
        latency. Raises OutOfTimeError.
        """
        worth = self.vgpus @ (self.unit_price + scarcity)
        if self.sample_price is not None:
            worth += self.sample_price * self.covers
        bundles = Bundles(self.template, worth, self.covers, self.sample_price)
        order = np.lexsort((-self.covers, worth))
        bundles = bundles.at(order)
        latency = self.latency[order]
        while True:
            if deadline.passed:
                raise OutOfTimeError
            chosen, bound = cheapest_bundles(bundles, self.demand.capacity, deadline)
            if not chosen:
                return
            column = self._column(chosen)
            paid = self.worth(column, scarcity)
            least = min(bound, paid)
            yield Priced(column, paid, least)
            if least + micros_worth * float(latency.min()) >= below:
                return
            faster = latency < column.latency_micros
            bundles, latency = bundles.where(faster), latency[faster]

    def within(
        self, scarcity: Floats, micros_worth: float, limit: float, deadline: Deadline
    ) -> tuple[CoverColumn, ...] | None:
        """Every column that is worth `limit` or less with its latency, except superfluous ones.

        None if there are too many, or time runs out.
        """
        enumeration = _ColumnEnumeration(self, scarcity, micros_worth, limit, deadline)
        if not enumeration.run():
            return None
        return tuple(self._column(chosen) for chosen in enumeration.undominated())

    def _column(self, chosen: Sequence[tuple[int, float]]) -> CoverColumn:
        covered: dict[int, float] = {}
        for template, covers in chosen:
            covered[template] = covered.get(template, 0.0) + covers
        templates = self.demand.templates
        found = [
            TemplateDeployment(templates[t], templates[t].replicas(min(x, self.demand.capacity)))
            for t, x in covered.items()
        ]
        slowest = max(d.template.latency_micros for d in found)
        deployments, vgpus = in_dispatch_order(found, self.resources), vgpus_of(found, self.sizes)
        if self.objective is AllocationObjective.OCCUPANCY:
            cost = occupancy_price(deployments, self.demand, self.resources)
        else:
            cost = float(np.array(vgpus) @ self.unit_price)
        return CoverColumn(self.demand.module, slowest, deployments, vgpus, cost)

    @cached_property
    def superfluous_from(self) -> list[float]:
        """For each template the latency from which another template replaces it, with no more vGPUs of any size.

        A template with one stage for each size replaces another if it needs no more vGPUs of any size for a sample per
        second (`dominance`).
        """
        templates = self.demand.templates
        position = {size: r for r, size in enumerate(self.sizes)}
        needs = np.zeros((len(templates), len(self.sizes)))
        for t, template in enumerate(templates):
            for stage in template.stages:
                needs[t, position[stage.pool, stage.divisor]] += 1 / stage.throughput
        latency = np.array([t.latency_micros for t in templates], dtype=float)
        order = np.lexsort((np.arange(len(templates)), latency))
        rank = np.empty(len(templates))
        rank[order] = np.arange(len(templates))
        once = np.array([len({(s.pool, s.divisor) for s in t.stages}) == len(t.stages) for t in templates])
        until = np.full(len(templates), inf)
        for t in range(len(templates)):
            does = once & (needs <= needs[t]).all(axis=1)
            does &= ~((needs == needs[t]).all(axis=1) & (rank >= rank[t]))
            until[t] = latency[does].min(initial=inf)
        return until.tolist()


@dataclass(frozen=True)
class _Rows:
    """Bundles by template, in the order in which sets are built from them."""

    bundle: NDArray[np.intp]
    position: NDArray[np.int64]
    """Position of the bundle's template; rising."""
    vgpu_worth: Floats
    """Worth of its vGPUs."""
    sample: Floats
    """Price of each sample per second that it serves."""
    begins: Floats
    """What the previous bundle of the same template covers."""
    covers: Floats

    def __getitem__(self, rows: slice | NDArray[np.bool_]) -> "_Rows":
        columns = (self.vgpu_worth[rows], self.sample[rows], self.begins[rows], self.covers[rows])
        return _Rows(self.bundle[rows], self.position[rows], *columns)

    def from_position(self, begin: int, end: int) -> "_Rows":
        """The bundles of the templates from position `begin` to before `end`."""
        return self[slice(*np.searchsorted(self.position, (begin, end)))]


class _ColumnEnumeration:
    """Depth-first search over sets of templates with a bundle each, for one slowest template after the other.

    Only templates that no template as fast replaces join the slowest one. The last bundle covers just the rest. If
    samples have a price, it is the bundle with the most expensive samples, since the others are used to their ends.
    Each sample then costs at least `base`, the least worth of a sample, and each bundle adds at least its `excess`.
    """

    def __init__(
        self, space: CoverSpace, scarcity: Floats, micros_worth: float, limit: float, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self.space = space
        self.micros_worth = micros_worth
        self.limit = limit + ROUNDING * abs(limit)
        self.visits = 0
        self.found: dict[tuple[int, ...], list[tuple[int, float, tuple[int, ...]]]] = {}
        """By vGPUs: latency, price of samples, and bundles of the columns that no other column dominates."""
        needed, covers = space.demand.capacity, space.covers
        vgpu_worth = space.vgpus @ (space.unit_price + scarcity)
        sample = np.zeros(len(vgpu_worth)) if space.sample_price is None else space.sample_price
        least = float(np.min((vgpu_worth + sample * covers) / covers, initial=inf))
        self.base = 0.0 if space.sample_price is None else least
        self.least_excess = least - self.base
        begins = np.where(np.isin(np.arange(len(covers)), space.first), 0.0, np.roll(covers, 1))
        excess = vgpu_worth + np.minimum((sample - self.base) * covers, (sample - self.base) * begins)
        left = self.least_excess * np.maximum(0.0, needed - covers)
        hopeful = np.flatnonzero(self.base * needed + excess + left + micros_worth * space.latency <= self.limit)
        self.rank = np.argsort(np.argsort([-t.latency_micros for t in space.demand.templates], kind="stable"))
        """Rank of each template, the slowest first."""
        rank = self.rank[space.template]
        hopeful = hopeful[np.lexsort((covers[hopeful], rank[hopeful], sample[hopeful]))]
        self.hopeful = _Rows(
            hopeful, rank[hopeful], vgpu_worth[hopeful], sample[hopeful], begins[hopeful], covers[hopeful]
        )
        self.excess, self.sample = excess, sample
        self.slowest = 0
        """Position of the slowest template of the columns that are enumerated now."""
        self.active = self.hopeful
        """The bundles that these columns may have."""
        self.completion = np.zeros(0), np.zeros(0)
        """The most that the active bundles cover within an excess: coverage and excess, both rising."""
        self.counts = space.vgpus.astype(int)

    def run(self) -> bool:
        """Whether all columns were found in time, within MAX_VISITS and MAX_COLUMNS."""
        templates, hopeful = self.space.demand.templates, self.hopeful
        until = np.array(self.space.superfluous_from)
        until_of = until[self.space.template[hopeful.bundle]]
        for rank in np.unique(hopeful.position):
            slowest = int(np.flatnonzero(self.rank == rank)[0])
            latency = templates[slowest].latency_micros
            if latency < until[slowest]:
                active = hopeful[(hopeful.position >= rank) & (until_of > latency)]
                changes = np.concatenate([[0], np.cumsum(active.position[1:] != active.position[:-1])])
                self.slowest = int(changes[np.flatnonzero(active.position == rank)[0]])
                self.active = replace(active, position=changes)
                spent = self.micros_worth * latency
                self.completion = self._completions(self.limit - spent)
                if not self._grow(0, (), spent, self.space.demand.capacity, latency):
                    return False
        return True

    def undominated(self) -> Iterator[list[tuple[int, float]]]:
        """Template and coverage of the bundles of each undominated column, by latency, cost and vGPUs."""
        rows = sorted(
            ((latency, cost, taken, bundles) for taken, own in self.found.items() for latency, cost, bundles in own),
            key=lambda row: (row[0], sum(row[2]), row[1]),
        )
        kept = np.empty((len(rows), len(self.space.sizes) + 1))
        count = 0
        for _, cost, taken, bundles in rows:
            needs = np.array([*taken, cost])
            if (kept[:count] <= needs * (1 + ROUNDING)).all(axis=1).any():
                continue
            kept[count] = needs
            count += 1
            yield [(int(self.space.template[b]), float(self.space.covers[b])) for b in bundles]

    def _grow(self, begin: int, chosen: tuple[int, ...], paid: float, left: float, latency: int) -> bool:
        """Add a bundle of an active template from position `begin` upwards, recursively; false at a limit."""
        self.visits += 1
        if self.visits > MAX_VISITS or self.deadline.passed:
            return False
        active = self.active.from_position(
            begin, self.slowest + 1 if begin <= self.slowest else len(self.active.bundle)
        )
        enough = left * (1 - ROUNDING)
        closes = (active.covers >= enough) & (active.begins < enough) & (active.position >= self.slowest)
        closes &= paid + active.vgpu_worth + active.sample * left <= self.limit
        if not all(self._keep((*chosen, int(bundle)), left, latency) for bundle in active.bundle[closes]):
            return False
        if len(chosen) + 1 >= MAX_PIPELINES:
            return True
        rest, total = left - active.covers, paid + active.vgpu_worth + active.sample * active.covers
        grows = np.flatnonzero((active.covers < enough) & (total + self._to_cover(rest) <= self.limit))
        return all(
            self._grow(int(active.position[i]) + 1, (*chosen, int(active.bundle[i])), total[i], rest[i], latency)
            for i in grows
        )

    def _completions(self, limit: float) -> tuple[Floats, Floats]:
        """The most that the active bundles cover within an excess, as a curve: coverage and excess, both rising."""
        needed, rows = self.space.demand.capacity, self.active.bundle
        bundles = Bundles(self.space.template[rows], self.excess[rows], self.active.covers).undominated()
        items = list(zip(bundles.price.tolist(), bundles.covers.tolist(), strict=True))
        most = limit - self.base * needed
        covers, excesses = [-1.0], [0.0]
        heap = [(0.0, 0.0)]
        while heap:
            excess, covered_negated = heappop(heap)
            covered = -covered_negated
            if covered <= covers[-1]:
                continue
            covers.append(covered)
            excesses.append(excess)
            if covered >= needed:
                break
            for more_excess, more_covered in items:
                total, reached = excess + more_excess, min(needed, covered + more_covered)
                if total + self.least_excess * (needed - reached) <= most:
                    heappush(heap, (total, -reached))
        return np.array(covers), np.array([*excesses, inf])

    def _to_cover(self, rest: Floats) -> Floats:
        """The least worth of covering `rest` in a column within the limit; infinity if there is none."""
        covers, excesses = self.completion
        excess: Floats = excesses[np.searchsorted(covers, rest * (1 - ROUNDING))]
        return self.base * rest + excess

    def _keep(self, bundles: tuple[int, ...], left: float, latency: int) -> bool:
        """Keep a column whose last bundle serves the rest `left`; false if there are too many columns."""
        taken = tuple(int(n) for n in self.counts[list(bundles)].sum(axis=0))
        covers, sample = self.space.covers, self.sample
        cost = float(sum(sample[b] * covers[b] for b in bundles[:-1]) + sample[bundles[-1]] * left)
        known = self.found.setdefault(taken, [])
        if not any(faster <= latency and cheaper <= cost for faster, cheaper, _ in known):
            known[:] = [own for own in known if own[0] < latency or own[1] < cost]
            known.append((latency, cost, bundles))
        return len(self.found) <= MAX_COLUMNS
