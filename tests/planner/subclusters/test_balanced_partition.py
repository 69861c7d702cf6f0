"""Partitions of models: limits, balance against brute force, bounded changes, and refusals."""

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita_planner.solver.deadline import Deadline
from partita_planner.subclusters import balanced_partition as module
from partita_planner.subclusters.balance import measure
from partita_planner.subclusters.balanced_partition import CLOSE_ENOUGH, partition
from partita_planner.subclusters.problem import (
    BadSubclustersError,
    NoPartition,
    NoPartitionReason,
    Partition,
    ServedModel,
    SubclusterProblem,
)


def models(*sizes: tuple[float, ...]) -> tuple[ServedModel, ...]:
    """m0, m1, ... of (rate, static memory, dynamic memory, cost of loading); omitted values have defaults."""
    return tuple(ServedModel(f"m{i}", *size) for i, size in enumerate(sizes))


def soon() -> Deadline:
    return Deadline.after(60, time.perf_counter)


def solved(problem: SubclusterProblem) -> Partition:
    found = partition(problem, soon())
    assert isinstance(found, Partition), found
    assert measure(problem, found.subcluster) == found.balance
    assert found.balance.keeps_limits
    return found


def refused(problem: SubclusterProblem) -> NoPartition:
    found = partition(problem, soon())
    assert isinstance(found, NoPartition), found
    return found


def least_objective(problem: SubclusterProblem) -> float:
    """Over all assignments; inf if none keeps the limits."""
    names = [model.name for model in problem.models]
    every = (
        measure(problem, dict(zip(names, where, strict=True)))
        for where in product(range(problem.subclusters), repeat=len(names))
    )
    return min((balance.objective for balance in every if balance.keeps_limits), default=inf)


def groups(subcluster: Mapping[str, int]) -> set[frozenset[str]]:
    return {frozenset(n for n, j in subcluster.items() if j == k) for k in set(subcluster.values())}


def test_measures_of_a_partition_by_hand() -> None:
    problem = SubclusterProblem(
        models((10, 4, 2), (30, 4, 1), (20, 8, 0, 3.0)), 2, memory_weight=0.5, max_memory=12, current={"m0": 1, "m1": 1}
    )

    balance = measure(problem, {"m0": 0, "m1": 1, "m2": 0})

    # Rates 30 and 30; static memory 12 and 4 around 8; m0 moves (2) and m2 is loaded (3).
    assert (balance.delta_rate, balance.rate_imbalance) == (0, 0)
    assert (balance.delta_memory, balance.memory_imbalance) == (0.5, 1)
    assert balance.objective == 0.25
    assert balance.change_cost == 5
    assert not balance.keeps_limits, "12 of static memory and 2 of dynamic are more than 12"


def test_even_models_are_spread_evenly() -> None:
    found = solved(SubclusterProblem(models(*[(1, 1)] * 12), 4))

    assert (found.balance.objective, found.balance.rate_imbalance, found.gap) == (0, 0, 0)
    assert sorted(map(len, groups(found.subcluster))) == [3, 3, 3, 3]


def test_only_the_largest_dynamic_memory_counts() -> None:
    """Two models that take 5 while they run fit beside each other, but not each beside a model of 6."""
    found = solved(SubclusterProblem(models((1, 1, 5), (1, 1, 5), (1, 5, 0), (1, 3, 0)), 2, max_memory=9))

    assert groups(found.subcluster) == {frozenset({"m0", "m1"}), frozenset({"m2", "m3"})}


numbers = st.integers(0, 9).map(float)
small_models = st.lists(st.tuples(numbers, st.integers(1, 9).map(float), numbers), min_size=2, max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    sizes=small_models,
    subclusters=st.integers(1, 3),
    memory=st.integers(10, 40),
    rate=st.one_of(st.just(inf), st.integers(10, 30).map(float)),
    weight=st.sampled_from([0.0, 0.5, 1.0]),
    homes=st.lists(st.integers(0, 2), max_size=6),
    change=st.one_of(st.just(inf), st.integers(0, 8).map(float)),
)
def test_no_other_partition_is_better(
    sizes: list[tuple[float, ...]],
    subclusters: int,
    memory: int,
    rate: float,
    weight: float,
    homes: list[int],
    change: float,
) -> None:
    problem = SubclusterProblem(
        models(*sizes),
        subclusters,
        max_memory=memory,
        max_rate=rate,
        memory_weight=weight,
        current={f"m{i}": home for i, home in enumerate(homes)},
        max_change_cost=change,
    )
    want = least_objective(problem)

    if want == inf:
        assert refused(problem).reason is not NoPartitionReason.TIME_LIMIT
    else:
        found = solved(problem)
        assert found.balance.objective == pytest.approx(want, abs=CLOSE_ENOUGH)
        assert found.bound <= want + CLOSE_ENOUGH


def test_change_is_bounded() -> None:
    """One exchange of two models improves most; without the bound more models would move."""
    loaded = models((9, 1), (8, 1), (1, 1), (2, 1))
    problem = SubclusterProblem(loaded, 2, current={"m0": 0, "m1": 0, "m2": 1, "m3": 1}, max_change_cost=4)

    found = solved(problem)

    assert found.balance.change_cost == 4
    assert found.balance.delta_rate == pytest.approx(0)


