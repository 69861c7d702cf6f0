"""Checks of plans' answers to samples in the background, one for each session."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from partita_api.fields.quantity import LIMIT, Quantity
from partita_api.quality import QualityResult
from partita_operator.handlers.session_tasks import SessionTasks
from partita_operator.ports import EngineUnavailableError, ServingEngine
from partita_operator.reconcile.actions import CheckQuality
from partita_operator.reconcile.clock import timestamp
from partita_operator.reconcile.world import PlanCheck
from partita_runtime.quality.asking import NotAskedError, ask_samples
from partita_runtime.quality.check import Measure, QualityScore
from partita_runtime.quality.samples import SamplesError, parse_samples

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 900.0
"""Time limit of a check."""
_MAX_MESSAGE: Final = 512


class QualityChecks:
    """The last check of every session."""

    def __init__(self, on_answer: Callable[[str], None]) -> None:
        self._tasks = SessionTasks[PlanCheck](on_answer)

    def last(self, session: str) -> PlanCheck | None:
        """The session's last check, running or finished."""
        return self._tasks.last(session)

    def start(self, session: str, action: CheckQuality, engine: ServingEngine) -> None:
        """Start a check; a running check of another plan or with other samples is cancelled."""
        running = PlanCheck(action.plan, action.question)
        self._tasks.start(session, running, partial(_check, session, action, engine))

    def cancel(self, session: str) -> None:
        """Cancel the session's check, and drop its outcome."""
        self._tasks.cancel(session)

    async def close(self) -> None:
        """Cancel all checks."""
        await self._tasks.close()


async def _check(session: str, action: CheckQuality, engine: ServingEngine) -> PlanCheck:
    logger.info("session %s: checking the answers of plan %s", session, action.plan)
    ended = PlanCheck(action.plan, action.question)
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            ended = replace(ended, result=await _result(session, action, engine))
    except TimeoutError:
        ended = replace(ended, problem=f"The check did not end within {CHECK_SECONDS:g} s.")
    except NotAskedError as error:
        ended = replace(ended, problem=f"The plan cannot be asked now: {error}.")
    except Exception as error:
        logger.exception("session %s: the check of plan %s failed", session, action.plan)
        ended = replace(ended, problem=f"The check failed: {type(error).__name__}.")
    return replace(ended, finished=datetime.now(UTC))


async def _result(session: str, action: CheckQuality, engine: ServingEngine) -> QualityResult:
    """Raises NotAskedError."""

    async def send(sample: bytes) -> tuple[int, bytes]:
        try:
            return await engine.ask(session, action.plan, sample)
        except EngineUnavailableError as error:
            raise NotAskedError(str(error).rstrip(".")) from error

    quality = action.quality
    try:
        samples = await asyncio.to_thread(parse_samples, action.samples)
    except SamplesError as error:
        return _quality_result(action, None, str(error))
    measure = Measure(quality.metric, float(quality.limit), quality.output, quality.k)
    score = await ask_samples(samples, measure, send)
    return _quality_result(action, score, score.problems)


def _quality_result(action: CheckQuality, score: QualityScore | None, problems: str) -> QualityResult:
    value = score.value if score is not None else None
    return QualityResult(
        question=action.question,
        met=score is not None and score.met,
        metric=action.quality.metric,
        score=Quantity(value) if value is not None and value < LIMIT else None,
        limit=action.quality.limit,
        samples=len(score.results) if score is not None else 0,
        time=timestamp(datetime.now(UTC)),
        message=problems[:_MAX_MESSAGE],
    )
