"""Finds the rows of a table that no other row of their group dominates."""

import numpy as np
from numpy.typing import NDArray

from partita_planner.solver.deadline import Deadline, OutOfTimeError

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def unbeaten(
    group: Integers, values: Floats, score: Floats, tie: Integers, deadline: Deadline | None = None
) -> Integers:
    """The rows for which no other row of the same `group` is at least as large in all of `values`, one of equals.

    `score` must not fall where a value rises. Of equal rows the one with the least `tie` stays. In increasing order.
    Raises OutOfTimeError.

    In every round, the remaining row of highest score in each group stays; the rows that it dominates are dropped.
    Most rows are dropped after a few rounds, and each round is a few operations on all groups at once.
    """
    order = np.lexsort((tie, -score, group))
    columns = [np.ascontiguousarray(column) for column in values.T]
    kept = []
    while order.size:
        if deadline is not None and deadline.passed:
            raise OutOfTimeError
        of_group = group[order]
        leads = np.concatenate([[True], of_group[1:] != of_group[:-1]])
        leaders = order[leads]
        kept.append(leaders)
        leader = leaders[np.cumsum(leads) - 1]
        dominated = np.ones(order.size, dtype=np.bool_)
        for column in columns:
            dominated &= column[leader] >= column[order]
        order = order[~dominated]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.int64)


def ranges(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """All pairs of a row i and a number in low[i] .. high[i] - 1, as two columns."""
    counts = np.maximum(high - low, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    return rows, np.arange(len(rows)) - (before - low)[rows]
