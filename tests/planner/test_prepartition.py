"""Layers into blocks: balanced, few bytes over the cuts, legal cuts only."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_planner.prepartition import BALANCE_BOUNDS, prepartition


def block_times(costs: Sequence[float], ends: Sequence[int]) -> list[float]:
    return [sum(costs[a:b]) for a, b in pairwise((0, *ends))]


@pytest.mark.parametrize(
    ("costs", "cut_bytes", "blocks", "want"),
    [
        pytest.param([1, 1, 1, 1], [5, 5, 5, 0], 2, (2, 4), id="even layers are cut in the middle"),
        pytest.param([1, 1, 1, 1], [1, 5, 5, 0], 2, (1, 4), id="a cheap cut wins within the bounds"),
        pytest.param([1, 1, 1, 1], [5, None, 5, 0], 2, (1, 4), id="an illegal cut is not used"),
        pytest.param([1, 9, 9, 1], [0, 7, 0, 0], 2, (2, 4), id="a cheap cut outside the bounds is not used"),
        pytest.param([1, 1, 1], [None, None, None], 3, (3,), id="no legal cut leaves one block"),
        pytest.param([1, 1, 98], [3, 3, 0], 2, (2, 3), id="bounds are relaxed for one heavy layer"),
        pytest.param([2.0], [None], 10, (1,), id="one layer"),
        pytest.param([0, 0], [4, 0], 2, (1, 2), id="layers that take no time"),
    ],
)
def test_boundaries(costs: list[float], cut_bytes: list[int | None], blocks: int, want: tuple[int, ...]) -> None:
    assert prepartition(costs, cut_bytes, blocks) == want


@pytest.mark.parametrize(
    ("costs", "cut_bytes", "blocks", "want_message"),
    [
        pytest.param([], [], 2, "without layers", id="no layers"),
        pytest.param([1.0], [], 2, "one a layer", id="unequal lengths"),
        pytest.param([1.0], [None], 0, "at least 1", id="no blocks"),
        pytest.param([-1.0], [None], 1, "not negative", id="negative cost"),
        pytest.param([float("nan")], [None], 1, "finite", id="not a number"),
    ],
)
def test_refuses(costs: list[float], cut_bytes: list[int | None], blocks: int, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        prepartition(costs, cut_bytes, blocks)


layers = st.lists(st.tuples(st.integers(1, 9), st.one_of(st.none(), st.integers(0, 20))), min_size=2, max_size=9)


@given(layers=layers, blocks=st.integers(1, 4))
def test_no_other_cut_is_better(layers: list[tuple[int, int | None]], blocks: int) -> None:
    costs = [float(cost) for cost, _ in layers]
    cut_bytes = [crossing for _, crossing in layers]
    legal = [i + 1 for i in range(len(costs) - 1) if cut_bytes[i] is not None]
    count = min(blocks, len(legal) + 1)
    share = sum(costs) / count

    def total(ends: Sequence[int]) -> int:
        return sum(cut_bytes[e - 1] or 0 for e in ends[:-1])

    def within(ends: Sequence[int], least: float, most: float) -> bool:
        return all(least * share - 1e-6 <= t <= most * share + 1e-6 for t in block_times(costs, ends))

    every = [(*cuts, len(costs)) for cuts in combinations(legal, count - 1)]
    least, most = next(bounds for bounds in BALANCE_BOUNDS if any(within(ends, *bounds) for ends in every))
    want = min(
        (total(ends), sum(t * t for t in block_times(costs, ends))) for ends in every if within(ends, least, most)
    )

    got = prepartition(costs, cut_bytes, blocks)

    assert got in every
    assert within(got, least, most)
    assert (total(got), sum(t * t for t in block_times(costs, got))) == want
