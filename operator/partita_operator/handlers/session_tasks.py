"""Work in the background, one task for each session, whose outcome is kept until the next one starts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

State = TypeVar("State")


class SessionTasks(Generic[State]):
    """The last task of every session and its state, running or finished."""

    def __init__(self, on_end: Callable[[str], None]) -> None:
        """`on_end` receives the key of a session whose task has ended."""
        self._on_end = on_end
        self._last: dict[str, State] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def last(self, session: str) -> State | None:
        """The state of the session's last task."""
        return self._last.get(session)

    def start(self, session: str, running: State, work: Callable[[], Awaitable[State]]) -> None:
        """Start a task, which returns its final state and raises nothing; the session's last one is cancelled."""
        self.cancel(session)
        self._last[session] = running
        self._tasks[session] = asyncio.create_task(self._run(session, work), name=f"{type(running).__name__} {session}")

    def cancel(self, session: str) -> None:
        """Cancel the session's task, and drop its state."""
        self._last.pop(session, None)
        task = self._tasks.pop(session, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks.values())
        for session in list(self._tasks):
            self.cancel(session)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, session: str, work: Callable[[], Awaitable[State]]) -> None:
        self._last[session] = await work()
        self._tasks.pop(session, None)
        self._on_end(session)
