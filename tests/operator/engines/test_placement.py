"""How two plans share a cluster."""

from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_operator.engines.placement import ReplicaCounts, ReplicaDemand, fit_both, fits, missing


def demands(prefix: str, *replicas: int, pool: str = "a", share: float = 1.0) -> list[ReplicaDemand]:
    return [ReplicaDemand(f"{prefix}{at}", count, {pool: share, "CPU": 0.1}) for at, count in enumerate(replicas)]


@pytest.mark.parametrize(
    ("room", "old", "new", "want"),
    [
        pytest.param(8, demands("o", 4), demands("n", 4), ([4], [4]), id="all fits"),
        pytest.param(6, demands("o", 4), demands("n", 4), ([4], [2]), id="new plan takes the rest"),
        pytest.param(4, demands("o", 4), demands("n", 4), ([3], [1]), id="old plan releases what one replica needs"),
        pytest.param(5, demands("o", 4, 1), demands("n", 2, 2), ([2, 1], [1, 1]), id="the largest stage releases"),
        pytest.param(7, demands("o", 1), demands("n", 4, 2), ([1], [4, 2]), id="new ones grow evenly"),
        pytest.param(2, demands("o", 1, 1), demands("n", 1), None, id="nothing left to release"),
        pytest.param(
            1,
            demands("o", 3, share=1 / 3),
            demands("n", 3, share=1 / 3),
            ([2], [1]),
            id="thirds of an accelerator",
        ),
    ],
)
def test_two_plans_share_a_cluster(
    room: float, old: list[ReplicaDemand], new: list[ReplicaDemand], want: tuple[list[int], list[int]] | None
) -> None:
    found = fit_both({"a": room, "CPU": 100}, old, new)
    assert (found and (list(found.old.values()), list(found.new.values()))) == want


def test_every_resource_counts() -> None:
    assert fit_both({"a": 10, "CPU": 0.15}, demands("o", 1), demands("n", 1)) is None
    assert fit_both({"a": 10, "CPU": 0.3}, demands("o", 2), demands("n", 2)) == ReplicaCounts({"o0": 2}, {"n0": 1})


def test_missing_resources_are_named() -> None:
    assert missing({"a": 1.0}, {"a": 3.0, "b": 0.5, "CPU": 0.0}) == {"a": 2.0, "b": 0.5}


counts = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@given(counts, counts, st.integers(0, 60))
def test_shares_fit_keep_one_of_each_and_use_everything(old: list[int], new: list[int], room: int) -> None:
    before, after = demands("o", *old), demands("n", *new)
    found = fit_both({"a": room, "CPU": 100}, before, after)
    if found is None:
        assert len(old) + len(new) > room
        return
    assert within(found.old.values(), old)
    assert within(found.new.values(), new)
    used = sum(found.old.values()) + sum(found.new.values())
    assert used <= room
    grown = all(found.new[d.name] == d.replicas for d in after)
    assert grown or used == room
    gave = sum(old) - sum(found.old.values())
    assert gave == max(0, sum(old) + len(new) - room)


def within(found: Collection[int], most: list[int]) -> bool:
    return all(1 <= count <= limit for count, limit in zip(found, most, strict=True))


def test_an_empty_request_always_fits() -> None:
    assert fits({}, {"a": 0.0})
    assert not fits({}, {"a": 0.1})
