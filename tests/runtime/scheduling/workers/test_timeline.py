"""Reservations on one resource, on two at once, and their changes when one takes longer."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.scheduling.workers.timeline import Reservation, Timeline, delay_behind, earliest_joint


def timeline(*intervals: tuple[int, int]) -> Timeline:
    made = Timeline()
    for start, end in intervals:
        Reservation(made, start, end, 0, 0).place()
    return made


@pytest.mark.parametrize(
    ("intervals", "ready", "length", "want_start"),
    [
        pytest.param([], 5, 10, 5, id="free"),
        pytest.param([(0, 10)], 5, 10, 10, id="behind the only one"),
        pytest.param([(0, 10), (20, 30)], 5, 10, 10, id="in a gap that just fits"),
        pytest.param([(0, 10), (20, 30)], 5, 11, 30, id="gap too short"),
        pytest.param([(20, 30)], 5, 15, 5, id="before the first"),
        pytest.param([(20, 30)], 6, 15, 30, id="too late for the gap before the first"),
        pytest.param([(20, 30), (0, 10)], 0, 5, 10, id="added out of order"),
        pytest.param([(0, 10)], 15, 5, 15, id="past reservations do not matter"),
    ],
)
def test_earliest_start(intervals: list[tuple[int, int]], ready: int, length: int, want_start: int) -> None:
    assert timeline(*intervals).earliest(ready, length) == want_start


@pytest.mark.parametrize(
    ("one", "other", "want_start"),
    [
        pytest.param([], [], 0, id="both free"),
        pytest.param([(0, 10)], [(10, 20)], 20, id="each free, never together"),
        pytest.param([(0, 10), (15, 30)], [(0, 12)], 30, id="common gap too short"),
        pytest.param([(0, 10), (25, 30)], [(0, 12)], 12, id="common gap"),
    ],
)
def test_earliest_joint_start(one: list[tuple[int, int]], other: list[tuple[int, int]], want_start: int) -> None:
    assert earliest_joint(timeline(*one), timeline(*other), 0, 10) == want_start
    assert earliest_joint(timeline(*other), timeline(*one), 0, 10) == want_start


legs = st.lists(
    st.tuples(st.sets(st.integers(0, 3), min_size=1, max_size=2), st.integers(1, 20)), min_size=1, max_size=4
)


@given(st.lists(st.tuples(st.integers(0, 50), legs), min_size=1, max_size=8), st.data())
def test_a_longer_reservation_delays_the_following_ones_in_order(
    batches: list[tuple[int, list[tuple[set[int], int]]]], data: st.DataObject
) -> None:
    resources = [Timeline() for _ in range(4)]
    placed: list[Reservation] = []
    for number, (ready, path) in enumerate(batches):
        last = None
        for used, length in path:
            timelines = [resources[i] for i in sorted(used)]
            start = earliest_joint(timelines[0], timelines[-1], ready, length)
            other = timelines[1] if len(timelines) > 1 else None
            leg = Reservation(timelines[0], start, start + length, number, 0, other)
            leg.place()
            if last is not None:
                last.following = leg
            placed.append(leg)
            last, ready = leg, leg.end
    order = [list(resource.reservations) for resource in resources]
    before = {id(leg): (leg.start, leg.end) for leg in placed}
    late = data.draw(st.sampled_from(placed))
    late.end += data.draw(st.integers(0, 100))

    delay_behind(late)

    assert [list(resource.reservations) for resource in resources] == order
    for resource in resources:
        assert all(earlier.end <= later.start for earlier, later in pairwise(resource.reservations))
    for leg in placed:
        start, end = before[id(leg)]
        assert leg.start >= start
        assert leg is late or leg.end - leg.start == end - start
        assert leg.following is None or leg.end <= leg.following.start
