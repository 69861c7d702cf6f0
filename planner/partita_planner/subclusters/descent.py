"""A fast local search for a good partition: a start with the largest models first, and exchanges between pairs.

In coordinates (rate / average, w * static memory / average) the ideal load of every sub-cluster is (1, w). Exchanging
sets of models between sub-clusters a and b moves a by some vector D and b by -D. The sum of squared distances falls
most if D is nearest to half the difference of their loads. So one table of distances gives the best exchange of all
sets of at most `exchanged` models. The pair that differs most is first. When no pair can be improved, larger sets are
tried.

An exchange must not increase the excess over the limits on memory and rate, so the search leads back within the limits.
It must not exceed the remaining change cost.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.subclusters.problem import SubclusterProblem

CHECKED: Final = 32
"""How many of the nearest exchanges are tried while two sub-clusters exceed the limits on memory or rate."""
MAX_SETS: Final = 1500
"""Sets on one side of an exchange; where there are more of two models, single models are exchanged."""
LEAST_GAIN: Final = 1e-12

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Arrays:
    """A problem as arrays by model; memory and rates as shares of the averages."""

    points: Floats
    """[model][2]: rate, and static memory times its weight; the last row is no model, (0, 0)."""
    rate: Floats
    static: Floats
    dynamic: Floats
    home: Ints
    """Where a model is loaded; -1 for nowhere."""
    load_cost: Floats
    max_rate: float
    max_memory: float
    max_change_cost: float
    subclusters: int

    @staticmethod
    def of(problem: SubclusterProblem) -> "Arrays":
        """The arrays of a problem."""
        rate = np.array([m.rate for m in problem.models])
        static = np.array([m.static_bytes for m in problem.models])
        average_rate = rate.sum() / problem.subclusters or 1.0
        average_static = static.sum() / problem.subclusters or 1.0
        points = np.stack([rate / average_rate, problem.memory_weight * static / average_static], axis=1)
        homes = [problem.home(m) for m in problem.models]
        return Arrays(
            points=np.concatenate([points, [[0.0, 0.0]]]),
            rate=rate / average_rate,
            static=static / average_static,
            dynamic=np.array([m.dynamic_bytes for m in problem.models]) / average_static,
            home=np.array([-1 if home is None else home for home in homes]),
            load_cost=np.array([m.load_cost for m in problem.models]),
            max_rate=problem.max_rate / average_rate * (1 + ROUNDING),
            max_memory=problem.max_memory / average_static * (1 + ROUNDING),
            max_change_cost=problem.max_change_cost * (1 + ROUNDING),
            subclusters=problem.subclusters,
        )

    def excess(self, models: Ints) -> float:
        """By how much a sub-cluster of these models exceeds the limits."""
        if not len(models):
            return 0.0
        rate = float(self.rate[models].sum())
        memory = float(self.static[models].sum() + self.dynamic[models].max())
        return max(0.0, rate - self.max_rate) + max(0.0, memory - self.max_memory)

    def excesses(self, where: Ints) -> float:
        """The excess of all sub-clusters."""
        return sum(self.excess(np.flatnonzero(where == j)) for j in range(self.subclusters))

    def change_cost(self, where: Ints) -> float:
        """Equation 10, its left-hand side."""
        factor = np.where(where == self.home, 0.0, np.where(self.home < 0, 1.0, 2.0))
        return float((factor * self.load_cost).sum())


def descend(problem: SubclusterProblem, deadline: Deadline, *, close_enough: float) -> list[int]:
    """The sub-cluster of each model; within the limits if the search finds such a partition.

    Stops when no exchange helps, when all sub-clusters are within the limits and `close_enough`, or when time runs out.
    """
    arrays = Arrays.of(problem)
    where = start_evenly(arrays)
    _improve(arrays, where, 1, close_enough, deadline)
    if arrays.excesses(where):
        other = start_by_dynamic_memory(arrays)
        if arrays.change_cost(other) <= arrays.max_change_cost and arrays.excesses(other) < arrays.excesses(where):
            where = other
            _improve(arrays, where, 1, close_enough, deadline)
    _improve(arrays, where, 2, close_enough, deadline)
    return [int(j) for j in where]


def start_evenly(arrays: Arrays) -> Ints:
    """Loaded models stay. The others are placed largest first, within the limits and with the most even loads."""
    where = arrays.home.copy()
    loads = np.zeros((arrays.subclusters, 2))
    np.add.at(loads, where[where >= 0], arrays.points[:-1][where >= 0])
    largest_first = np.argsort(-np.maximum(arrays.points[:-1].max(axis=1), arrays.dynamic), kind="stable")
    for i in largest_first:
        if where[i] < 0:
            where[i] = _first_fit(arrays, where, i, np.argsort(loads @ arrays.points[i], kind="stable"))
            loads[where[i]] += arrays.points[i]
    return where


def start_by_dynamic_memory(arrays: Arrays) -> Ints:
    """First fit with models of similar dynamic memory together: only the largest of a sub-cluster counts."""
    where = np.full(len(arrays.rate), -1)
    for i in np.lexsort((-arrays.static, -arrays.dynamic)):
        where[i] = _first_fit(arrays, where, i, np.arange(arrays.subclusters))
    return where


def _first_fit(arrays: Arrays, where: Ints, model: int, order: Ints) -> int:
    """The first sub-cluster, in that order, that stays within the limits; the first one if none does."""
    fitting = (j for j in order if not arrays.excess(np.append(np.flatnonzero(where == j), model)))
    return int(next(fitting, order[0]))


def _improve(arrays: Arrays, where: Ints, exchanged: int, close_enough: float, deadline: Deadline) -> None:
    """Exchange sets of up to so many models until no pair of sub-clusters improves; changes `where`."""
    average = arrays.points.sum(axis=0) / arrays.subclusters
    loads = np.zeros((arrays.subclusters, 2))
    np.add.at(loads, where, arrays.points[:-1])
    first, second = np.triu_indices(arrays.subclusters, 1)
    exhausted = np.zeros(len(first), dtype=bool)
    while not exhausted.all() and not deadline.passed:
        if np.abs(loads - average).max(axis=0).sum() <= close_enough and not arrays.excesses(where):
            return
        distance = ((loads[first] - loads[second]) ** 2).sum(axis=1)
        pair = int(np.argmax(np.where(exhausted, -1.0, distance)))
        a, b = int(first[pair]), int(second[pair])
        if _exchange(arrays, where, loads, a, b, exchanged):
            exhausted &= ~np.isin(first, (a, b)) & ~np.isin(second, (a, b))
        else:
            exhausted[pair] = True


def _exchange(arrays: Arrays, where: Ints, loads: Floats, a: int, b: int, exchanged: int) -> bool:
    """The best exchange between two sub-clusters, carried out; False if there is none."""
    ours, theirs = np.flatnonzero(where == a), np.flatnonzero(where == b)
    from_a, from_b = _sets(ours, exchanged, len(arrays.rate)), _sets(theirs, exchanged, len(arrays.rate))
    target = (loads[b] - loads[a]) / 2
    moved = _differences(arrays.points[from_b].sum(axis=1), arrays.points[from_a].sum(axis=1))
    distance = ((moved - target) ** 2).sum(axis=2)
    before = (arrays.excess(ours) + arrays.excess(theirs), float((target**2).sum()))
    allowed = _affordable(arrays, where, a, b, from_a, from_b)
    if not before[0]:
        allowed &= _within_limits(arrays, ours, theirs, from_a, from_b)
    distance[~allowed] = np.inf
    best: tuple[tuple[float, float], Ints, Ints] | None = None
    for index in _smallest(distance, CHECKED if before[0] else 1):
        row, column = divmod(int(index), distance.shape[1])
        out, into = _members(from_a[row], arrays), _members(from_b[column], arrays)
        new_ours = np.concatenate([np.setdiff1d(ours, out), into])
        new_theirs = np.concatenate([np.setdiff1d(theirs, into), out])
        after = (arrays.excess(new_ours) + arrays.excess(new_theirs), float(distance[row, column]))
        if np.isfinite(after[1]) and after < (best[0] if best else before):
            best = (after, out, into)
    if best is None or (best[0][0] == before[0] and before[1] - best[0][1] <= LEAST_GAIN):
        return False
    _, out, into = best
    where[out], where[into] = b, a
    shift = arrays.points[into].sum(axis=0) - arrays.points[out].sum(axis=0)
    loads[a] += shift
    loads[b] -= shift
    return True


def _affordable(arrays: Arrays, where: Ints, a: int, b: int, from_a: Ints, from_b: Ints) -> Bools:
    """[set of a][set of b]: whether the change cost allows the exchange."""
    if not np.isfinite(arrays.max_change_cost):
        return np.ones((len(from_a), len(from_b)), dtype=bool)
    left = max(0.0, arrays.max_change_cost - arrays.change_cost(where))
    cost = _cost(arrays, from_a, a, b)[:, None] + _cost(arrays, from_b, b, a)[None, :]
    return np.asarray(cost <= left + LEAST_GAIN)


def _within_limits(arrays: Arrays, ours: Ints, theirs: Ints, from_a: Ints, from_b: Ints) -> Bools:
    """[set of a][set of b]: whether both sub-clusters stay within the limits after the exchange.

    Conservative: the largest dynamic memory of a sub-cluster counts even if its model moves.
    """
    rate, static, dynamic = (np.append(of, 0.0) for of in (arrays.rate, arrays.static, arrays.dynamic))
    rates = _differences(rate[from_b].sum(axis=1), rate[from_a].sum(axis=1))
    statics = _differences(static[from_b].sum(axis=1), static[from_a].sum(axis=1))
    ours_dynamic = np.maximum(dynamic[ours].max(initial=0.0), dynamic[from_b].max(axis=1))[None, :]
    theirs_dynamic = np.maximum(dynamic[theirs].max(initial=0.0), dynamic[from_a].max(axis=1))[:, None]
    return np.asarray(
        (rate[ours].sum() + rates <= arrays.max_rate)
        & (rate[theirs].sum() - rates <= arrays.max_rate)
        & (static[ours].sum() + statics + ours_dynamic <= arrays.max_memory)
        & (static[theirs].sum() - statics + theirs_dynamic <= arrays.max_memory)
    )


def _differences(ours: Floats, theirs: Floats) -> Floats:
    """[their row][our row]: ours less theirs."""
    return ours[None, ...] - theirs[:, None, ...]


def _smallest(table: Floats, count: int) -> Ints:
    """Flat positions of the smallest entries, in order."""
    count = min(count, table.size)
    found = np.argpartition(table, count - 1, axis=None)[:count]
    return found[np.argsort(table.flat[found], kind="stable")]


def _sets(models: Ints, exchanged: int, nothing: int) -> Ints:
    """[set][2]: all sets of at most so many models, each padded with `nothing`."""
    single = np.stack([np.append(models, nothing), np.full(len(models) + 1, nothing)], axis=1)
    if exchanged == 1 or len(models) * (len(models) - 1) // 2 > MAX_SETS:
        return single
    i, j = np.triu_indices(len(models), 1)
    return np.concatenate([single, np.stack([models[i], models[j]], axis=1)])


def _members(of: Ints, arrays: Arrays) -> Ints:
    return of[of < len(arrays.rate)]


def _cost(arrays: Arrays, sets: Ints, source: int, target: int) -> Floats:
    """The change cost of moving each set; negative for models that return to their sub-cluster."""
    there = 2.0 * (arrays.home == source).astype(float) - 2.0 * (arrays.home == target).astype(float)
    each = np.append(there * arrays.load_cost, 0.0)
    total: Floats = each[sets].sum(axis=1)
    return total
