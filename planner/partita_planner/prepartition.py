"""Groups a model's layers into blocks of about equal time (PPipe, section 5.2), where little crosses the cuts."""

from collections.abc import Sequence
from itertools import accumulate
from math import inf

BALANCE_BOUNDS = ((0.5, 1.5), (0.25, 2.0), (0.1, 3.0), (0.0, inf))
"""Least and most share of the even block time that a block may take; the next pair where the last leaves no way."""


def prepartition(costs: Sequence[float], cut_bytes: Sequence[int | None], blocks: int) -> tuple[int, ...]:
    """The ends of `blocks` blocks of consecutive layers, in order; block k is the layers [ends[k - 1], ends[k]).

    costs: time of each layer, in any one unit. cut_bytes: bytes that cross if a block ends after layer i, None where
    it must not; one entry a layer, the last of which has no meaning. The last end is always len(costs).

    Each block's time lies within [0.5, 1.5] of the even share total / blocks, and of all such cuts these have the
    fewest bytes in total, then the smallest sum of squared block times. Where no cut keeps these bounds they are
    relaxed step by step (BALANCE_BOUNDS). With too few legal cuts there are fewer blocks.

    Raises ValueError for no layers, a negative cost, arrays of unequal length, or blocks < 1.
    """
    _check(costs, cut_bytes, blocks)
    count = len(costs)
    legal = [i + 1 for i in range(count - 1) if cut_bytes[i] is not None]
    blocks = min(blocks, len(legal) + 1)
    elapsed = [0.0, *accumulate(costs)]
    share = elapsed[-1] / blocks
    positions = [0, *legal, count]
    crossing = [0, *(cut_bytes[p - 1] or 0 for p in legal), 0]
    for least, most in BALANCE_BOUNDS:
        ends = _fewest_bytes([elapsed[p] for p in positions], crossing, blocks, least * share, most * share)
        if ends is not None:
            return tuple(positions[e] for e in ends)
    raise AssertionError("the last bounds admit every cut")


def _check(costs: Sequence[float], cut_bytes: Sequence[int | None], blocks: int) -> None:
    if not costs:
        raise ValueError("a model without layers cannot be partitioned")
    if len(cut_bytes) != len(costs):
        raise ValueError(f"cut_bytes has {len(cut_bytes)} entries for {len(costs)} layers; give one a layer")
    if blocks < 1:
        raise ValueError(f"blocks is {blocks}; ask for at least 1")
    if any(not 0 <= cost < inf for cost in costs):
        raise ValueError("layer costs must be finite and not negative")


def _fewest_bytes(
    elapsed: Sequence[float], crossing: Sequence[int], blocks: int, least: float, most: float
) -> list[int] | None:
    """Shortest path over the cut positions in `blocks` steps of `least` to `most` time each; None if there is none.

    Returns the position indices at which the blocks end.
    """
    slack = 1e-9 * elapsed[-1]
    last = len(elapsed) - 1
    best: list[tuple[int, float] | None] = [(0, 0.0)] + [None] * last
    steps: list[list[int]] = []
    for _ in range(blocks):
        reached: list[tuple[int, float] | None] = [None] * (last + 1)
        origin = [-1] * (last + 1)
        for start, so_far in enumerate(best):
            if so_far is None:
                continue
            for end in range(start + 1, last + 1):
                time = elapsed[end] - elapsed[start]
                if time > most + slack:
                    break
                if time < least - slack:
                    continue
                cost = (so_far[0] + crossing[end], so_far[1] + time * time)
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
