"""Runs the session's CPU functions in separate processes: their work and their crashes do not affect the frontend."""

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self

from partita_api.session.module import FunctionSource
from partita_runtime.execution.executor import Array
from partita_runtime.serving.session.function_messages import LENGTH, CallOutcome, FunctionCall, Rows, frame

logger = logging.getLogger(__name__)

HUNG_SECONDS: Final = 20.0
"""A call that takes longer fails, and its process is replaced."""
MOST_CALLS: Final = 8
"""Most calls that a process gets at once: it does not wait for a busy event loop between them."""
_START_SECONDS: Final = 60.0
_START_AGAIN_SECONDS: Final = 1.0


class FunctionError(Exception):
    """A function cannot be loaded, raised an exception, ended its process or hangs; the message says which."""


class FunctionRefusalError(FunctionError):
    """A function refuses the request because of what the client has sent; the message is for the client."""


class FunctionInput(NamedTuple):
    """The input of one call."""

    request: Mapping[str, Array]
    """The sample's tensors by name, without a batch dimension."""
    upstream: Mapping[str, Sequence[Rows]]
    """The upstream answers by module."""


class Caller(Protocol):
    """The owner of the calls; called on the event loop."""

    def is_unneeded(self, sub_id: int) -> bool:
        """Whether a waiting call need not run: its request has ended, or its answer would be too late."""

    def function_input(self, sub_id: int) -> FunctionInput:
        """The input of a call that is about to run. Raises FunctionError if it cannot be made."""

    def skipped(self, sub_id: int) -> None:
        """A call was not needed any more and does not run."""

    def function_answered(self, sub_id: int, answer: Mapping[str, Any]) -> None:
        """The answer of a call."""

    def function_failed(self, sub_id: int, error: FunctionError) -> None:
        """A call has failed."""


class _QueuedCall(NamedTuple):
    sub_id: int
    function: FunctionSource


