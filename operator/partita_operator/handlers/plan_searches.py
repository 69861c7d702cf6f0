"""Searches for plans in the background, one for each session."""

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from partita_operator.handlers.metrics import PLANNED, Metrics
from partita_operator.ports import PlanSolver
from partita_operator.reconcile.world import Search
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem

logger = logging.getLogger(__name__)


class PlanSearches:
    """The last search of every session. An outcome is kept until the next search starts."""

    def __init__(self, solver: PlanSolver, metrics: Metrics, on_answer: Callable[[str], None]) -> None:
        self._solver = solver
        self._metrics = metrics
        self._on_answer = on_answer
        self._last: dict[str, Search] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def last(self, session: str) -> Search | None:
        """The session's last search, running or finished."""
        return self._last.get(session)

    def start(self, session: str, key: str, problem: PlanningProblem) -> None:
        """Start a search; a running search for another problem is cancelled."""
        last = self._last.get(session)
        if last is not None and last.key == key and last.outcome is None:
            return
        self.cancel(session)
        self._last[session] = Search(key)
        self._tasks[session] = asyncio.create_task(self._search(session, key, problem), name=f"plan of {session}")

    def cancel(self, session: str) -> None:
        """Cancel the session's search, and drop its outcome."""
        self._last.pop(session, None)
        task = self._tasks.pop(session, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all searches."""
        tasks = list(self._tasks.values())
        for session in list(self._tasks):
            self.cancel(session)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _search(self, session: str, key: str, problem: PlanningProblem) -> None:
        logger.info("session %s: searching for a plan for %g requests/s", session, problem.rate)
        outcome = await self._solve(session, problem)
        self._last[session] = Search(key, outcome, datetime.now(UTC))
        self._tasks.pop(session, None)
        self._metrics.searched(str(outcome.reason) if isinstance(outcome, NoPlan) else PLANNED)
        self._on_answer(session)

    async def _solve(self, session: str, problem: PlanningProblem) -> Outcome:
        try:
            return await self._solver.solve(session.partition("/")[0], problem)
        except Exception as error:
            logger.exception("session %s: the planner failed", session)
            return NoPlan(NoPlanReason.INVALID_PLAN, f"The planner failed: {error!r}")
