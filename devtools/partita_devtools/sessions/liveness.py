"""Waits that end as soon as a program without which nothing can serve has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from partita_devtools.environment import DevEnvironment
from partita_devtools.errors import DevError
from partita_devtools.operator_process import ended_operator

T = TypeVar("T")

_LOOK_EVERY_S: Final = 1.0


def require_running(environment: DevEnvironment, again: str) -> None:
    """Raises DevError with the end of its log if a program of the environment, or its operator, has ended.

    `again` is the command that starts it again.
    """
    ended = [*environment.ended(), *ended_operator(environment.state_dir)]
    if ended:
        others = f"\nAlso ended: {', '.join(program.name for program in ended[1:])}" if ended[1:] else ""
        raise DevError(f"{ended[0].problem('ended')}{others}\nTo start again: {again}")


async def while_running(work: Awaitable[T], environment: DevEnvironment, again: str) -> T:
    """The result of `work`, which is cancelled as soon as `require_running` raises."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_EVERY_S))[0]:
            require_running(environment, again)
        if task.exception() is not None:
            # The end of a program can be seen a moment later than its effects.
            await asyncio.sleep(_LOOK_EVERY_S)
            require_running(environment, again)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