class FunctionPool:
    """A few processes that have loaded the functions, and a queue of calls, in order of arrival."""

    def __init__(self, functions: Sequence[FunctionSource], processes: int, caller: Caller) -> None:
        self._entrypoints = tuple(dict.fromkeys(function.entrypoint for function in functions))
        self._size = processes if self._entrypoints else 0
        self._caller = caller
        self._waiting: deque[_QueuedCall] = deque()
        self._slots: list[_Slot] = []
        self._feeding = False

    async def prepare(self) -> None:
        """Start all processes and load the functions. Raises FunctionError for one that cannot be loaded."""
        self.close()
        self._slots = [_Slot(self) for _ in range(self._size)]
        try:
            await asyncio.gather(*(slot.started for slot in self._slots))
        except FunctionError:
            self.close()
            raise

    def call(self, sub_id: int, function: FunctionSource) -> None:
        """Call the function once a process is free; the caller receives the result."""
        self._waiting.append(_QueuedCall(sub_id, function))
        self._wake()

    def tick(self) -> None:
        """To be called a few times a second: skips queued calls that are not needed any more."""
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if self._caller.is_unneeded(call.sub_id):
                self._caller.skipped(call.sub_id)
            else:
                self._waiting.append(call)

    def close(self) -> None:
        """End the processes at once."""
        for slot in self._slots:
            slot.close()
        self._slots.clear()

    # Called by the slots.

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The functions that every process loads."""
        return self._entrypoints

    def freed(self) -> None:
        """A process has nothing to do."""
        if self._waiting:
            self._feed()

    def answered(self, call: _QueuedCall, outcome: CallOutcome) -> None:
        """A process has answered."""
        if outcome.is_refusal:
            self._caller.function_failed(call.sub_id, FunctionRefusalError(outcome.problem))
        elif outcome.answer is None:
            self.failed(call, outcome.problem)
        else:
            self._caller.function_answered(call.sub_id, outcome.answer)

    def failed(self, call: _QueuedCall, problem: str) -> None:
        """A call has failed."""
        self._caller.function_failed(call.sub_id, FunctionError(f"{call.function.entrypoint}: {problem}"))

    def give_back(self, calls: Sequence[_QueuedCall]) -> None:
        """Queue calls again, at the front, that their process had not begun."""
        self._waiting.extendleft(reversed(calls))
        self._wake()

    def _wake(self) -> None:
        """Hand out calls at the end of this turn of the event loop, once for all of its events."""
        if not self._feeding:
            self._feeding = True
            asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        self._feeding = False
        idle = [slot for slot in self._slots if slot.idle]
        for taken, slot in enumerate(idle):
            share = -(-len(self._waiting) // (len(idle) - taken))
            group = self._next(min(MOST_CALLS, share))
            if group:
                slot.run(group)

    def _next(self, most: int) -> list[tuple[_QueuedCall, FunctionInput]]:
        group: list[tuple[_QueuedCall, FunctionInput]] = []
        while self._waiting and len(group) < most:
            call = self._waiting.popleft()
            if self._caller.is_unneeded(call.sub_id):
                self._caller.skipped(call.sub_id)
                continue
            try:
                group.append((call, self._caller.function_input(call.sub_id)))
            except FunctionError as error:
                self._caller.function_failed(call.sub_id, error)
        return group


class _Slot:
    """Keeps one process running, and replaces it when it ends."""

    def __init__(self, pool: FunctionPool) -> None:
        self._pool = pool
        self._process: _Process | None = None
        self._running: deque[_QueuedCall] = deque()
        """Calls that the process has not answered; it runs the first of them."""
        self._hangs: asyncio.TimerHandle | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the first process has started; failed if it could not."""
        self._serving = asyncio.create_task(self._serve())

    @property
    def idle(self) -> bool:
        """Whether it can take calls."""
        return self._process is not None and not self._running

    def run(self, group: Sequence[tuple[_QueuedCall, FunctionInput]]) -> None:
        """Give these calls to the process, which must be idle."""
        assert self._process is not None
        self._running.extend(call for call, _ in group)
        calls = [FunctionCall(call.function.entrypoint, call.function.kwargs, *given) for call, given in group]
        self._process.send(calls)
        self._watch()

    def close(self) -> None:
        """End the process."""
        self._serving.cancel()
        self._end()

    async def _serve(self) -> None:
        while True:
            try:
                self._process = process = await _Process.start(self._pool.entrypoints)
            except FunctionError as error:
                if not self.started.done():
                    self.started.set_exception(error)
                    return
                logger.warning("%s", error)
                await asyncio.sleep(_START_AGAIN_SECONDS)
                continue
            if not self.started.done():
                self.started.set_result(None)
            self._pool.freed()
            try:
                while True:
                    self._answered(await process.receive())
            except EOFError:
                self._lost(process)

    def _answered(self, outcome: CallOutcome) -> None:
        call = self._running.popleft()
        self._watch()
        if not self._running:
            self._pool.freed()  # the process gets new calls while its answer is handled
        asyncio.get_running_loop().call_soon(self._pool.answered, call, outcome)

    def _lost(self, process: "_Process") -> None:
        """The process has ended: the call that it ran fails, the others are queued again."""
        logger.warning("a function process has ended and is replaced")
        self._end()
        if self._running:
            self._pool.failed(self._running.popleft(), process.end)
            self._pool.give_back(self._running)
            self._running = deque()

    def _watch(self) -> None:
        if self._hangs is not None:
            self._hangs.cancel()
            self._hangs = None
        if self._running and self._process is not None:
            self._hangs = asyncio.get_running_loop().call_later(HUNG_SECONDS, self._process.give_up)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._watch()


class _Process:
    """A process that has loaded the functions (`function_process`), and the socket to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.end = "its process ended before it answered"
        """Why calls fail if the process ends."""

    @classmethod
    async def start(cls, entrypoints: Sequence[str]) -> Self:
        """Start a process. Raises FunctionError, with no process left, if a function cannot be loaded there."""
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours)
            process = _spawned(theirs, entrypoints)
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
            problems: list[str] = await self.receive()
        except EOFError:
            raise FunctionError(f"{', '.join(entrypoints)}: the process ended while it loaded the functions") from None
        for entrypoint, problem in zip(entrypoints, problems, strict=True):
            if problem:
                raise FunctionError(f"{entrypoint}: {problem}")

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


def _spawned(theirs: socket.socket, entrypoints: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "partita_runtime.serving.session.function_process", str(theirs.fileno()), *entrypoints],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        pass_fds=[theirs.fileno()],
    )
