"""Runs the session's CPU functions in processes of their own, so that neither their work nor their crash is ours."""

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

from partita_api.module import FunctionSource
from partita_runtime.execution.executor import Array
from partita_runtime.serving.session.function_process import LENGTH, Outcome, frame

logger = logging.getLogger(__name__)

HUNG_SECONDS: Final = 20.0
"""A call that takes longer is given up, and its process replaced."""
MOST_CALLS: Final = 8
"""Calls that a process is given at once, so that it need not wait for a busy event loop between them."""
_START_SECONDS: Final = 60.0
_START_AGAIN_SECONDS: Final = 1.0


class FunctionError(Exception):
    """A function cannot be loaded, raised an exception, ended its process, or hangs; the message says which."""


class FunctionInput(NamedTuple):
    """What one call works on."""

    request: Mapping[str, Array]
    """The sample's tensors by name, without a batch dimension."""
    upstream: Mapping[str, Sequence[Array]]
    """The upstream answers by module."""


class Caller(Protocol):
    """Whose calls are run; called on the event loop."""

    def in_vain(self, sub_id: int) -> bool:
        """Whether a call that waits need not be run any more: nobody wants its answer, or it would come too late."""

    def function_input(self, sub_id: int) -> FunctionInput:
        """What a call works on, now that its turn has come. Raises FunctionError if it cannot be made."""

    def function_skipped(self, sub_id: int) -> None:
        """A call was in vain, and is not run."""

    def function_answered(self, sub_id: int, answer: Mapping[str, Any]) -> None:
        """What a call gave."""

    def function_failed(self, sub_id: int, error: FunctionError) -> None:
        """A call has no answer."""


class _Call(NamedTuple):
    sub_id: int
    function: FunctionSource


class FunctionPool:
    """A few processes that have the functions loaded, and the calls that wait for them, in order of arrival."""

    def __init__(self, functions: Sequence[FunctionSource], processes: int, caller: Caller) -> None:
        self._entrypoints = tuple(dict.fromkeys(function.entrypoint for function in functions))
        self._size = processes if self._entrypoints else 0
        self._caller = caller
        self._waiting: deque[_Call] = deque()
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
        """Call the function once a process is free; the caller is told what comes of it."""
        self._waiting.append(_Call(sub_id, function))
        self._wake()

    def tick(self) -> None:
        """To be called a few times a second: forgets calls that have become in vain, though no process is free."""
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            if self._caller.in_vain(call.sub_id):
                self._caller.function_skipped(call.sub_id)
            else:
                self._waiting.append(call)

    def close(self) -> None:
        """End the processes, whatever they do."""
        for slot in self._slots:
            slot.close()
        self._slots.clear()

    # What the slots say.

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """What every process loads."""
        return self._entrypoints

    def freed(self) -> None:
        """A process has nothing to do."""
        if self._waiting:
            self._feed()

    def answered(self, call: _Call, outcome: Outcome) -> None:
        """A process has answered."""
        answer, problem = outcome
        if answer is None:
            self.failed(call, problem)
        else:
            self._caller.function_answered(call.sub_id, answer)

    def failed(self, call: _Call, problem: str) -> None:
        """A call will not be answered."""
        self._caller.function_failed(call.sub_id, FunctionError(f"{call.function.entrypoint}: {problem}"))

    def give_back(self, calls: Sequence[_Call]) -> None:
        """These calls were not begun by the process that had them; they are next again."""
        self._waiting.extendleft(reversed(calls))
        self._wake()

    def _wake(self) -> None:
        """Hand out calls once for all that happens in this turn of the event loop."""
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

    def _next(self, most: int) -> list[tuple[_Call, FunctionInput]]:
        group: list[tuple[_Call, FunctionInput]] = []
        while self._waiting and len(group) < most:
            call = self._waiting.popleft()
            if self._caller.in_vain(call.sub_id):
                self._caller.function_skipped(call.sub_id)
                continue
            try:
                group.append((call, self._caller.function_input(call.sub_id)))
            except FunctionError as error:
                self._caller.function_failed(call.sub_id, error)
        return group


class _Slot:
    """One place for a process: there is always one, or one on its way."""

    def __init__(self, pool: FunctionPool) -> None:
        self._pool = pool
        self._process: _Process | None = None
        self._running: deque[_Call] = deque()
        """What the process was given and has not answered; it works on the first."""
        self._hangs: asyncio.TimerHandle | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Whether the first process came up."""
        self._serving = asyncio.create_task(self._serve())

    @property
    def idle(self) -> bool:
        """Whether it can be given calls."""
        return self._process is not None and not self._running

    def run(self, group: Sequence[tuple[_Call, FunctionInput]]) -> None:
        """Give these calls to the process, which must be idle."""
        assert self._process is not None
        self._running.extend(call for call, _ in group)
        self._process.send([(call.function.entrypoint, call.function.kwargs, *given) for call, given in group])
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

    def _answered(self, outcome: Outcome) -> None:
        call = self._running.popleft()
        self._watch()
        if not self._running:
            self._pool.freed()  # the process goes on while its answer is being dealt with
        asyncio.get_running_loop().call_soon(self._pool.answered, call, outcome)

    def _lost(self, process: "_Process") -> None:
        """The process has ended: the call that it worked on fails, those behind it are run elsewhere."""
        logger.warning("a process for functions ended, and is replaced")
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
    """A process with the functions loaded (`function_process`), and our end of the way to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self.end = "its process ended before it answered"
        """Why the process ends before it answers, if it does."""

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
            raise FunctionError(f"{', '.join(entrypoints)}: the process that loads this ended") from None
        for entrypoint, problem in zip(entrypoints, problems, strict=True):
            if problem:
                raise FunctionError(f"{entrypoint}: {problem}")

    def send(self, message: object) -> None:
        """Send a message; nothing happens if the process has ended, which `receive` says."""
        self._writer.write(frame(message))

    async def receive(self) -> Any:
        """The next message. Raises EOFError if the process has ended."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise EOFError from None

    def give_up(self) -> None:
        """End the process, since it does not answer."""
        self.end = f"it did not answer within {HUNG_SECONDS:.0f} s"
        self._process.kill()

    def kill(self) -> None:
        """End the process, if it has not ended."""
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