def test_nothing_moves_when_nothing_may() -> None:
    current = {"m0": 0, "m1": 0, "m2": 1}

    found = solved(SubclusterProblem(models((9, 1), (8, 1), (1, 1)), 2, current=current, max_change_cost=0))

    assert found.subcluster == current
    assert found.gap == pytest.approx(0)


def test_models_of_a_sub_cluster_that_is_gone_are_loaded_elsewhere() -> None:
    problem = SubclusterProblem(models((1, 1), (1, 1)), 1, current={"m0": 0, "m1": 3}, max_change_cost=1)

    assert solved(problem).balance.change_cost == 1


def test_large_problem_is_solved_without_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BINARIES", 0)
    sizes = [(1.0 + i * 7 % 13, 1.0 + i * 5 % 11, float(i % 3)) for i in range(80)]

    found = solved(SubclusterProblem(models(*sizes), 5, max_memory=110))

    assert found.balance.rate_imbalance < 0.05
    assert found.balance.memory_imbalance < 0.05
    assert 0 <= found.bound <= found.balance.objective


def test_models_of_like_dynamic_memory_share_where_memory_is_tight() -> None:
    """Spread evenly, each sub-cluster would hold one of the models with 10; they fit into two sub-clusters."""
    sizes = [(1.0, 1.0, 10.0)] * 20 + [(1.0, 1.0, 0.0)] * 60

    found = solved(SubclusterProblem(models(*sizes), 4, max_memory=25))

    with_ten = {found.subcluster[f"m{i}"] for i in range(20)}
    assert len(with_ten) == 2


@pytest.mark.parametrize(
    ("problem", "want_reason", "want_message"),
    [
        pytest.param(
            SubclusterProblem(models((1, 8, 3), (1, 1)), 2, max_memory=10),
            NoPartitionReason.MODEL_TOO_LARGE,
            "'m0' needs 11 bytes",
            id="a model larger than any sub-cluster",
        ),
        pytest.param(
            SubclusterProblem(models((11, 1), (1, 1)), 2, max_rate=10),
            NoPartitionReason.MODEL_TOO_BUSY,
            "'m0' has 11 requests/s",
            id="a model busier than any sub-cluster",
        ),
        pytest.param(
            SubclusterProblem(models((1, 9), (1, 9), (1, 9)), 2, max_memory=10),
            NoPartitionReason.NOT_ENOUGH_MEMORY,
            "at least 3 sub-clusters",
            id="too little memory in all",
        ),
        pytest.param(
            SubclusterProblem(models((9, 1), (9, 1), (9, 1)), 2, max_rate=10),
            NoPartitionReason.NOT_ENOUGH_RATE,
            "at least 3 sub-clusters",
            id="too little rate in all",
        ),
        pytest.param(
            SubclusterProblem(models((1, 6), (1, 6), (1, 6)), 2, max_memory=10),
            NoPartitionReason.INFEASIBLE,
            "Proven",
            id="does not fit although the sums do",
        ),
        pytest.param(
            SubclusterProblem(models((1, 1), (1, 1)), 2, current={"m0": 0}, max_change_cost=0.5),
            NoPartitionReason.CHANGE_TOO_COSTLY,
            "raise it to 1 or more",
            id="a new model costs more than is allowed",
        ),
        pytest.param(
            SubclusterProblem(models((1, 6), (1, 6)), 2, max_memory=10, current={"m0": 0, "m1": 0}, max_change_cost=1),
            NoPartitionReason.CHANGE_TOO_COSTLY,
            "with 2 they do",
            id="what must move may not",
        ),
    ],
)
def test_says_why_there_is_none(problem: SubclusterProblem, want_reason: NoPartitionReason, want_message: str) -> None:
    found = refused(problem)

    assert found.reason is want_reason
    assert want_message in found.message


def test_time_that_has_passed_still_gives_a_partition() -> None:
    problem = SubclusterProblem(models((9, 1), (8, 1), (1, 1)), 2, max_memory=10)

    found = partition(problem, Deadline.after(0, lambda: 0.0))

    assert isinstance(found, Partition)
    assert found.balance.keeps_limits


VALID = SubclusterProblem(models((1, 1), (2, 2)), 2)


@pytest.mark.parametrize(
    ("problem", "want_message"),
    [
        pytest.param(replace(VALID, subclusters=0), "at least 1", id="no sub-clusters"),
        pytest.param(replace(VALID, models=()), "no models", id="no models"),
        pytest.param(replace(VALID, models=VALID.models * 2), "same name", id="one name twice"),
        pytest.param(replace(VALID, models=models((float("nan"), 1))), "rate of nan", id="rate not a number"),
        pytest.param(replace(VALID, models=models((1, -1))), "static memory of -1", id="negative memory"),
        pytest.param(replace(VALID, models=models((1, 1, inf))), "dynamic memory of inf", id="endless memory"),
        pytest.param(replace(VALID, max_memory=0), "max_memory is 0", id="no memory"),
        pytest.param(replace(VALID, max_rate=float("nan")), "max_rate is nan", id="limit not a number"),
        pytest.param(replace(VALID, max_change_cost=-1), "max_change_cost", id="negative change cost"),
        pytest.param(replace(VALID, memory_weight=inf), "memory_weight", id="endless weight"),
        pytest.param(replace(VALID, current={"m0": -1}), "counted from 0", id="sub-cluster -1"),
    ],
)
def test_bad_input_is_refused(problem: SubclusterProblem, want_message: str) -> None:
    with pytest.raises(BadSubclustersError, match=want_message):
        partition(problem, soon())
