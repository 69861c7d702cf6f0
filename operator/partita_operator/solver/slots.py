"""The slots that searches wait for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from partita_operator.solver.fair_turns import next_search


@dataclass(eq=False)
class _Search:
    namespace: str
    starts: asyncio.Event = field(default_factory=asyncio.Event)


class Slots:
    """A number of slots for searches, given in turns that are fair to namespaces."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._waiting: list[_Search] = []
        self._running: list[_Search] = []
        self._started: list[str] = []
        """Namespaces with searches, by the last start of one."""

    @asynccontextmanager
    async def taken(self, namespace: str) -> AsyncIterator[None]:
        """Waits for a slot, and holds it until the end of the context."""
        search = _Search(namespace)
        self._waiting.append(search)
        self._start()
        try:
            await search.starts.wait()
            yield
        finally:
            (self._running if search in self._running else self._waiting).remove(search)
            self._start()

    def _start(self) -> None:
        """Start all searches that may start now."""
        while (index := self._next()) is not None:
            search = self._waiting.pop(index)
            self._running.append(search)
            present = {other.namespace for other in (*self._waiting, *self._running)}
            earlier = [name for name in self._started if name in present and name != search.namespace]
            self._started = [*earlier, search.namespace]
            search.starts.set()

    def _next(self) -> int | None:
        waiting, running = ([search.namespace for search in some] for some in (self._waiting, self._running))
        return next_search(waiting, running, self._started, self._number)
