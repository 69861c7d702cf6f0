"""Requests that profile quickly, or that fail."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.patience import PATIENCE_SECONDS

from partita_api.profile import ProfileRequest
from partita_api.session.module import ModelSource, TensorSpec
from partita_operator.ports import ProfileRun, RunPhase

REPOSITORY = Path(__file__).parents[3]
IMPORTS = os.pathsep.join([str(REPOSITORY), *(entry for entry in sys.path if entry)])
"""PYTHONPATH for runs, with the models of the tests."""


def quick(pool: str, seed: int = 0) -> ProfileRequest:
    """A small model with emulated times; each seed has its own key."""
    small = request(pool, "tests.operator.profiling.profiled_models:small")
    return small.model_copy(update={"curve": (100, 1000 + seed)})


def request(pool: str, entrypoint: str) -> ProfileRequest:
    """Any model that takes four numbers."""
    return ProfileRequest(
        model=ModelSource(entrypoint=entrypoint),
        input=TensorSpec(shape=(4,)),
        blocks=1,
        batch_sizes=(1, 2),
        pool=pool,
    )


async def until(observe: Callable[[], Awaitable[ProfileRun]], accepts: Callable[[ProfileRun], bool]) -> ProfileRun:
    """The first accepted observation; fails after the deadline."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not accepts(run := await observe()):
        assert time.monotonic() < deadline, f"still {run}"
        await asyncio.sleep(0.25)
    return run


def is_over(run: ProfileRun) -> bool:
    return run.phase in (RunPhase.SUCCEEDED, RunPhase.FAILED)
