"""The turns of searches: no namespace keeps the others from planning."""

import asyncio

import pytest

from partita_operator.solver.fair_turns import next_search
from partita_operator.solver.slots import Slots


@pytest.mark.parametrize(
    ("waiting", "running", "started", "slots", "want"),
    [
        pytest.param("", "", "", 3, None, id="nothing waits"),
        pytest.param("a", "", "", 3, 0, id="alone"),
        pytest.param("aa", "", "", 1, 0, id="by arrival within a namespace"),
        pytest.param("b", "aac", "ac", 3, None, id="no slot is free"),
        pytest.param("aab", "a", "a", 3, 2, id="a namespace without a search before one with a search"),
        pytest.param("aa", "a", "a", 3, 0, id="a namespace alone takes a second slot"),
        pytest.param("aaa", "aa", "a", 3, None, id="one slot is left for other namespaces"),
        pytest.param("aaab", "aa", "a", 3, 3, id="another namespace takes the last slot"),
        pytest.param("a", "", "a", 1, 0, id="a single slot is for all"),
        pytest.param("aab", "", "a", 1, 2, id="a namespace that has not had its turn is next"),
        pytest.param("aabb", "", "ba", 1, 2, id="the earlier turn is next"),
        pytest.param("abc", "abc", "abc", 4, 0, id="the earliest turn of equals"),
    ],
)
def test_next_search(waiting: str, running: str, started: str, slots: int, want: int | None) -> None:
    """Each letter is a search of the namespace with this name."""
    assert next_search(waiting, running, started, slots) == want


class Searches:
    """Searches that hold their slots until they are ended, by name; the first letter is the namespace."""

    def __init__(self, slots: int) -> None:
        self.slots = Slots(slots)
        self.running: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str) -> None:
        for name in names:
            self.tasks[name] = asyncio.create_task(self._search(name))
        await self._settle()

    async def end(self, name: str) -> None:
        self.tasks[name].cancel()
        await self._settle()

    async def _search(self, name: str) -> None:
        async with self.slots.taken(name[0]):
            self.running.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.remove(name)

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_a_namespace_with_many_sessions_leaves_a_slot_to_others() -> None:
    searches = Searches(slots=3)

    await searches.begin(*(f"a{number}" for number in range(20)))
    assert searches.running == ["a0", "a1"]
    await searches.begin("b0", "b1")

    assert searches.running == ["a0", "a1", "b0"]


async def test_two_namespaces_alternate_on_one_slot() -> None:
    searches = Searches(slots=1)
    await searches.begin("a0", "a1", "a2", "b0", "b1")
    served = []

    while searches.running:
        served.append(searches.running[0])
        await searches.end(served[-1])

    assert served == ["a0", "b0", "a1", "b1", "a2"]


async def test_a_waiting_search_that_is_cancelled_takes_no_slot() -> None:
    searches = Searches(slots=1)
    await searches.begin("a0", "a1", "b0")

    await searches.end("b0")
    await searches.end("a0")

    assert searches.running == ["a1"]


async def test_a_search_that_is_cancelled_as_its_turn_comes_frees_its_slot() -> None:
    searches = Searches(slots=1)
    await searches.begin("a0", "b0", "c0")

    searches.tasks["a0"].cancel()
    await asyncio.sleep(0)  # b0 has its turn now, and does not know it yet
    await searches.end("b0")

    assert searches.running == ["c0"]
