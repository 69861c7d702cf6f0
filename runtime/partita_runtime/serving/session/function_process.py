"""A process that runs a session's CPU functions: it receives calls over a socket and answers them in order.

    python -m partita_runtime.serving.session.function_process FILE_DESCRIPTOR ENTRYPOINT...

First it sends, for each entrypoint, why it cannot be loaded ("" if it can). Then it receives lists of FunctionCall and
sends a CallOutcome for each call (`function_messages`).
"""

import importlib
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, BinaryIO, cast

from partita_runtime.functions import RequestRefusedError
from partita_runtime.models.policy import policy_here
from partita_runtime.serving.session.function_messages import LENGTH, CallOutcome, FunctionCall, answer_arrays, frame


def main(descriptor: str, entrypoints: Sequence[str]) -> None:
    """Run calls until the frontend closes its end of the socket, and then end at once."""
    stream = cast(BinaryIO, socket.socket(fileno=int(descriptor)).makefile("rwb"))
    _send(stream, frame([_load(entrypoint) for entrypoint in entrypoints]))
    calls: SimpleQueue[FunctionCall] = SimpleQueue()
    threading.Thread(target=_receive, args=(stream, calls), daemon=True).start()
    while True:
        call = calls.get()
        outcome = _outcome(call)
        try:
            answer = frame(outcome)
        except Exception as error:
            answer = frame(CallOutcome(None, f"its answer cannot be sent: {type(error).__name__}: {error}"))
        _send(stream, answer)


def _send(stream: BinaryIO, message: bytes) -> None:
    stream.write(message)
    stream.flush()


def _receive(stream: BinaryIO, calls: SimpleQueue[FunctionCall]) -> None:
    while prefix := stream.read(LENGTH.size):
        for call in pickle.loads(stream.read(LENGTH.unpack(prefix)[0])):
            calls.put(call)
    os._exit(0)


_loaded: dict[str, Callable[..., Any]] = {}


def _load(entrypoint: str) -> str:
    """Load a function; why it cannot be loaded, or ""."""
    module, _, name = entrypoint.partition(":")
    try:
        policy = policy_here()
        if problem := policy.entrypoint_problem(entrypoint):
            return f"may not be loaded: {problem}"
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        return f"cannot be loaded: {type(error).__name__}: {error}"
    if problem := policy.origin_problem(entrypoint, function):
        return f"may not be called: {problem}"
    _loaded[entrypoint] = function
    return ""


def _outcome(call: FunctionCall) -> CallOutcome:
    try:
        answer = _loaded[call.entrypoint](call.request, call.upstream, **call.kwargs)
        if not isinstance(answer, Mapping):
            return CallOutcome(None, f"it must return a mapping of arrays, not {type(answer).__name__}")
        return CallOutcome(answer_arrays(answer))
    except RequestRefusedError as error:
        return CallOutcome(None, str(error), is_refusal=True)
    except Exception as error:
        return CallOutcome(None, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
