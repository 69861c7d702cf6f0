"""The tree of minima compared with a scan of all entries."""

from hypothesis import given
from hypothesis import strategies as st

from partita_runtime.scheduling.workers.free_index import NEVER, FreeIndex

changes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50) | st.just(NEVER)), min_size=1, max_size=60)


@given(st.lists(st.integers(0, 50), max_size=21), changes, st.integers(0, 60), st.integers(0, 25))
def test_index_finds_the_same_as_a_scan(first: list[int], sets: list[tuple[int, int]], at: int, start: int) -> None:
    index = FreeIndex(first)
    scanned = first + [NEVER] * (21 - len(first))
    for number, free_at in sets:
        index.set(number, free_at)
        scanned[number] = free_at

    want_first = next((n for n in range(start, 21) if scanned[n] <= at), -1)
    assert index.first_free(at, start) == want_first
    earliest = index.earliest()
    assert index.least() == min(scanned)
    assert min(scanned) == NEVER or earliest == scanned.index(min(scanned))
