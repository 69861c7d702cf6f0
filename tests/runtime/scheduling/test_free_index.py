"""The tree of minima against looking at every entry."""

from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.scheduling.free_index import NEVER, FreeIndex

changes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50) | st.just(NEVER)), min_size=1, max_size=60)


@given(changes, st.integers(0, 60), st.integers(0, 25))
def test_index_finds_what_a_scan_finds(sets: list[tuple[int, int]], at: int, start: int) -> None:
    index = FreeIndex()
    scanned = [NEVER] * 21
    for number, free_at in sets:
        index.set(number, free_at)
        scanned[number] = free_at

    want_first = next((n for n in range(start, 21) if scanned[n] <= at), None)
    assert index.first_free(at, start) == want_first
    number, time = index.earliest()
    assert time == min(scanned)
    assert time == NEVER or number == scanned.index(time)
