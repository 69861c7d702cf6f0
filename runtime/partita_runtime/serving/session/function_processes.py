"""Starts the processes that have loaded a session's functions, and exchanges messages with them."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

from partita_runtime.serving.session.function_messages import (
    CONCURRENT,
    HUNG_SECONDS,
    IN_ORDER,
    LENGTH,
    LoadedFunction,
    frame,
)

_START_SECONDS: Final = 60.0


class FunctionError(Exception):
    """A function cannot be loaded, raised an exception, ended its process or hangs; the message says which."""


class FunctionRefusalError(FunctionError):
    """A function refuses the request because of what the client has sent; the message is for the client."""


class FunctionProcess:
    """A process that has loaded the functions (`function_process`), and the socket to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.asynchronous: frozenset[str] = frozenset()
        """Entrypoints of functions with `async def`."""
        self.end = "its process ended before it answered"
        """Why calls fail if the process ends."""

    @classmethod
    async def start(cls, entrypoints: Sequence[str], is_concurrent: bool = False) -> Self:
        """Start a process, which runs calls one after the other, or asynchronous functions at the same time.

        Raises FunctionError, with no process left, if a function cannot be loaded there.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            process = _spawned(theirs, CONCURRENT if is_concurrent else IN_ORDER, entrypoints)
        started = cls(process, reader, writer)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await started._check(entrypoints)
        except TimeoutError:
            started.kill()
            raise FunctionError(f"{', '.join(entrypoints)}: not loaded within {_START_SECONDS:.0f} s") from None
        except BaseException:
            started.kill()
            raise
        return started

    async def _check(self, entrypoints: Sequence[str]) -> None:
        try:
            found: list[LoadedFunction] = await self.receive()
        except EOFError:
            raise FunctionError(f"{', '.join(entrypoints)}: the process ended while it loaded the functions") from None
        for entrypoint, loaded in zip(entrypoints, found, strict=True):
            if loaded.problem:
                raise FunctionError(f"{entrypoint}: {loaded.problem}")
        pairs = zip(entrypoints, found, strict=True)
        self.asynchronous = frozenset(entrypoint for entrypoint, loaded in pairs if loaded.is_asynchronous)

    def send(self, message: object) -> None:
        """Send a message. Does nothing if the process has ended; `receive` raises then."""
        self._writer.write(frame(message))

    async def receive(self) -> Any:
        """The next message. Raises EOFError if the process has ended."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise EOFError from None

    def give_up(self) -> None:
        """End the process because it does not answer."""
        self.end = f"it did not answer within {HUNG_SECONDS:.0f} s"
        self._process.kill()

    def kill(self) -> None:
        """End the process if it runs."""
        self._writer.close()
        self._process.kill()
        self._process.wait()


def _spawned(theirs: socket.socket, mode: str, entrypoints: Sequence[str]) -> subprocess.Popen[bytes]:
    program = "partita_runtime.serving.session.function_process"
    return subprocess.Popen(
        [sys.executable, "-m", program, str(theirs.fileno()), mode, *entrypoints],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        pass_fds=[theirs.fileno()],
    )
