"""PARIS: knees, segments, ratios, instances, and instances that fit GPUs."""

import time
from dataclasses import replace

import pytest

from partita_planner.mig.errors import BadDemandError, MigError, UnknownSliceError
from partita_planner.mig.packing import NoPacking, NoPackingReason, Packing, most_served
from partita_planner.mig.paris_algorithm import Paris, SliceCurve, batch_workloads, paris, placed, segment_workloads
from partita_planner.mig.products import known_products
from partita_planner.solver.deadline import Deadline

A100 = known_products().product("A100-40GB")
FIGURE_8 = {1: 20.0, 2: 20.0, 3: 40.0, 4: 20.0}
"""Queries by batch size, of 100."""
SMALL = SliceCurve("1g.5gb", {1: 0.5, 2: 0.8, 3: 0.9, 4: 0.95}, {1: 40, 2: 20, 3: 12, 4: 9})
LARGE = SliceCurve("2g.10gb", {1: 0.3, 2: 0.5, 3: 0.7, 4: 0.8}, {1: 45, 2: 38, 3: 30, 4: 20})


def soon() -> Deadline:
    return Deadline.after(60, time.perf_counter)


def test_figure_8() -> None:
    """MaxBatch_knee 2 and 4; 1.5 small slices and 2.3 large ones serve 100 queries a second."""
    answer = paris(A100, [SMALL, LARGE], FIGURE_8, gpus=1)

    small, large = answer.segments
    assert (small.batches, large.batches) == ((1, 2), (3, 4))
    assert 100 * small.ratio == pytest.approx(0.5 + 1.0)
    assert round(100 * large.ratio, 1) == 2.3
    assert small.instances / large.instances == pytest.approx(1.5 / (40 / 30 + 20 / 20))


def test_all_compute_slices_are_shared_out() -> None:
    """Algorithm 1, step C."""
    answer = paris(A100, [SMALL, LARGE], FIGURE_8, gpus=8)

    assert sum(A100.slice(s.slice).compute * s.instances for s in answer.segments) == pytest.approx(8 * 7)
    assert answer.rate({s.slice: s.instances for s in answer.segments}) == pytest.approx(
        min(s.instances / s.ratio for s in answer.segments)
    )


def test_order_of_the_measurements_does_not_matter() -> None:
    assert paris(A100, [LARGE, SMALL], FIGURE_8, 4) == paris(A100, [SMALL, LARGE], FIGURE_8, 4)


@pytest.mark.parametrize(
    ("small", "large", "want"),
    [
        pytest.param({1: 0.9}, {4: 0.9}, ((1,), (2, 3, 4)), id="knee at 1"),
        pytest.param({4: 0.5}, {4: 0.4}, ((1, 2, 3, 4), ()), id="no knee: up to the largest measured"),
        pytest.param({2: 0.9}, {3: 0.9}, ((1, 2), (3, 4)), id="the largest also takes batches beyond its knee"),
        pytest.param({3: 0.9}, {2: 0.9}, ((1, 2, 3), (4,)), id="knees in the wrong order"),
    ],
)
def test_segments(small: dict[int, float], large: dict[int, float], want: tuple[tuple[int, ...], ...]) -> None:
    answer = paris(A100, [replace(SMALL, utilization=small), replace(LARGE, utilization=large)], FIGURE_8, 1)

    assert tuple(s.batches for s in answer.segments) == want
    assert all((s.instances > 0) == bool(s.batches) for s in answer.segments)


def test_instances_are_placed_on_the_gpus() -> None:
    answer = paris(A100, [SMALL, LARGE], FIGURE_8, 4)

    found = placed(A100, answer, 4, soon())

    assert isinstance(found, Packing)
    assert found.gpus <= 4
    assert set(found.slices) == {"1g.5gb", "2g.10gb"}


def test_what_the_placement_table_refuses_is_given_up() -> None:
    """By compute, two GPUs hold four 3g and two 1g; but two 3g fill a GPU's memory."""
    small = SliceCurve("1g.5gb", {1: 0.9}, {1: 10})
    large = SliceCurve("3g.20gb", {1: 0.3, 8: 0.9}, {8: 10})
    answer = paris(A100, [small, large], {1: 1, 8: 2}, 2)

    found = placed(A100, answer, 2, soon())

    assert [round(s.instances) for s in answer.segments] == [2, 4]
    assert isinstance(found, Packing)
    assert (found.gpus, found.slices["3g.20gb"]) == (2, 3)


