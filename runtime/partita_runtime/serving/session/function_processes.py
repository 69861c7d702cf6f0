"""Starts the processes that have loaded a session's functions, and exchanges messages with them."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final, Self

from pydantic import ValidationError

from partita_runtime.function_server.frames import PREFIX, Array, Chunk, FrameError, decode, lengths
from partita_runtime.function_server.messages import (
    HUNG_SECONDS,
    CallOutcome,
    LoadedFunction,
    LoadRequest,
    NumberedCall,
    calls_frame,
    load_frame,
    to_loaded,
    to_outcome,
)
from partita_runtime.models.policy import ModelPolicy, policy_here
from partita_runtime.serving.deploy.function_containers import VARIABLE, function_container, function_socket

_START_SECONDS: Final = 60.0
_CONNECT_AGAIN_SECONDS: Final = 0.2


class FunctionError(Exception):
    """A function cannot be loaded, raised an exception, ended its process or hangs; the message says which."""


class FunctionRefusalError(FunctionError):
    """A function refuses the request because of what the client has sent; the message is for the client."""


class FunctionProcess:
    """A process that has loaded the functions (`function_server.process`), and the socket to it."""

    def __init__(
        self,
        process: subprocess.Popen[bytes] | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        """None if it is in another container, where it ends with its connection."""
        self._reader = reader
        self._writer = writer
        self.asynchronous: frozenset[str] = frozenset()
        """Entrypoints of functions with `async def`."""
        self.end = "its process ended before it answered"
        """Why calls fail if the process ends."""

    @classmethod
    async def start(cls, entrypoints: Sequence[str], is_concurrent: bool = False, image: str | None = None) -> Self:
        """Start a process, which runs calls one after the other, or asynchronous functions at the same time.

        It is in the container of the `image`, by default beside this one. Raises FunctionError, with no process left,
        if a function may not or cannot be loaded there.
        """
        policy = _policy(entrypoints)
        names = ", ".join(entrypoints)
        where = names if image is None else f"{names}: container {function_container(image)} of image {image}"
        try:
            async with asyncio.timeout(_START_SECONDS):
                started = await (cls._beside() if image is None else cls._in_container(image))
                try:
                    await started._load(entrypoints, is_concurrent, policy)
                except BaseException:
                    started.kill()
                    raise
        except TimeoutError:
            raise FunctionError(f"{where}: not loaded within {_START_SECONDS:.0f} s") from None
        return started

    @classmethod
    async def _beside(cls) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            return cls(_spawned(theirs), reader, writer)

    @classmethod
    async def _in_container(cls, image: str) -> Self:
        """Connect to the container of the image, which makes the process. Waits until the container runs."""
        directory = os.environ.get(VARIABLE)
        if directory is None:
            raise FunctionError(f"there is no container of image {image} beside this frontend; use engine KubeRay")
        while True:
            try:
                return cls(None, *await asyncio.open_unix_connection(function_socket(directory, image)))
            except OSError:
                await asyncio.sleep(_CONNECT_AGAIN_SECONDS)

    async def _load(self, entrypoints: Sequence[str], is_concurrent: bool, policy: ModelPolicy) -> None:
        self._write(load_frame(LoadRequest(entrypoints, is_concurrent)))
        try:
            found = to_loaded((await self._frame())[0], entrypoints)
        except (EOFError, FrameError):
            raise FunctionError(f"{', '.join(entrypoints)}: the process ended while it loaded the functions") from None
        for entrypoint, loaded in zip(entrypoints, found, strict=True):
            if problem := loaded.problem or _origin_problem(entrypoint, loaded, policy):
                raise FunctionError(f"{entrypoint}: {problem}")
        pairs = zip(entrypoints, found, strict=True)
        self.asynchronous = frozenset(entrypoint for entrypoint, loaded in pairs if loaded.is_asynchronous)

    def send(self, calls: Sequence[NumberedCall]) -> None:
        """Send calls. Does nothing if the process has ended; `receive` raises then."""
        self._write(calls_frame(calls))

    async def receive(self) -> tuple[int, CallOutcome]:
        """The next outcome, with the number of its call. Raises EOFError if the process has ended."""
        try:
            return to_outcome(*await self._frame())
        except FrameError as error:
            self.end = f"its process sent {error}"
            raise EOFError from None

    async def _frame(self) -> tuple[Any, list[Array]]:
        """Raises EOFError and FrameError."""
        try:
            header, body = lengths(await self._reader.readexactly(PREFIX.size))
            return decode(await self._reader.readexactly(header), await self._reader.readexactly(body))
        except (asyncio.IncompleteReadError, OSError):
            raise EOFError from None

    def _write(self, chunks: Sequence[Chunk]) -> None:
        self._writer.writelines(chunks)

    def give_up(self) -> None:
        """End the process because it does not answer."""
        self.end = f"it did not answer within {HUNG_SECONDS:.0f} s"
        self._end()

    def kill(self) -> None:
        """End the process if it runs."""
        self._end()
        if self._process is not None:
            self._process.wait()

    def _end(self) -> None:
        self._writer.transport.abort()  # also if it does not read what was sent
        if self._process is not None:
            self._process.kill()


def _policy(entrypoints: Sequence[str]) -> ModelPolicy:
    """What may be loaded. Raises FunctionError if it does not allow an entrypoint."""
    try:
        policy = policy_here()
    except ValidationError as error:
        names = ", ".join(entrypoints)
        raise FunctionError(f"{names}: may not be loaded: the policy of the platform is invalid: {error}") from None
    for entrypoint in entrypoints:
        if problem := policy.entrypoint_problem(entrypoint):
            raise FunctionError(f"{entrypoint}: may not be loaded: {problem}")
    return policy


def _origin_problem(entrypoint: str, loaded: LoadedFunction, policy: ModelPolicy) -> str:
    problem = policy.origin_problem(entrypoint, loaded.module)
    return f"may not be called: {problem}" if problem else ""


def _spawned(theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "partita_runtime.function_server.process", str(theirs.fileno())],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        pass_fds=[theirs.fileno()],
    )
