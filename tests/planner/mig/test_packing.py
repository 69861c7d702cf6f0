"""The exact packing, against brute force that knows neither layouts nor linear programs."""

import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product as cartesian

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_planner.mig.errors import BadDemandError, MigError, UnknownSliceError
from partita_planner.mig.packing import (
    BatchWorkload,
    NoPacking,
    NoPackingReason,
    Packing,
    fewest_gpus,
    most_served,
    requested_slices,
)
from partita_planner.mig.products import Product, known_products, parse_products
from partita_planner.solver.deadline import Deadline

H100 = known_products().product("H100-80GB")
TINY = parse_products(
    """
products:
  - name: tiny
    compute: 3
    memorySlices: 4
    slices:
      - {name: 1g.1gb, compute: 1, size: 1, starts: [0, 1, 2], memory: 1Gi}
      - {name: 2g.2gb, compute: 2, size: 2, starts: [0, 2], memory: 2Gi}
      - {name: 3g.4gb, compute: 3, size: 4, starts: [0], memory: 4Gi}
""",
    "tiny",
).product("tiny")


def soon() -> Deadline:
    return Deadline.after(60, time.perf_counter)


def packed(found: Packing | NoPacking) -> Packing:
    assert isinstance(found, Packing), found
    return found


@cache
def fits(product: Product, slices: tuple[str, ...], gpus: int) -> bool:
    """Whether slices can be put on GPUs, by trying every place for each, one after the other."""

    def place(rest: tuple[str, ...], taken: tuple[frozenset[int], ...]) -> bool:
        if not rest:
            return True
        profile = product.slice(rest[0])
        for g, there in enumerate(taken):
            for start in profile.starts:
                span = frozenset(range(start, start + profile.size))
                if not span & there and place(rest[1:], (*taken[:g], there | span, *taken[g + 1 :])):
                    return True
            if not there:
                break
        return False

    return place(slices, (frozenset(),) * gpus)


def fewest(product: Product, desired: Mapping[str, int]) -> int:
    largest_first = sorted(desired, key=lambda name: -product.slice(name).size)
    slices = tuple(name for name in largest_first for _ in range(desired[name]))
    return next(gpus for gpus in range(1, len(slices) + 1) if fits(product, slices, gpus))


def most(product: Product, workloads: Sequence[BatchWorkload], gpus: int) -> float:
    """The best multiple of one workload for each model, over all numbers of slices that the GPUs could hold."""
    pairs = [(workload, name) for workload in workloads for name in workload.throughput]
    best = 0.0
    for counts in cartesian(range(product.compute * gpus + 1), repeat=len(pairs)):
        slices = tuple(name for (_, name), count in zip(pairs, counts, strict=True) for _ in range(count))
        served = {
            w.model: sum(c * w.throughput[n] for (other, n), c in zip(pairs, counts, strict=True) if other is w)
            / w.rate
            for w in workloads
        }
        if min(served.values()) > best and fits(product, tuple(sorted(slices, reverse=True)), gpus):
            best = min(served.values())
    return best


@pytest.mark.parametrize(
    ("desired", "want_gpus"),
    [
        pytest.param({"3g.40gb": 2}, 1, id="two 3g on one"),
        pytest.param({"3g.40gb": 2, "1g.10gb": 1}, 2, id="a 1g does not fit beside two 3g"),
        pytest.param({"4g.40gb": 2, "3g.40gb": 2}, 2, id="4g and 3g side by side"),
        pytest.param({"4g.40gb": 2}, 2, id="4g only at the front"),
        pytest.param({"2g.20gb": 4, "1g.10gb": 3}, 2, id="2g at three places"),
        pytest.param({"1g.10gb": 15}, 3, id="seven 1g on one"),
        pytest.param({"7g.80gb": 3, "1g.20gb": 4}, 4, id="whole GPUs and slices"),
    ],
)
def test_fewest_gpus_for_requested_slices(desired: dict[str, int], want_gpus: int) -> None:
    found = packed(fewest_gpus(H100, requested_slices(desired), soon()))

    assert (found.gpus, found.bound) == (want_gpus, want_gpus)
    assert all(found.slices[name] == count + found.spare.get(name, 0) for name, count in desired.items())
    assert {name: count for (_, name), count in found.instances.items()} == desired


