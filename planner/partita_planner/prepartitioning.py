"""Groups a model's layers into blocks of about equal time (PPipe, section 5.2), with few bytes across the cuts.

It finds a shortest path over the cut positions, with one step for each block. PPipe fills block after block up to the
even share instead: that ignores the bytes, and the last block gets the rest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Final

from partita_planner.solver.tolerances import ROUNDING

BALANCE_BOUNDS: Final = ((0.5, 1.5), (0.25, 2.0), (0.1, 3.0), (0.0, inf))
"""Least and most share of the even block time for a block; the next pair if no cut keeps the previous one."""


class BadLayersError(ValueError):
    """Layers that cannot be grouped; the message says why, and the fix."""


def prepartition(
    costs: Sequence[float], cut_bytes: Sequence[int | None], blocks: int, *, other_costs: Sequence[Sequence[float]] = ()
) -> tuple[int, ...]:
    """The ends of `blocks` blocks of consecutive layers, in order; block k is the layers [ends[k - 1], ends[k]).

    costs: time of each layer on one GPU class, in any unit; other_costs: the same on further classes, if known.
    cut_bytes: for each layer, bytes of all tensors that cross if a block ends after it; None if no block may end there.
    The last entry has no meaning. The last end is always len(costs).

    Each block's time lies within [0.5, 1.5] of the even share total / blocks, on every class. Of all such cuts, the
    result has the fewest bytes in total, then the smallest sum of squared shares. If no cut keeps these bounds, they
    are relaxed step by step (BALANCE_BOUNDS). With too few layers or legal cuts there are fewer blocks.

    Raises BadLayersError for no layers, for a cost that is negative or not finite, for arrays of unequal length, and
    for blocks < 1.
    """
    classes = (costs, *other_costs)
    _check(classes, cut_bytes, blocks)
    count = len(costs)
    legal = [i + 1 for i in range(count - 1) if cut_bytes[i] is not None]
    blocks = min(blocks, len(legal) + 1)
    positions = [0, *legal, count]
    crossing = [0, *(cut_bytes[p - 1] or 0 for p in legal), 0]
    cuts = _CutPositions(tuple(_elapsed(of, positions) for of in classes), crossing)
    for least, most in BALANCE_BOUNDS:
        ends = _fewest_bytes(cuts, blocks, least / blocks, most / blocks)
        if ends is not None:
            return tuple(positions[e] for e in ends)
    raise AssertionError("the last bounds admit every cut")


@dataclass(frozen=True)
class _CutPositions:
    """The positions at which a block may end, and what they cost."""

    elapsed: tuple[list[float], ...]
    """[class][position]: share of the class's whole time before the position."""
    crossing: list[int]
    """[position]: bytes that cross there."""


def _check(classes: Sequence[Sequence[float]], cut_bytes: Sequence[int | None], blocks: int) -> None:
    if not classes[0]:
        raise BadLayersError("the model has no layers: give at least one")
    if any(len(costs) != len(classes[0]) for costs in classes):
        raise BadLayersError(
            f"costs have {', '.join(str(len(c)) for c in classes)} entries: give one entry for each layer and class"
        )
    if len(cut_bytes) != len(classes[0]):
        raise BadLayersError(
            f"cut_bytes has {len(cut_bytes)} entries for {len(classes[0])} layers: give one entry for each layer"
        )
    if blocks < 1:
        raise BadLayersError(f"blocks is {blocks}: give at least 1")
    if any(not 0 <= cost < inf for costs in classes for cost in costs):
        raise BadLayersError("layer costs must be finite and not negative")


def _elapsed(costs: Sequence[float], positions: Sequence[int]) -> list[float]:
    """Share of the whole time before each position; all 0 if the time is 0."""
    elapsed = [0.0, *accumulate(costs)]
    return [elapsed[p] / (elapsed[-1] or 1.0) for p in positions]


def _fewest_bytes(cuts: _CutPositions, blocks: int, least: float, most: float) -> list[int] | None:
    """Shortest path in `blocks` steps that each take `least` to `most` of the time on every class.

    Returns the position indices at which the blocks end, or None if there is no such path. A class with a total time
    of 0 is ignored.
    """
    elapsed = [of for of in cuts.elapsed if of[-1] > 0]
    last = len(cuts.crossing) - 1
    best: list[tuple[int, float] | None] = [(0, 0.0)] + [None] * last
    steps: list[list[int]] = []
    for _ in range(blocks):
        reached: list[tuple[int, float] | None] = [None] * (last + 1)
        origin = [-1] * (last + 1)
        for start, so_far in enumerate(best):
            if so_far is None:
                continue
            first = max((bisect_left(of, of[start] + least - ROUNDING) for of in elapsed), default=0)
            beyond = min((bisect_right(of, of[start] + most + ROUNDING) for of in elapsed), default=last + 1)
            for end in range(max(first, start + 1), beyond):
                squares = sum((of[end] - of[start]) ** 2 for of in elapsed)
                cost = (so_far[0] + cuts.crossing[end], so_far[1] + squares)
                known = reached[end]
                if known is None or cost < known:
                    reached[end], origin[end] = cost, start
        best = reached
        steps.append(origin)
    if best[last] is None:
        return None
    ends = [last]
    for origin in reversed(steps[1:]):
        ends.append(origin[ends[-1]])
    return ends[::-1]