def test_thousands_of_instances_are_placed_in_proportion() -> None:
    small = SliceCurve("1g.5gb", {1: 0.9}, {1: 10})
    large = SliceCurve("3g.20gb", {1: 0.3, 8: 0.9}, {8: 10})
    answer = paris(A100, [small, large], {1: 1, 8: 2}, 2000)

    found = placed(A100, answer, 2000, soon())

    assert isinstance(found, Packing)
    assert found.gpus == 2000
    # A GPU holds 3g + 3g, or 3g + 4 x 1g; with x of the latter, 4000 - x is twice 4 x.
    assert found.slices["3g.20gb"] == pytest.approx(4000 - 4000 / 9, rel=0.01)
    assert answer.rate(found.slices) == pytest.approx(most_served_rate(answer, small, large), rel=0.01)


def most_served_rate(answer: Paris, *curves: SliceCurve) -> float:
    """What the exact packing gets out of PARIS' segments."""
    workloads = segment_workloads(answer, batch_workloads("m", curves, {1: 1, 8: 2}, 1.0))
    found = most_served(A100, workloads, 2000, soon())
    assert isinstance(found, Packing)
    return found.scale


def test_profiles_that_need_more_gpus_than_there_are() -> None:
    large = SliceCurve("7g.40gb", {4: 0.9}, {3: 50, 4: 40})

    found = placed(A100, paris(A100, [SMALL, large], FIGURE_8, 1), 1, soon())

    assert isinstance(found, NoPacking)
    assert (found.reason, found.gpus_missing) == (NoPackingReason.INSUFFICIENT_CAPACITY, 1)


def test_exact_packing_never_serves_less() -> None:
    """Neither with PARIS' segments nor with any slice for any batch size."""
    answer = paris(A100, [SMALL, LARGE], FIGURE_8, 3)
    by_paris = placed(A100, answer, 3, soon())
    free = batch_workloads("m", [SMALL, LARGE], FIGURE_8, 1.0)

    by_segments = most_served(A100, segment_workloads(answer, free), 3, soon())
    exact = most_served(A100, free, 3, soon())

    assert isinstance(by_paris, Packing)
    assert isinstance(by_segments, Packing)
    assert isinstance(exact, Packing)
    assert answer.rate(by_paris.slices) <= by_segments.scale + 1e-6
    assert by_segments.scale <= exact.scale + 1e-6


@pytest.mark.parametrize(
    ("curves", "distribution", "gpus", "want_error", "want_message"),
    [
        pytest.param([SMALL], {}, 1, BadDemandError, "empty", id="empty distribution"),
        pytest.param([SMALL], {1: 0.0}, 1, BadDemandError, "all weights", id="no weight"),
        pytest.param([SMALL], {1: float("nan")}, 1, BadDemandError, "weights at 0", id="weight not a number"),
        pytest.param([SMALL], {0: 1.0}, 1, BadDemandError, "sizes begin at 1", id="batch of nothing"),
        pytest.param([], {1: 1.0}, 1, BadDemandError, "no slice was measured", id="nothing measured"),
        pytest.param([SMALL], {1: 1.0}, 0, BadDemandError, "give 1 to", id="no GPUs"),
        pytest.param([SMALL, SMALL], {1: 1.0}, 1, BadDemandError, "measured once", id="measured twice"),
        pytest.param([SMALL], {9: 1.0}, 1, BadDemandError, "measure it", id="a batch that was not measured"),
        pytest.param([replace(SMALL, throughput={1: 0})], {1: 1.0}, 1, BadDemandError, "above 0", id="no throughput"),
        pytest.param([replace(SMALL, utilization={})], {1: 1.0}, 1, BadDemandError, "the knee", id="no utilization"),
        pytest.param([replace(SMALL, utilization={1: 80})], {1: 1.0}, 1, BadDemandError, "0 to 1", id="per cent"),
        pytest.param([replace(SMALL, slice="1g.18gb")], {1: 1.0}, 1, UnknownSliceError, "it has", id="other product"),
    ],
)
def test_bad_input_is_refused(
    curves: list[SliceCurve], distribution: dict[int, float], gpus: int, want_error: type[MigError], want_message: str
) -> None:
    with pytest.raises(want_error, match=want_message):
        paris(A100, curves, distribution, gpus)


def test_knee_is_a_share() -> None:
    with pytest.raises(BadDemandError, match="above 0 and up to 1"):
        paris(A100, [SMALL], {1: 1.0}, 1, knee=80)
