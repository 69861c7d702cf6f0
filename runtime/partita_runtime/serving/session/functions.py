"""Runs the session's CPU functions in separate processes: their work and their crashes do not affect the frontend."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from partita_api.session.module import FunctionSource
from partita_runtime.execution.executor import Array
from partita_runtime.function_server.messages import HUNG_SECONDS, CallOutcome, FunctionCall, Rows
from partita_runtime.serving.session.function_processes import FunctionError, FunctionProcess, FunctionRefusalError

logger = logging.getLogger(__name__)

MOST_CALLS: Final = 8
"""Most calls that a process gets at once: it does not wait for a busy event loop between them."""
MOST_CONCURRENT: Final = 256
"""Most calls of asynchronous functions that run at the same time; others wait."""
_GRACE_SECONDS: Final = 5.0
"""How much longer than HUNG_SECONDS an event loop may need to end a call that hangs."""
_START_AGAIN_SECONDS: Final = 1.0


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

    def __init__(
        self, functions: Sequence[FunctionSource], processes: int, caller: Caller, image: str | None = None
    ) -> None:
        """The processes are in the container of the `image`, by default beside this one."""
        self._entrypoints = tuple(dict.fromkeys(function.entrypoint for function in functions))
        self.image = image
        self._size = processes if self._entrypoints else 0
        self._caller = caller
        self._waiting: deque[_QueuedCall] = deque()
        self._slots: list[_Slot] = []
        self._asynchronous: frozenset[str] = frozenset()
        """Entrypoints of functions with `async def`."""
        self._event_loop: _EventLoopSlot | None = None
        """Runs them, if there are any."""
        self._feeding = False

    async def prepare(self) -> None:
        """Start all processes and load the functions. Raises FunctionError for one that cannot be loaded."""
        self.close()
        self._slots = [_Slot(self) for _ in range(self._size)]
        try:
            found = await asyncio.gather(*(slot.started for slot in self._slots))
            self._asynchronous = frozenset().union(*found)
            if self._asynchronous:
                self._event_loop = _EventLoopSlot(self, tuple(sorted(self._asynchronous)))
                await self._event_loop.started
        except FunctionError:
            self.close()
            raise

    def call(self, sub_id: int, function: FunctionSource) -> None:
        """Call the function once a process is free; the caller receives the result."""
        call = _QueuedCall(sub_id, function)
        if self._event_loop is not None and function.entrypoint in self._asynchronous:
            self._event_loop.call(call)
        else:
            self._waiting.append(call)
            self._wake()

    def cancel(self, sub_id: int) -> None:
        """The result is not needed any more: a call of an asynchronous function is cancelled."""
        if self._event_loop is not None:
            self._event_loop.cancel(sub_id)

    def tick(self) -> None:
        """To be called a few times a second: skips queued calls that are not needed any more."""
        if self._event_loop is not None:
            self._event_loop.tick()
        waiting, self._waiting = self._waiting, deque()
        self._waiting.extend(self.skip_unneeded(waiting))

    def close(self) -> None:
        """End the processes at once."""
        for slot in self._slots:
            slot.close()
        self._slots.clear()
        if self._event_loop is not None:
            self._event_loop.close()
            self._event_loop = None

    # Called by the slots.

    def input_of(self, call: _QueuedCall) -> FunctionCall | None:
        """A call with its input. None if it does not run: it is not needed any more, or has no input."""
        if self._caller.is_unneeded(call.sub_id):
            self._caller.skipped(call.sub_id)
            return None
        try:
            given = self._caller.function_input(call.sub_id)
        except FunctionError as error:
            self._caller.function_failed(call.sub_id, error)
            return None
        return FunctionCall(call.function.entrypoint, call.function.kwargs, *given)

    def skip_unneeded(self, waiting: deque[_QueuedCall]) -> deque[_QueuedCall]:
        """The waiting calls that are still needed; the others are skipped."""
        needed: deque[_QueuedCall] = deque()
        for call in waiting:
            if self._caller.is_unneeded(call.sub_id):
                self._caller.skipped(call.sub_id)
            else:
                needed.append(call)
        return needed

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

    def _next(self, most: int) -> list[tuple[_QueuedCall, FunctionCall]]:
        group: list[tuple[_QueuedCall, FunctionCall]] = []
        while self._waiting and len(group) < most:
            call = self._waiting.popleft()
            given = self.input_of(call)
            if given is not None:
                group.append((call, given))
        return group


class _KeptProcess:
    """Keeps one process running, and replaces it when it ends."""

    def __init__(self, pool: FunctionPool, entrypoints: Sequence[str], is_concurrent: bool) -> None:
        self._pool = pool
        self._entrypoints, self._is_concurrent = entrypoints, is_concurrent
        self._process: FunctionProcess | None = None
        self.started: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        """The asynchronous functions, once the first process has started; failed if it could not."""
        self._serving = asyncio.create_task(self._serve())

    def close(self) -> None:
        """End the process."""
        self._serving.cancel()
        self._end()

    async def _serve(self) -> None:
        while True:
            try:
                process = await FunctionProcess.start(self._entrypoints, self._is_concurrent, self._pool.image)
            except FunctionError as error:
                if not self.started.done():
                    self.started.set_exception(error)
                    return
                logger.warning("%s", error)
                await asyncio.sleep(_START_AGAIN_SECONDS)
                continue
            self._process = process
            if not self.started.done():
                self.started.set_result(process.asynchronous)
            self._ready()
            try:
                while True:
                    self._received(*await process.receive())
            except EOFError:
                self._end()
                self._lost(process)

    def _ready(self) -> None:
        """The process can take calls."""
        raise NotImplementedError

    def _received(self, number: int, outcome: CallOutcome) -> None:
        """The process has answered the call of this number."""
        raise NotImplementedError

    def _lost(self, process: FunctionProcess) -> None:
        """The process has ended."""
        raise NotImplementedError

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class _Slot(_KeptProcess):
    """A process that runs calls one after the other."""

    def __init__(self, pool: FunctionPool) -> None:
        super().__init__(pool, pool.entrypoints, is_concurrent=False)
        self._running: deque[_QueuedCall] = deque()
        """Calls that the process has not answered; it runs the first of them."""
        self._hangs: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether it can take calls."""
        return self._process is not None and not self._running

    def run(self, group: Sequence[tuple[_QueuedCall, FunctionCall]]) -> None:
        """Give these calls to the process, which must be idle."""
        assert self._process is not None
        self._running.extend(call for call, _ in group)
        self._process.send([(call.sub_id, given) for call, given in group])
        self._watch()

    def _ready(self) -> None:
        self._pool.freed()

    def _received(self, number: int, outcome: CallOutcome) -> None:
        call = self._running.popleft()
        self._watch()
        if not self._running:
            self._pool.freed()  # the process gets new calls while its answer is handled
        asyncio.get_running_loop().call_soon(self._pool.answered, call, outcome)

    def _lost(self, process: FunctionProcess) -> None:
        """The call that the process ran fails, the others are queued again."""
        logger.warning("a function process has ended and is replaced")
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
        super()._end()
        self._watch()


