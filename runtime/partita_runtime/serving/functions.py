"""Runs the session's CPU functions in processes of their own, so that neither their work nor their crash is ours."""

import asyncio
import importlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from partita_api.inferencesession import FunctionSource
from partita_runtime.execution.executor import Array

HUNG_SECONDS: Final = 20.0
"""A call that takes longer is given up, and its process killed."""


class FunctionError(Exception):
    """A function cannot be loaded, raised an exception, ended its process, or hangs; the message says which."""


@dataclass(frozen=True)
class _Raised:
    """Exceptions of functions come back as text, since not all of them can be pickled."""

    text: str


class FunctionPool:
    """A few processes that have the functions loaded."""

    def __init__(self, functions: Sequence[FunctionSource], processes: int) -> None:
        self._entrypoints = tuple(dict.fromkeys(function.entrypoint for function in functions))
        self._processes = processes
        self._slots = asyncio.Semaphore(processes)
        self._pool: ProcessPoolExecutor | None = None

    async def prepare(self) -> None:
        """Start all processes and load the functions. Raises FunctionError for one that cannot be loaded."""
        for entrypoint in self._entrypoints:
            await asyncio.gather(*(self._run(_load, entrypoint) for _ in range(self._processes)))

    async def call(
        self,
        function: FunctionSource,
        request: Mapping[str, Array],
        upstream: Mapping[str, Sequence[Array]],
        wanted: Callable[[], bool],
    ) -> Mapping[str, Any] | None:
        """What the function answers; None if nobody wants it any more once its turn has come.

        Raises FunctionError if it has no answer.
        """
        async with self._slots:
            if not wanted():
                return None
            answer: Any = await self._run(_call, function.entrypoint, function.kwargs, request, upstream)
        if not isinstance(answer, Mapping):
            raise FunctionError(f"{function.entrypoint} must return a mapping of arrays, not {type(answer).__name__}")
        return answer

    def close(self) -> None:
        """End the processes, whatever they do."""
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = [*pool._processes.values()]  # there is no public way to end a process that hangs
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()

    def _replace(self, failed: ProcessPoolExecutor) -> None:
        """Let the next call start new processes, unless an earlier one that failed with the same pool has."""
        if self._pool is failed:
            self.close()

    async def _run(self, task: Callable[..., Any], entrypoint: str, *arguments: object) -> Any:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._processes, context, _begin, (self._entrypoints,))
        pool = self._pool
        running = asyncio.get_running_loop().run_in_executor(pool, task, entrypoint, *arguments)
        try:
            answer = await asyncio.wait_for(running, HUNG_SECONDS)
        except TimeoutError:
            self._replace(pool)
            raise FunctionError(f"{entrypoint} did not answer within {HUNG_SECONDS:.0f} s") from None
        except BrokenExecutor:
            self._replace(pool)
            raise FunctionError(f"the process of {entrypoint} ended before it answered") from None
        if isinstance(answer, _Raised):
            raise FunctionError(f"{entrypoint}: {answer.text}")
        return answer


_loaded: dict[str, Callable[..., Any]] = {}
"""In a process of the pool: its functions by entrypoint."""


def _begin(entrypoints: Sequence[str]) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end_with_parent() -> None:
            parent.join()
            os._exit(0)

        threading.Thread(target=end_with_parent, daemon=True).start()
    for entrypoint in entrypoints:
        _load(entrypoint)  # one that cannot be loaded says so when it is called


def _load(entrypoint: str) -> _Raised | None:
    if entrypoint not in _loaded:
        module, _, name = entrypoint.partition(":")
        try:
            _loaded[entrypoint] = getattr(importlib.import_module(module), name)
        except Exception as error:
            return _Raised(f"cannot be loaded: {type(error).__name__}: {error}")
    return None


def _call(
    entrypoint: str,
    kwargs: Mapping[str, Any],
    request: Mapping[str, Array],
    upstream: Mapping[str, Sequence[Array]],
) -> Any:
    problem = _load(entrypoint)
    if problem is not None:
        return problem
    try:
        return _loaded[entrypoint](request, upstream, **kwargs)
    except Exception as error:
        return _Raised(f"{type(error).__name__}: {error}")
