"""Searches for plans in the background, one for each session."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from partita_operator.handlers.metrics import PLANNED, Metrics
from partita_operator.handlers.session_tasks import SessionTasks
from partita_operator.ports import PlanSolver
from partita_operator.reconcile.world import Search
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, PlanningProblem

logger = logging.getLogger(__name__)


class PlanSearches:
    """The last search of every session. An outcome is kept until the next search starts."""

    def __init__(self, solver: PlanSolver, metrics: Metrics, on_answer: Callable[[str], None]) -> None:
        self._solver = solver
        self._metrics = metrics
        self._tasks = SessionTasks[Search](on_answer)

    def last(self, session: str) -> Search | None:
        """The session's last search, running or finished."""
        return self._tasks.last(session)

    def start(self, session: str, key: str, problem: PlanningProblem) -> None:
        """Start a search; a running search for another problem is cancelled."""
        last = self._tasks.last(session)
        if last is None or last.key != key or last.outcome is not None:
            self._tasks.start(session, Search(key), partial(self._search, session, key, problem))

    def cancel(self, session: str) -> None:
        """Cancel the session's search, and drop its outcome."""
        self._tasks.cancel(session)

    async def close(self) -> None:
        """Cancel all searches."""
        await self._tasks.close()

    async def _search(self, session: str, key: str, problem: PlanningProblem) -> Search:
        logger.info("session %s: searching for a plan for %g requests/s", session, problem.rate)
        outcome = await self._solve(session, problem)
        self._metrics.searched(str(outcome.reason) if isinstance(outcome, NoPlan) else PLANNED)
        return Search(key, outcome, datetime.now(UTC))

    async def _solve(self, session: str, problem: PlanningProblem) -> Outcome:
        try:
            return await self._solver.solve(session.partition("/")[0], problem)
        except Exception as error:
            logger.exception("session %s: the planner failed", session)
            return NoPlan(NoPlanReason.INVALID_PLAN, f"The planner failed: {error!r}")
