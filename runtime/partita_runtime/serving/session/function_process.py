"""A process that runs a session's CPU functions: calls come over a socket, a few at a time, and are answered in order.

    python -m partita_runtime.serving.session.function_process FILE_DESCRIPTOR ENTRYPOINT...

Messages in both directions are a length and a pickle. They never come from a network: the socket is one end of a pair
that the frontend made. First the process says, for each entrypoint, what keeps it from being loaded ("" if nothing).
From then on it takes lists of calls, and answers each call with what the function gave, or with what went wrong.
"""

import importlib
import os
import pickle
import socket
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, BinaryIO, Final, cast

import numpy as np

from partita_runtime.models.policy import policy_here

Call = tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Sequence[Any]]]
"""Entrypoint, its kwargs, and what it works on: the request's tensors and the upstream answers."""
Outcome = tuple[Mapping[str, Any] | None, str]
"""What a call answered, as arrays; or None, and what went wrong as text, since not all exceptions can be pickled."""

LENGTH: Final = struct.Struct("<Q")


def frame(message: object) -> bytes:
    """A message as it is sent. Raises whatever pickle does with what cannot be sent."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(content)) + content


def main(descriptor: str, entrypoints: Sequence[str]) -> None:
    """Run calls until the frontend closes its end, and then end at once, whatever is being run."""
    stream = cast(BinaryIO, socket.socket(fileno=int(descriptor)).makefile("rwb"))
    _send(stream, frame([_load(entrypoint) for entrypoint in entrypoints]))
    calls: SimpleQueue[Call] = SimpleQueue()
    threading.Thread(target=_receive, args=(stream, calls), daemon=True).start()
    while True:
        call = calls.get()
        outcome = _outcome(call)
        try:
            answer = frame(outcome)
        except Exception as error:
            answer = frame((None, f"its answer cannot be sent: {type(error).__name__}: {error}"))
        _send(stream, answer)


def _send(stream: BinaryIO, message: bytes) -> None:
    stream.write(message)
    stream.flush()


def _receive(stream: BinaryIO, calls: SimpleQueue[Call]) -> None:
    while prefix := stream.read(LENGTH.size):
        for call in pickle.loads(stream.read(LENGTH.unpack(prefix)[0])):
            calls.put(call)
    os._exit(0)


_loaded: dict[str, Callable[..., Any]] = {}


def _load(entrypoint: str) -> str:
    """What keeps the function from being loaded; empty if it is."""
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


def _outcome(call: Call) -> Outcome:
    entrypoint, kwargs, request, upstream = call
    try:
        answer = _loaded[entrypoint](request, upstream, **kwargs)
        if not isinstance(answer, Mapping):
            return None, f"it must return a mapping of arrays, not {type(answer).__name__}"
        return {name: np.asarray(value) for name, value in answer.items()}, ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