@settings(max_examples=40, deadline=None)
@given(
    desired=st.dictionaries(st.sampled_from([s.name for s in H100.slices]), st.integers(1, 3), min_size=1, max_size=3)
)
def test_no_packing_of_slices_has_fewer_gpus(desired: dict[str, int]) -> None:
    assert packed(fewest_gpus(H100, requested_slices(desired), soon())).gpus == fewest(H100, desired)


rates = st.integers(1, 9).map(float)
curves = st.dictionaries(st.sampled_from(["1g.1gb", "2g.2gb", "3g.4gb"]), rates, min_size=1, max_size=2)


@settings(max_examples=40, deadline=None)
@given(demands=st.lists(st.tuples(rates, curves), min_size=1, max_size=2), gpus=st.integers(1, 2))
def test_no_packing_serves_more(demands: list[tuple[float, dict[str, float]]], gpus: int) -> None:
    workloads = [BatchWorkload(f"m{i}", rate, throughput) for i, (rate, throughput) in enumerate(demands)]
    want = most(TINY, workloads, gpus)

    found = most_served(TINY, workloads, gpus, soon())

    if want == 0:
        assert isinstance(found, NoPacking)
        assert found.reason is NoPackingReason.INSUFFICIENT_CAPACITY
    else:
        assert packed(found).scale == pytest.approx(want)
        assert packed(found).bound == pytest.approx(want)


@settings(max_examples=30, deadline=None)
@given(demands=st.lists(st.tuples(rates, curves), min_size=1, max_size=2))
def test_fewest_gpus_are_those_that_serve_the_whole_load(demands: list[tuple[float, dict[str, float]]]) -> None:
    workloads = [BatchWorkload(f"m{i}", rate, throughput) for i, (rate, throughput) in enumerate(demands)]

    found = packed(fewest_gpus(TINY, workloads, soon()))

    assert packed(most_served(TINY, workloads, found.gpus, soon())).scale >= 1 - 1e-6
    if found.gpus > 1:
        fewer = most_served(TINY, workloads, found.gpus - 1, soon())
        assert isinstance(fewer, NoPacking) or fewer.scale < 1


def test_batches_of_a_model_share_its_slices_and_models_do_not() -> None:
    """Two halves of a slice's time: one slice for two batch sizes of one model, two for two models."""
    half = {"1g.10gb": 2.0}

    one_model = packed(fewest_gpus(H100, [BatchWorkload("a", 1, half, 1), BatchWorkload("a", 1, half, 2)], soon()))
    two_models = packed(fewest_gpus(H100, [BatchWorkload("a", 1, half), BatchWorkload("b", 1, half)], soon()))

    assert one_model.instances == {("a", "1g.10gb"): 1}
    assert two_models.instances == {("a", "1g.10gb"): 1, ("b", "1g.10gb"): 1}
    assert sum(one_model.time.values()) == pytest.approx(1)


def test_batches_go_where_they_run_best() -> None:
    """By hand: 20 large batches fill the one 3g; the four 1g beside it take all 100 small ones."""
    workloads = [BatchWorkload("m", 100, {"1g.10gb": 40, "3g.40gb": 50}, 1), BatchWorkload("m", 20, {"3g.40gb": 20}, 8)]

    found = packed(most_served(H100, workloads, 1, soon()))

    assert found.scale == pytest.approx(1)
    assert found.slices == {"1g.10gb": 4, "3g.40gb": 1}
    assert found.time == pytest.approx({("m", 1, "1g.10gb"): 2.5, ("m", 8, "3g.40gb"): 1})


