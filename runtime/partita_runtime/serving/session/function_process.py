"""A process that runs a session's CPU functions: it receives calls over a socket and answers them.

    python -m partita_runtime.serving.session.function_process FILE_DESCRIPTOR in-order|concurrent ENTRYPOINT...

First it sends a LoadedFunction for each entrypoint. In order: it receives lists of FunctionCall and sends a CallOutcome
for each call. Concurrent, for coroutine functions: it receives lists of pairs of a number and a FunctionCall, or None
to cancel the call of that number, and sends pairs of a number and a CallOutcome (`function_messages`).
"""

import asyncio
import importlib
import inspect
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

from partita_runtime.functions import RequestRefusedError
from partita_runtime.models.policy import policy_here
from partita_runtime.serving.session.function_messages import (
    CONCURRENT,
    HUNG_SECONDS,
    LENGTH,
    CallOutcome,
    FunctionCall,
    LoadedFunction,
    answer_arrays,
    frame,
)


def main(descriptor: str, mode: str, entrypoints: Sequence[str]) -> None:
    """Run calls until the frontend closes its end of the socket, and then end at once."""
    frontend = socket.socket(fileno=int(descriptor))
    frontend.sendall(frame([_load(entrypoint) for entrypoint in entrypoints]))
    if mode == CONCURRENT:
        asyncio.run(_run_concurrently(frontend))
    else:
        _run_in_order(cast(BinaryIO, frontend.makefile("rwb")))


def _run_in_order(stream: BinaryIO) -> None:
    calls: SimpleQueue[FunctionCall] = SimpleQueue()
    threading.Thread(target=_receive, args=(stream, calls), daemon=True).start()
    while True:
        call = calls.get()
        outcome = _outcome(call)
        try:
            answer = frame(outcome)
        except Exception as error:
            answer = frame(_cannot_be_sent(error))
        stream.write(answer)
        stream.flush()


def _cannot_be_sent(error: Exception) -> CallOutcome:
    return CallOutcome(None, f"its answer cannot be sent: {type(error).__name__}: {error}")


def _receive(stream: BinaryIO, calls: SimpleQueue[FunctionCall]) -> None:
    while prefix := stream.read(LENGTH.size):
        for call in pickle.loads(stream.read(LENGTH.unpack(prefix)[0])):
            calls.put(call)
    os._exit(0)


_loaded: dict[str, Callable[..., Any]] = {}


async def _run_concurrently(frontend: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=frontend)
    tasks: dict[int, asyncio.Task[CallOutcome]] = {}

    def ended(number: int, task: asyncio.Task[CallOutcome]) -> None:
        if tasks.pop(number, None) is not task:
            return  # cancelled by the frontend
        outcome = CallOutcome(None, "it was cancelled by itself") if task.cancelled() else task.result()
        try:
            answer = frame((number, outcome))
        except Exception as error:
            answer = frame((number, _cannot_be_sent(error)))
        writer.write(answer)

    while True:
        try:
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            messages = pickle.loads(await reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            os._exit(0)
        for number, call in messages:
            if call is not None:
                tasks[number] = asyncio.create_task(_asynchronous_outcome(call))
                tasks[number].add_done_callback(partial(ended, number))
            elif number in tasks:
                tasks.pop(number).cancel()


def _load(entrypoint: str) -> LoadedFunction:
    module, _, name = entrypoint.partition(":")
    try:
        policy = policy_here()
        if problem := policy.entrypoint_problem(entrypoint):
            return LoadedFunction(f"may not be loaded: {problem}")
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        return LoadedFunction(f"cannot be loaded: {type(error).__name__}: {error}")
    if problem := policy.origin_problem(entrypoint, function):
        return LoadedFunction(f"may not be called: {problem}")
    _loaded[entrypoint] = function
    return LoadedFunction(is_asynchronous=inspect.iscoroutinefunction(function))


def _outcome(call: FunctionCall) -> CallOutcome:
    try:
        return _answered(_loaded[call.entrypoint](call.request, call.upstream, **call.kwargs))
    except Exception as error:
        return _raised(error)


async def _asynchronous_outcome(call: FunctionCall) -> CallOutcome:
    limit = asyncio.timeout(HUNG_SECONDS)
    try:
        async with limit:
            answer = await _loaded[call.entrypoint](call.request, call.upstream, **call.kwargs)
        return _answered(answer)
    except Exception as error:
        if limit.expired():
            return CallOutcome(None, f"it did not answer within {HUNG_SECONDS:.0f} s")
        return _raised(error)


def _answered(answer: Any) -> CallOutcome:
    if not isinstance(answer, Mapping):
        return CallOutcome(None, f"it must return a mapping of arrays, not {type(answer).__name__}")
    return CallOutcome(answer_arrays(answer))


def _raised(error: Exception) -> CallOutcome:
    if isinstance(error, RequestRefusedError):
        return CallOutcome(None, str(error), is_refusal=True)
    return CallOutcome(None, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
