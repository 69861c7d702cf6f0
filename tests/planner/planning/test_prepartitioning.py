"""Layers into blocks: balanced, few bytes over the cuts, legal cuts only."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_planner.prepartitioning import BALANCE_BOUNDS, BadLayersError, prepartition


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
        pytest.param([], [], 2, "no layers", id="no layers"),
        pytest.param([1.0], [], 2, "one entry for each layer", id="unequal lengths"),
        pytest.param([1.0], [None], 0, "at least 1", id="no blocks"),
        pytest.param([-1.0], [None], 1, "not negative", id="negative cost"),
        pytest.param([float("nan")], [None], 1, "finite", id="not a number"),
    ],
)
def test_refuses(costs: list[float], cut_bytes: list[int | None], blocks: int, want_message: str) -> None:
    with pytest.raises(BadLayersError, match=want_message):
        prepartition(costs, cut_bytes, blocks)


def test_times_of_another_class_are_refused_unless_there_is_one_a_layer() -> None:
    with pytest.raises(BadLayersError, match="one entry for each layer and class"):
        prepartition([1.0, 1.0], [0, 0], 2, other_costs=[[1.0]])


def test_more_blocks_than_layers_are_as_many_as_layers() -> None:
    assert prepartition([1.0, 2.0, 1.0], [9, 9, 0], 10) == (1, 2, 3)


def test_bounds_hold_on_every_class() -> None:
    """The cheap cut is even on the first class, but leaves the second one nearly idle on one side."""
    costs, other, cut_bytes = [1.0, 1, 1, 1], [0.2, 0.2, 4, 4], [9, 1, 9, 0]

    assert prepartition(costs, cut_bytes, 2) == (2, 4)
    assert prepartition(costs, cut_bytes, 2, other_costs=[other]) == (3, 4)


layers = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.one_of(st.none(), st.integers(0, 20))), min_size=2, max_size=9
)


@given(layers=layers, blocks=st.integers(1, 4))
def test_no_other_cut_is_better(layers: list[tuple[int, int, int | None]], blocks: int) -> None:
    classes = [[float(cost) for cost, _, _ in layers], [float(cost) for _, cost, _ in layers]]
    cut_bytes = [crossing for _, _, crossing in layers]
    legal = [i + 1 for i in range(len(layers) - 1) if cut_bytes[i] is not None]
    count = min(blocks, len(legal) + 1)

    def total(ends: Sequence[int]) -> int:
        return sum(cut_bytes[e - 1] or 0 for e in ends[:-1])

    def shares(ends: Sequence[int]) -> list[float]:
        return [t / sum(costs) for costs in classes if sum(costs) for t in block_times(costs, ends)]

    def within(ends: Sequence[int], least: float, most: float) -> bool:
        return all(least / count - 1e-6 <= share <= most / count + 1e-6 for share in shares(ends))

    every = [(*cuts, len(layers)) for cuts in combinations(legal, count - 1)]
    least, most = next(bounds for bounds in BALANCE_BOUNDS if any(within(ends, *bounds) for ends in every))
    want = min((total(ends), sum(s * s for s in shares(ends))) for ends in every if within(ends, least, most))

    got = prepartition(classes[0], cut_bytes, blocks, other_costs=classes[1:])

    assert got in every
    assert within(got, least, most)
    assert (total(got), sum(s * s for s in shares(got))) == (want[0], pytest.approx(want[1]))


def test_hundreds_of_layers_keep_the_tightest_bounds() -> None:
    costs = [1.0 + i * 37 % 11 for i in range(300)]
    cut_bytes = [1000 + i * 7919 % 5003 for i in range(300)]

    ends = prepartition(costs, cut_bytes, 10)

    share = sum(costs) / 10
    assert all(0.5 * share <= t <= 1.5 * share for t in block_times(costs, ends))
