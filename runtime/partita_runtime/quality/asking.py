"""Sends samples to a session, a few at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from partita_runtime.quality.check import Measure, QualityScore, SampleResult, result_of
from partita_runtime.quality.samples import Sample

Send = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""Sends a request's body in JSON, and returns the status and the body of the answer. Raises NotAskedError."""
AT_A_TIME: Final = 2
ATTEMPTS: Final = 5
AGAIN_SECONDS: Final = 1.0
_AGAIN: Final = (503, 504)
"""Not now, or not within the SLO."""


class NotAskedError(Exception):
    """The session cannot be asked now; the message says why."""


async def ask_samples(samples: Sequence[Sample], measure: Measure, send: Send) -> QualityScore:
    """The score of a session's answers. Answers with 503 or 504 are asked for again. Raises NotAskedError."""
    turns = asyncio.Semaphore(AT_A_TIME)

    async def result(sample: Sample) -> SampleResult:
        async with turns:
            status, body = await _answer(sample, send)
        # Comparing long texts takes a while.
        return await asyncio.to_thread(result_of, sample, measure, status, body)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(result(sample)) for sample in samples]
    except* NotAskedError as errors:
        raise NotAskedError(str(errors.exceptions[0])) from None
    return QualityScore(measure, tuple(task.result() for task in tasks))


async def _answer(sample: Sample, send: Send) -> tuple[int, bytes]:
    for _ in range(ATTEMPTS - 1):
        status, body = await send(sample.request)
        if status not in _AGAIN:
            return status, body
        await asyncio.sleep(AGAIN_SECONDS)
    status, body = await send(sample.request)
    if status in _AGAIN:
        raise NotAskedError(f"the session has answered {status} to a sample {ATTEMPTS} times")
    return status, body