def test_a_million_slices_are_counted_to_the_last() -> None:
    found = packed(fewest_gpus(H100, requested_slices({"1g.10gb": 1_000_001, "7g.80gb": 1}), soon()))

    assert found.gpus == 142_858 + 1
    assert found.instances["1g.10gb", "1g.10gb"] == 1_000_001


def test_load_of_a_millionth_is_served() -> None:
    found = packed(fewest_gpus(H100, [BatchWorkload("m", 1e-6, {"2g.20gb": 1000.0})], soon()))

    assert found.scale == pytest.approx(1)
    assert found.instances == {("m", "2g.20gb"): 1}


def test_a_small_load_beside_a_large_one_gets_a_slice() -> None:
    loads = [BatchWorkload("large", 100.0, {"1g.10gb": 10.0}), BatchWorkload("small", 1e-6, {"2g.20gb": 1000.0})]

    found = packed(most_served(H100, loads, 2, soon()))

    assert found.scale == pytest.approx((5 + 7) * 10 / 100)
    assert found.instances["small", "2g.20gb"] == 1


def test_at_most_so_many_gpus() -> None:
    found = fewest_gpus(H100, requested_slices({"7g.80gb": 3}), soon(), at_most=2)

    assert isinstance(found, NoPacking)
    assert (found.reason, found.gpus_missing) == (NoPackingReason.INSUFFICIENT_CAPACITY, 1)
    assert "add 1" in found.message


def test_models_that_cannot_all_have_a_slice() -> None:
    whole = [BatchWorkload(f"m{i}", 1, {"7g.80gb": 10.0}) for i in range(3)]

    found = most_served(H100, whole, 1, soon())

    assert isinstance(found, NoPacking)
    assert (found.reason, found.gpus_missing) == (NoPackingReason.INSUFFICIENT_CAPACITY, 2)


def test_time_that_has_passed_is_said() -> None:
    found = fewest_gpus(H100, requested_slices({"7g.80gb": 3}), Deadline.after(0, lambda: 0.0))

    assert isinstance(found, NoPacking)
    assert found.reason is NoPackingReason.TIME_LIMIT


@pytest.mark.parametrize(
    ("workloads", "want_error", "want_message"),
    [
        pytest.param([], BadDemandError, "no load", id="no workload"),
        pytest.param(
            [BatchWorkload("m", float("nan"), {"1g.10gb": 1})], BadDemandError, "above 0", id="rate not a number"
        ),
        pytest.param([BatchWorkload("m", 0, {"1g.10gb": 1})], BadDemandError, "above 0", id="no rate"),
        pytest.param([BatchWorkload("m", 1, {})], BadDemandError, "no slice that it can run on", id="nowhere to run"),
        pytest.param(
            [BatchWorkload("m", 1, {"1g.10gb": float("inf")})], BadDemandError, "above 0", id="endless throughput"
        ),
        pytest.param(
            [BatchWorkload("m", 1, {"1g.5gb": 1})], UnknownSliceError, "it has 1g.10gb", id="another GPU's slice"
        ),
        pytest.param([BatchWorkload("m", 1, {"1g.10gb": 1})] * 2, BadDemandError, "given once", id="the same twice"),
    ],
)
def test_bad_load_is_refused(workloads: list[BatchWorkload], want_error: type[MigError], want_message: str) -> None:
    with pytest.raises(want_error, match=want_message):
        fewest_gpus(H100, workloads, soon())
    with pytest.raises(want_error, match=want_message):
        most_served(H100, workloads, 1, soon())


@pytest.mark.parametrize("gpus", [0, -1])
def test_no_gpus_are_refused(gpus: int) -> None:
    with pytest.raises(BadDemandError, match="give 1 to"):
        most_served(H100, [BatchWorkload("m", 1, {"1g.10gb": 1})], gpus, soon())


def test_negative_number_of_slices_is_refused() -> None:
    with pytest.raises(BadDemandError, match="0 or more"):
        requested_slices({"1g.10gb": -1})
