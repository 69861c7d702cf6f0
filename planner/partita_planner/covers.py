"""Every way to serve one module, by the vGPUs that it takes: columns, priced and enumerated.

Where pools are limited, a vGPU is worth more than its price, and its worth changes from one solve to the next. So the
bundles of all templates (`covering`) are kept with the vGPUs that they take, and only priced when the worths are known.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.allocation import MAX_PIPELINES, Demand, Deployment, Market, in_dispatch_order
from partita_planner.covering import ROUNDING, Bundles, cheapest_bundles, step_ends
from partita_planner.deadline import Deadline, OutOfTimeError

MAX_BUNDLES: Final = 300_000
MAX_VISITS: Final = 400_000
"""Sets of bundles that an enumeration looks at before it gives up."""
MAX_COLUMNS: Final = 10_000

Resource = tuple[str, int]
"""A pool and the divisor of its vGPUs."""


@dataclass(frozen=True)
class Column:
    """One way to serve a module."""

    module: str
    latency_micros: int
    """Of its slowest template."""
    deployments: tuple[Deployment, ...]
    vgpus: tuple[int, ...]
    """vGPUs of each resource."""


@dataclass(frozen=True)
class Priced:
    """The cheapest column within some latency, at the worths that it was priced with."""

    column: Column
    worth: float
    bound: float
    """Proven: no column within this latency is worth less."""


@dataclass(frozen=True)
class CoverSpace:
    """All bundles of one module, by template and then by what they cover."""

    demand: Demand
    market: Market
    resources: tuple[Resource, ...]
    template: NDArray[np.int64]
    latency: NDArray[np.int64]
    covers: NDArray[np.float64]
    vgpus: NDArray[np.float64]
    """vGPUs by bundle and resource."""
    first: NDArray[np.int64] = field(repr=False)
    """Where the bundles of each template begin."""

    @staticmethod
    def of(demand: Demand, market: Market, resources: Sequence[Resource], deadline: Deadline) -> "CoverSpace | None":
        """The bundles that fit the pools; None if there are more than MAX_BUNDLES of them. Raises OutOfTimeError."""
        steps = sum(demand.capacity / stage.throughput + 1 for t in demand.templates for stage in t.stages)
        if steps > MAX_BUNDLES:
            return None
        most = np.array([market.pools[pool].gpus * divisor for pool, divisor in resources], dtype=float)
        position = {resource: r for r, resource in enumerate(resources)}
        owners, latencies, covers, vgpus = [], [], [], []
        for t, template in enumerate(demand.templates):
            if deadline.passed:
                raise OutOfTimeError
            ends = np.unique(np.concatenate([step_ends(s.throughput, demand.capacity) for s in template.stages]))
            taken = np.zeros((len(ends), len(resources)))
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
            market,
            tuple(resources),
            template_of,
            np.concatenate(latencies),
            np.concatenate(covers),
            np.concatenate(vgpus),
            begins,
        )

    def cheapest(
        self, worths: NDArray[np.float64], micros_worth: float, below: float, deadline: Deadline
    ) -> Iterator[Priced]:
        """Columns of least worth within smaller and smaller latencies, while one may be worth less than `below`.

        `worths` are of one vGPU of each resource, `micros_worth` of a microsecond of latency. Raises OutOfTimeError.
        """
        worth = self.vgpus @ worths
        order = np.lexsort((-self.covers, worth))
        bundles = Bundles(self.template[order], worth[order], self.covers[order])
        latency = self.latency[order]
        while True:
            if deadline.passed:
                raise OutOfTimeError
            chosen, bound = cheapest_bundles(bundles, self.demand.capacity, deadline)
            if not chosen:
                return
            column = self._column(chosen)
            paid = float(np.array(column.vgpus) @ worths)
            least = min(bound, paid)
            yield Priced(column, paid, least)
            if least + micros_worth * float(latency.min()) >= below:
                return
            faster = latency < column.latency_micros
            bundles, latency = bundles.where(faster), latency[faster]

    def within(
        self, worths: NDArray[np.float64], micros_worth: float, limit: float, deadline: Deadline
    ) -> tuple[Column, ...] | None:
        """Every column that is worth `limit` or less with its latency, but for those that another makes superfluous.

        None if there are too many to say, or time runs out.
        """
        enumeration = _Enumeration(self, worths, micros_worth, limit, deadline)
        if not enumeration.run():
            return None
        return tuple(self._column(chosen) for chosen in enumeration.undominated())

    def _column(self, chosen: Sequence[tuple[int, float]]) -> Column:
        covered: dict[int, float] = {}
        for template, covers in chosen:
            covered[template] = covered.get(template, 0.0) + covers
        templates = self.demand.templates
        found = [
            Deployment(templates[t], templates[t].replicas(min(x, self.demand.capacity))) for t, x in covered.items()
        ]
        taken = dict.fromkeys(self.resources, 0)
        for deployment in found:
            for stage, count in zip(deployment.template.stages, deployment.replicas, strict=True):
                taken[stage.pool, stage.divisor] += count
        slowest = max(d.template.latency_micros for d in found)
        return Column(self.demand.module, slowest, in_dispatch_order(found, self.market), tuple(taken.values()))

    @cached_property
    def ends(self) -> tuple[list[float], ...]:
        """What the bundles of each template cover."""
        return tuple(self.covers[a:b].tolist() for a, b in zip(self.first[:-1], self.first[1:], strict=True))

    @cached_property
    def superfluous_from(self) -> list[float]:
        """The latency from which on another template does all that each template does, with no more vGPUs of any kind.

        One with a stage for each resource does if it needs no more vGPUs of any for a sample per second (`dominance`).
        """
        templates = self.demand.templates
        position = {resource: r for r, resource in enumerate(self.resources)}
        needs = np.zeros((len(templates), len(self.resources)))
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


class _Enumeration:
    """Depth-first search over sets of templates, a bundle of each, by falling latency of the templates.

    The first template so says how slow the set is. With it go only those that nothing as fast makes superfluous. The
    last bundle covers just what is left.
    """

    def __init__(
        self, space: CoverSpace, worths: NDArray[np.float64], micros_worth: float, limit: float, deadline: Deadline
    ) -> None:
        self.deadline = deadline
        self.space = space
        self.worth = space.vgpus @ worths
        self.micros_worth = micros_worth
        self.limit = limit + ROUNDING * abs(limit)
        self.least = float(np.min(self.worth / space.covers, initial=inf))
        self.visits = 0
        self.found: dict[tuple[int, ...], tuple[int, tuple[int, ...]]] = {}
        """By vGPUs: latency and bundles of the fastest column."""
        left = np.maximum(0.0, space.demand.capacity - space.covers)
        total = self.worth + self.least * left + micros_worth * space.latency
        hopeful = np.flatnonzero(total <= self.limit)
        self.by_template = sorted(
            ((int(t), hopeful[space.template[hopeful] == t].tolist()) for t in np.unique(space.template[hopeful])),
            key=lambda own: -space.demand.templates[own[0]].latency_micros,
        )
        self.completion: tuple[list[float], list[float]] = [], []
        self.rows = space.vgpus.astype(int)
        self.price, self.covers = self.worth.tolist(), space.covers.tolist()

    def run(self) -> bool:
        """Whether all were found in time, within MAX_VISITS and MAX_COLUMNS."""
        until = self.space.superfluous_from
        for k, (template, _) in enumerate(self.by_template):
            slowest = self.space.demand.templates[template].latency_micros
            if slowest < until[template]:
                others = [own for own in self.by_template[k + 1 :] if slowest < until[own[0]]]
                spent = self.micros_worth * slowest
                active = [self.by_template[k], *others]
                self.completion = self._completions([b for _, own in active for b in own], self.limit - spent)
                if not self._grow([self.by_template[k]], others, (), spent, self.space.demand.capacity, slowest):
                    return False
        return True

    def undominated(self) -> Iterator[list[tuple[int, float]]]:
        """Template and coverage of the bundles of each column that no faster one with fewer vGPUs replaces."""
        rows = sorted(self.found.items(), key=lambda item: (item[1][0], sum(item[0])))
        kept = np.empty((len(rows), len(self.space.resources)))
        count = 0
        for taken, (_, bundles) in rows:
            if (kept[:count] <= taken).all(axis=1).any():
                continue
            kept[count] = taken
            count += 1
            yield [(int(self.space.template[b]), self.covers[b]) for b in bundles]

    def _grow(
        self,
        now: Sequence[tuple[int, list[int]]],
        later: Sequence[tuple[int, list[int]]],
        chosen: tuple[int, ...],
        paid: float,
        left: float,
        slowest: int,
    ) -> bool:
        """Add a bundle of a template of `now`, then of those after it and of `later`; false if it is too much."""
        for k, (template, hopeful) in enumerate(now):
            first = int(self.space.first[template])
            closing = first + bisect_left(self.space.ends[template], left * (1 - ROUNDING))
            for bundle in hopeful:
                if bundle >= closing:
                    break
                self.visits += 1
                rest, total = left - self.covers[bundle], paid + self.price[bundle]
                if self.visits > MAX_VISITS or self.deadline.passed:
                    return False
                if total + self._to_cover(rest) > self.limit or len(chosen) + 1 >= MAX_PIPELINES:
                    continue
                if not self._grow([*now[k + 1 :], *later], (), (*chosen, bundle), total, rest, slowest):
                    return False
            closes = closing < int(self.space.first[template + 1]) and paid + self.price[closing] <= self.limit
            if closes and not self._keep((*chosen, closing), slowest):
                return False
        return True

    def _completions(self, hopeful: Sequence[int], limit: float) -> tuple[list[float], list[float]]:
        """What more and more worth covers at most, by hopeful bundles: coverage and worth, both rising."""
        space, needed, rows = self.space, self.space.demand.capacity, np.array(hopeful)
        bundles = Bundles(space.template[rows], self.worth[rows], space.covers[rows]).undominated()
        items = list(zip(bundles.price.tolist(), bundles.covers.tolist(), strict=True))
        covers, worths = [-1.0], [0.0]
        heap = [(0.0, 0.0)]
        while heap:
            worth, covered_negated = heappop(heap)
            covered = -covered_negated
            if covered <= covers[-1]:
                continue
            covers.append(covered)
            worths.append(worth)
            if covered >= needed:
                break
            for more_worth, more_covered in items:
                total, reached = worth + more_worth, min(needed, covered + more_covered)
                if total + self.least * (needed - reached) <= limit:
                    heappush(heap, (total, -reached))
        return covers, worths

    def _to_cover(self, rest: float) -> float:
        """The least that covering `rest` is worth in a column within the limit; infinite if there is none."""
        covers, worths = self.completion
        position = bisect_left(covers, rest * (1 - ROUNDING))
        return worths[position] if position < len(worths) else inf

    def _keep(self, bundles: tuple[int, ...], latency: int) -> bool:
        taken = tuple(int(n) for n in self.rows[list(bundles)].sum(axis=0))
        known = self.found.get(taken)
        if known is None or latency < known[0]:
            self.found[taken] = (latency, bundles)
        return len(self.found) <= MAX_COLUMNS
