"""A process that runs CPU functions: it receives calls over a socket and answers them (`messages`).

    python -m partita_runtime.function_server.process FILE_DESCRIPTOR

A frontend starts it, or the server of a container (`server`).
"""

import asyncio
import importlib
import inspect
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

from partita_runtime.function_server.frames import PREFIX, Array, FrameError, decode
from partita_runtime.function_server.messages import (
    HUNG_SECONDS,
    CallOutcome,
    FunctionCall,
    LoadedFunction,
    NumberedCall,
    answer_arrays,
    loaded_frame,
    outcome_frame,
    to_calls,
    to_load,
)
from partita_runtime.functions import RequestRefusedError


def main(frontend: socket.socket) -> None:
    """Run calls until the frontend closes its end of the socket, and then end at once."""
    load = to_load(_received(frontend)[0])
    frontend.sendall(b"".join(loaded_frame([_load(entrypoint) for entrypoint in load.entrypoints])))
    if load.is_concurrent:
        asyncio.run(_run_concurrently(frontend))
    else:
        _run_in_order(frontend)


def _run_in_order(frontend: socket.socket) -> None:
    calls: SimpleQueue[NumberedCall] = SimpleQueue()
    threading.Thread(target=_receive, args=(frontend, calls), daemon=True).start()
    while True:
        number, call = calls.get()
        if call is not None:
            for chunk in outcome_frame(number, _outcome(call)):
                frontend.sendall(chunk)


def _receive(frontend: socket.socket, calls: SimpleQueue[NumberedCall]) -> None:
    while True:
        for call in to_calls(*_received(frontend)):
            calls.put(call)


def _received(frontend: socket.socket) -> tuple[Any, list[Array]]:
    """The next frame. Ends the process if the frontend has closed its end, or sends something else."""
    try:
        header, body = PREFIX.unpack(_exactly(frontend, PREFIX.size))
        return decode(_exactly(frontend, header), _exactly(frontend, body))
    except FrameError:
        os._exit(1)


def _exactly(frontend: socket.socket, count: int) -> bytearray:
    received = bytearray(count)
    rest = memoryview(received)
    while rest:
        try:
            read = frontend.recv_into(rest)
        except OSError:
            read = 0
        if not read:
            os._exit(0)
        rest = rest[read:]
    return received


_loaded: dict[str, Callable[..., Any]] = {}


async def _run_concurrently(frontend: socket.socket) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=frontend)
    tasks: dict[int, asyncio.Task[CallOutcome]] = {}

    def ended(number: int, task: asyncio.Task[CallOutcome]) -> None:
        if tasks.pop(number, None) is not task:
            return  # cancelled by the frontend
        outcome = CallOutcome(None, "it was cancelled by itself") if task.cancelled() else task.result()
        writer.writelines(outcome_frame(number, outcome))

    while True:
        try:
            header, body = PREFIX.unpack(await reader.readexactly(PREFIX.size))
            value, arrays = decode(await reader.readexactly(header), bytearray(await reader.readexactly(body)))
        except (asyncio.IncompleteReadError, OSError, FrameError):
            os._exit(0)
        for number, call in to_calls(value, arrays):
            if call is not None:
                tasks[number] = asyncio.create_task(_asynchronous_outcome(call))
                tasks[number].add_done_callback(partial(ended, number))
            elif number in tasks:
                tasks.pop(number).cancel()


def _load(entrypoint: str) -> LoadedFunction:
    where, _, name = entrypoint.partition(":")
    try:
        function = getattr(importlib.import_module(where), name)
    except Exception as error:
        return LoadedFunction(f"cannot be loaded: {type(error).__name__}: {error}")
    _loaded[entrypoint] = function
    module = getattr(function, "__module__", None)
    return LoadedFunction(
        is_asynchronous=inspect.iscoroutinefunction(function), module=module if isinstance(module, str) else None
    )


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
    main(socket.socket(fileno=int(sys.argv[1])))