class _EventLoopSlot(_KeptProcess):
    """A process that runs many calls of asynchronous functions at the same time."""

    def __init__(self, pool: FunctionPool, entrypoints: tuple[str, ...]) -> None:
        super().__init__(pool, entrypoints, is_concurrent=True)
        self._waiting: deque[_QueuedCall] = deque()
        self._running: dict[int, tuple[_QueuedCall, float]] = {}
        """By sub-request, in the order in which they began, with the time by which the process must have ended them."""
        self._now = asyncio.get_running_loop().time

    def call(self, call: _QueuedCall) -> None:
        """Run a call as soon as there is a place."""
        self._waiting.append(call)
        # Not at once: within `EpochExecutor.begin`, no call may fail.
        asyncio.get_running_loop().call_soon(self._fill)

    def cancel(self, sub_id: int) -> None:
        """Cancel a call, if it runs; a waiting one is skipped."""
        if self._running.pop(sub_id, None) is not None:
            if self._process is not None:
                self._process.send([(sub_id, None)])
            asyncio.get_running_loop().call_soon(self._fill)

    def tick(self) -> None:
        """Skip waiting calls that are not needed any more, and end a process that does not answer."""
        waiting, self._waiting = self._waiting, deque()
        self._waiting.extend(self._pool.skip_unneeded(waiting))
        oldest = next(iter(self._running.values()), None)
        if oldest is not None and self._process is not None and oldest[1] < self._now():
            self._process.give_up()

    def _ready(self) -> None:
        self._fill()

    def _received(self, number: int, outcome: CallOutcome) -> None:
        if number in self._running:
            call, _ = self._running.pop(number)
            self._pool.answered(call, outcome)
        self._fill()

    def _fill(self) -> None:
        while self._process is not None and self._waiting and len(self._running) < MOST_CONCURRENT:
            call = self._waiting.popleft()
            given = self._pool.input_of(call)
            if given is not None:
                self._running[call.sub_id] = call, self._now() + HUNG_SECONDS + _GRACE_SECONDS
                self._process.send([(call.sub_id, given)])

    def _lost(self, process: FunctionProcess) -> None:
        """All calls that the process ran fail."""
        logger.warning("the process of asynchronous functions has ended and is replaced")
        running, self._running = self._running, {}
        for call, _ in running.values():
            self._pool.failed(call, process.end)
