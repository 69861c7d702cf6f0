"""Which candidate pipelines can be dropped without changing any optimum.

A pipeline that serves x needs ceil(x / r) units of each of its stages' resources. A resource is whole GPUs of a pool,
or vGPUs of one size of a pool; a unit is one GPU or vGPU of it, and serves r. B is superfluous if some A is at least as
fast and needs, for every x, no more units of any resource than B:

1. both have the same resources, and A serves at least as much per unit in each stage; or
2. A has one stage for each resource, all of which B has, and serves at least 1 / sum(1 / r) per unit, the sum over
   B's stages on that resource; for ceil(x * sum(1 / r)) <= sum(ceil(x / r)).

Both rules also hold for the first stages of pipelines that continue in the same way: the needs of further stages are
added to both sides. A never has more stages than B, so it can get as many further stages.

Dominance in a linear relaxation or under a convex hull would drop more, but is wrong with integer counts.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.solver.deadline import Deadline, OutOfTimeError
from partita_planner.templates.pareto import Flags, Floats, Integers, ranges, unbeaten

NO_STAGE: Final = 1e6
"""The resource number of an absent stage; it sorts behind all others."""
PAIRS_AT_ONCE: Final = 2_000_000
Units = NDArray[np.complex128]
"""[pipeline][stage]: resource + 1j * samples per second of one unit, sorted; NO_STAGE where there are fewer stages."""


@dataclass(frozen=True)
class Candidates:
    """Pipelines, or first stages of pipelines, a row each."""

    group: Integers
    """Only candidates of one group are compared."""
    micros: Integers
    """Latency; 0 if it does not count."""
    units: Units
    tie: Integers
    """Of equal candidates, the one with the least tie stays."""

    def __getitem__(self, rows: Integers | Flags) -> "Candidates":
        return Candidates(self.group[rows], self.micros[rows], self.units[rows], self.tie[rows])


def sorted_units(resources: Integers, rates: Floats) -> Units:
    """Units from [pipeline][stage] tables; resources from 0 on, below 0 where there is no stage."""
    absent = resources < 0
    units = np.where(absent, NO_STAGE, resources) + 1j * np.where(absent, 0.0, rates)
    return np.sort(units, axis=1)


def undominated(candidates: Candidates, deadline: Deadline | None = None) -> Integers:
    """The rows that no other candidate makes superfluous, one of each set of equals, in increasing order.

    Raises OutOfTimeError.
    """
    if not len(candidates.group):
        return np.zeros(0, dtype=np.int64)
    kept = _best_on_the_same_resources(candidates, deadline)
    if candidates.units.shape[1] > 1:
        kept = kept[~_dominated_on_fewer_stages(candidates[kept], deadline)]
    return kept


def _best_on_the_same_resources(candidates: Candidates, deadline: Deadline | None) -> Integers:
    """Rule 1."""
    rates = candidates.units.imag
    served = np.where(candidates.units.real < NO_STAGE, np.log(np.maximum(rates, 1e-300)), 0.0).sum(axis=1)
    values = np.concatenate([-candidates.micros[:, None].astype(np.float64), rates], axis=1)
    group = _keys(candidates.group, candidates.units.real, _base(candidates.units.real))
    return unbeaten(group, values, served - np.log1p(candidates.micros), candidates.tie, deadline)


def _dominated_on_fewer_stages(candidates: Candidates, deadline: Deadline | None) -> Flags:
    """Rule 2 where rule 1 does not apply: A has fewer stages than B."""
    resources = candidates.units.real
    width = resources.shape[1]
    base = _base(resources)
    there = resources < NO_STAGE
    first = there & np.concatenate([np.ones((len(there), 1), bool), resources[:, 1:] != resources[:, :-1]], axis=1)
    single = (first == there).all(axis=1)
    needs = _needs(candidates.units, there, first)
    others = np.flatnonzero(single)
    other_keys = _keys(candidates.group[others], resources[others], base)
    order = np.argsort(other_keys, kind="stable")
    others, other_keys = others[order], other_keys[order]
    dominated = np.zeros(len(candidates.group), dtype=np.bool_)
    for count in range(1, width):
        for columns in combinations(range(width), count):
            chosen = list(columns)
            rows = np.flatnonzero(first[:, chosen].all(axis=1) & (there.sum(axis=1) > count) & ~dominated)
            if not len(rows):
                continue
            chosen_resources = np.full((len(rows), width), NO_STAGE)
            chosen_resources[:, :count] = resources[rows][:, chosen]
            keys = _keys(candidates.group[rows], chosen_resources, base)
            low = np.searchsorted(other_keys, keys, side="left")
            high = np.searchsorted(other_keys, keys, side="right")
            for some in portions(high - low, PAIRS_AT_ONCE):
                if deadline is not None and deadline.passed:
                    raise OutOfTimeError
                pairs, other = ranges(low[some], high[some])
                row, other = rows[some][pairs], others[other]
                better = candidates.micros[other] <= candidates.micros[row]
                for position, column in enumerate(chosen):
                    better &= needs[other, position] <= needs[row, column]
                dominated[row[better]] = True
    return dominated


def _needs(units: Units, there: Flags, first: Flags) -> Floats:
    """Units of each resource for a sample per second, summed at the first stage on it."""
    needs = np.where(there, 1 / np.where(there, units.imag, 1.0), 0.0)
    for column in reversed(range(1, units.shape[1])):
        again = there[:, column] & ~first[:, column]
        needs[:, column - 1] += np.where(again, needs[:, column], 0.0)
    return needs


def _base(resources: Floats) -> int:
    there = resources[resources < NO_STAGE]
    return int(there.max(initial=0)) + 2


def _keys(group: Integers, resources: Floats, base: int) -> Integers:
    """One number for each group and sequence of resources."""
    keys = group.astype(np.int64)
    for column in resources.T:
        keys = keys * base + np.where(column < NO_STAGE, column + 1, 0).astype(np.int64)
    return keys


def portions(counts: Integers, most: int) -> list[slice]:
    """Neighbouring rows whose counts together are not much more than `most`."""
    if not len(counts):
        return []
    portion = np.cumsum(counts) // most
    starts = np.flatnonzero(np.concatenate([[True], portion[1:] != portion[:-1]]))
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(counts)], strict=True)]


def undominated_in_parts(needs: Floats) -> Integers:
    """The rows of `needs` that matter when fractions of a GPU are allowed: for linear relaxations only.

    needs: [pipeline][pool] GPUs for each sample per second. Latency does not count.
    """
    score = -(needs / np.maximum(needs.max(axis=0, initial=0.0), 1e-300)).sum(axis=1)
    nothing = np.zeros(len(needs), dtype=np.int64)
    return unbeaten(nothing, -needs, score, nothing)
