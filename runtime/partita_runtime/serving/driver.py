"""Drives the scheduling core live: requests in, batches out to the replicas of one plan, their reports back in.

One driver serves one epoch. With a new epoch another one takes the new requests, and this one finishes what it has:
no request ever sees two plans, or two versions of the session.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from partita_runtime.execution.executor import Array
from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.scheduling.events import Dispatch, Drop, DropReason, StageRef
from partita_runtime.scheduling.requests import RequestGraph, SubRequest
from partita_runtime.scheduling.signals import CoreSignals
from partita_runtime.scheduling.trace import RecordedCore
from partita_runtime.serving.dataflow import DataflowError, Sample, answer_of
from partita_runtime.serving.delays import Margins
from partita_runtime.serving.directory import Announcement
from partita_runtime.serving.epoch import Epoch
from partita_runtime.serving.functions import FunctionError, FunctionPool
from partita_runtime.serving.interface import Interface
from partita_runtime.serving.links import Links
from partita_runtime.serving.oip import InferRequest, RequestError
from partita_runtime.serving.signals import Meter, Outcome
from partita_runtime.serving.wire import Answer, Batch, Failed, Hop, Report, WireError, tensor_header

logger = logging.getLogger(__name__)

TIMER_MICROS: Final = 1_000
"""What the event loop's timers are exact to."""
OVERDUE_MICROS: Final = 1_000_000
"""A batch this long, and twice the SLO, after its planned end counts as lost."""
RETRY_AFTER_SECONDS: Final = 1

_DROPS: Final[Mapping[DropReason, tuple[Outcome, int, str]]] = {
    DropReason.TOO_LATE: (Outcome.TOO_LATE, 504, "there is not enough time left to answer within the deadline"),
    DropReason.OVERLOAD: (Outcome.OVERLOAD, 503, "there are more requests than can be answered in time"),
    DropReason.NO_WORKERS: (Outcome.NO_WORKERS, 503, "no replicas of module {module!r} are ready"),
    DropReason.WORKER_LOST: (Outcome.FAILED, 503, "a replica of module {module!r} was lost, with no time to try again"),
    DropReason.EXECUTION_FAILED: (Outcome.FAILED, 500, "module {module!r} failed: {detail}"),
}


class UnservedError(RequestError):
    """An accepted request that is not answered, and how that is counted."""

    def __init__(self, outcome: Outcome, status: int, message: str) -> None:
        super().__init__(status, message, RETRY_AFTER_SECONDS if status == 503 else None)
        self.outcome = outcome


def now_micros() -> int:
    """The clock of all deadlines; the event loop's, in microseconds."""
    return time.monotonic_ns() // 1000


@dataclass(eq=False)
class _Call:
    """A request in progress: one graph of sub-requests for each of its samples."""

    samples: dict[int, Sample]
    answer: asyncio.Future[None]
    results: dict[int, tuple[SubRequest, ...]] = field(default_factory=dict)
    """By finished sample."""
    answered: int = 0
    """When the last sample was finished."""

    def fail(self, error: UnservedError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


@dataclass
class _Flight:
    """A batch that has been sent."""

    dispatch: Dispatch
    due: int
    """When it should have been sent; timers are late at times."""
    stages_done: int = 0


class Driver:
    """Serves one epoch; use it on one event loop."""

    def __init__(self, epoch: Epoch, functions: FunctionPool, meter: Meter, traces: Path | None = None) -> None:
        """`traces` is a directory for a trace of everything that the core is told and decides."""
        self.epoch = epoch
        self.interface = Interface(epoch.session_key.partition("/")[2], epoch.session, epoch.outputs)
        self.id = uuid.uuid4().hex
        self.links = Links(self.id, self)
        self._functions = functions
        self._meter = meter
        self._trace = None if traces is None else (traces / f"{epoch.plan.name}-{self.id}.jsonl").open("w")
        self._core = self._make_core()
        self._graph = RequestGraph(epoch.session, epoch.plan)
        self._margins = Margins(epoch.session.slo.latency_ms * 1000)
        self._sending_micros = self._answering_micros = 0
        """What is kept free now for a batch's way, whatever its size, and for the way out."""
        self._workers: dict[str, StageRef] = {}
        self._leaving: set[str] = set()
        self._calls: dict[int, _Call] = {}
        self._next_sample = 0
        self._subs: dict[int, tuple[int, SubRequest]] = {}
        """Unanswered sub-requests, each with its sample."""
        self._flights: dict[int, _Flight] = {}
        self._function_calls: set[asyncio.Task[None]] = set()
        self._awake = False
        self._timer: asyncio.TimerHandle | None = None
        self._keep_margins(now_micros())

    # What a frontend asks.

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._calls

    def ready_replicas(self) -> dict[StageRef, int]:
        """Replicas that take batches, for every stage of the plan."""
        ready = {
            StageRef(module.name, pipeline.name, number): 0
            for module in self.epoch.plan.modules
            for pipeline in module.pipelines
            for number in range(len(pipeline.stages))
        }
        for worker, ref in self._workers.items():
            if worker not in self._leaving:
                ready[ref] += 1
        return ready

    def signals(self) -> CoreSignals:
        """The core's counters as they stand."""
        return self._core.signals(now_micros())

    def infer(self, request: InferRequest, arrived: int) -> Coroutine[None, None, dict[str, Array]]:
        """Take `request` in, which arrived at `arrived`; await what this gives for the tensors that answer it.

        Raises UnservedError, when awaited, if it will not be answered. Cancel it when the client leaves.
        """
        slo = self.epoch.session.slo.latency_ms * 1000
        deadline = arrived + (slo if request.timeout_micros is None else min(slo, request.timeout_micros))
        return self._answer(self._begin(request, deadline - self._answering_micros))

    async def _answer(self, call: _Call) -> dict[str, Array]:
        try:
            await call.answer
        finally:
            now = self._now()
            for sample_id in call.samples:
                self._abandon(sample_id, now)
        try:
            rows = [sample.sink_rows(call.results[sample_id]) for sample_id, sample in call.samples.items()]
            tensors = answer_of(self.interface, rows)
        except DataflowError as error:
            raise UnservedError(Outcome.FAILED, 500, str(error)) from None
        ended = now_micros()
        self._margins.answering.observe(1, ended - call.answered, ended)
        return tensors

    def tick(self) -> None:
        """To be called a few times a second: learns delays, and gives up on batches that nobody reports."""
        now = self._now()
        self._keep_margins(now)
        most = OVERDUE_MICROS + 2000 * self.epoch.session.slo.latency_ms
        for flight in [*self._flights.values()]:
            if now - flight.dispatch.finish > most:
                stuck = flight.dispatch.path[flight.stages_done]
                logger.warning("batch %d is overdue at replica %s", flight.dispatch.batch_id, stuck)
                self.links.close_one(stuck)
        self._wake()

    def close(self) -> None:
        """Leave the replicas."""
        self.links.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    # What the replicas say (links.LinkListener).

    def joined(self, replica: Announcement) -> None:
        """A replica takes batches."""
        self._workers[replica.replica] = replica.ref
        self._leaving.discard(replica.replica)
        self._core.worker_joined(replica.ref, replica.replica, replica.node, now_micros())
        self._wake()

    def draining(self, worker: str) -> None:
        """A replica takes nothing more; it is left once it has nothing more to answer."""
        self._leaving.add(worker)
        self._core.worker_draining(worker, now_micros())
        self._leave_drained(worker)
        self._wake()

    def lost(self, worker: str) -> None:
        """A replica is gone, and what it had with it."""
        self._workers.pop(worker, None)
        self._leaving.discard(worker)
        self._core.worker_lost(worker, now_micros())
        for batch_id, flight in [*self._flights.items()]:
            if worker in flight.dispatch.path[flight.stages_done :]:
                self._ended(batch_id)
        self._wake()

    def admit_answer(self, worker: str, answer: Answer) -> None:
        """Answers must be as many rows as the batch has; answers to batches that were given up are let through."""
        flight = self._flights.get(answer.batch_id)
        rows = {tensor.shape[:1] for tensor in answer.tensors}
        if flight is not None and rows != {(len(flight.dispatch.request_ids),)}:
            raise WireError(f"replica {worker} answered a batch of {len(flight.dispatch.request_ids)} with rows {rows}")

    def reported(self, worker: str, message: Report | Answer | Failed, tensors: list[Array]) -> None:
        """A stage has run a batch, or failed to."""
        flight = self._flights.get(message.batch_id)
        if flight is None or worker not in flight.dispatch.path:
            return
        now = self._now()
        if isinstance(message, Failed):
            self._core.failed(message.batch_id, now, message.reason)
            self._ended(message.batch_id)
        else:
            stage = flight.dispatch.path.index(worker)
            if stage == 0:
                elsewhere = now - flight.due - message.waited_micros - message.ran_micros
                self._margins.sending.observe(len(flight.dispatch.request_ids), elsewhere, now)
            if stage >= flight.stages_done:  # reports of two replicas may overtake each other
                self._core.completed(message.batch_id, stage, now, message.ran_micros)
                flight.stages_done = stage + 1
            if isinstance(message, Answer):
                self._ended(message.batch_id)
                for row, sub_id in enumerate(flight.dispatch.request_ids):
                    self._model_answered(sub_id, [tensor[row] for tensor in tensors], now)
        self._wake()

    # Requests and their sub-requests.

    def _begin(self, request: InferRequest, deadline: int) -> _Call:
        call = _Call({}, asyncio.get_running_loop().create_future())
        roots = {root.name: 1 for root in self.interface.roots}
        now = self._now()
        for row in range(request.samples):
            sample_id = self._next_sample
            self._next_sample += 1
            tensors = {name: array[row] for name, array in request.inputs.items()}
            call.samples[sample_id] = Sample(self.interface, tensors)
            self._calls[sample_id] = call
            self._run(sample_id, self._graph.start(sample_id, deadline, roots), now)
        self._wake()
        return call

    def _run(self, sample_id: int, spawned: Sequence[SubRequest], now: int) -> None:
        for sub in spawned:
            self._subs[sub.sub_id] = (sample_id, sub)
            if self.interface.modules[sub.module].model is not None:
                self._core.arrive(sub.sub_id, sub.module, sub.deadline, now)
            else:
                calling = asyncio.create_task(self._call_function(sample_id, sub))
                self._function_calls.add(calling)
                calling.add_done_callback(self._function_calls.discard)

    async def _call_function(self, sample_id: int, sub: SubRequest) -> None:
        function = self.interface.modules[sub.module].function
        call = self._calls.get(sample_id)
        if function is None or call is None:
            return
        sample = call.samples[sample_id]
        try:
            upstream = sample.function_upstream(sub)
            answer = await self._functions.call(function, sample.request, upstream, lambda: sub.sub_id in self._subs)
            if answer is None or sub.sub_id not in self._subs:
                return
            children = sample.function_answered(sub, answer)
        except (FunctionError, DataflowError) as error:
            failure = UnservedError(Outcome.FAILED, 500, f"module {sub.module!r} failed: {error}")
            self._fail(sub.sub_id, failure, self._now())
        else:
            self._answered(sub.sub_id, children, self._now())
        self._wake()

    def _model_answered(self, sub_id: int, outputs: list[Array], now: int) -> None:
        if sub_id not in self._subs:
            return
        sample_id, sub = self._subs[sub_id]
        try:
            children = self._calls[sample_id].samples[sample_id].model_answered(sub, outputs)
        except DataflowError as error:
            self._fail(sub_id, UnservedError(Outcome.FAILED, 500, str(error)), now)
        else:
            self._answered(sub_id, children, now)

    def _answered(self, sub_id: int, children: Mapping[str, int], now: int) -> None:
        sample_id, _ = self._subs.pop(sub_id)
        self._run(sample_id, self._graph.completed(sub_id, children), now)
        outcome = self._graph.finished(sample_id)
        if outcome is None:
            return
        call = self._calls.pop(sample_id)
        call.results[sample_id] = outcome.results
        self._meter.cut_off.update(call.samples[sample_id].cut_off)
        if len(call.results) == len(call.samples) and not call.answer.done():
            call.answered = now
            call.answer.set_result(None)

    def _fail(self, sub_id: int, error: UnservedError, now: int) -> None:
        if sub_id in self._subs:
            sample_id, _ = self._subs[sub_id]
            call = self._calls[sample_id]
            self._abandon(sample_id, now)
            call.fail(error)

    def _abandon(self, sample_id: int, now: int) -> None:
        if self._calls.pop(sample_id, None) is None:
            return
        for sub in self._graph.cancel(sample_id):
            del self._subs[sub.sub_id]
            self._core.cancel(sub.sub_id, now)

    # Batches.

    def _make_core(self) -> SchedulingCore:
        if self._trace is None:
            return SchedulingCore(self.epoch.plan)
        return RecordedCore(self.epoch.plan, self._record)

    def _record(self, line: str) -> None:
        if self._trace is not None:
            self._trace.write(line + "\n")

    def _keep_margins(self, now: int) -> None:
        self._sending_micros, per_sample = self._margins.sending.line(now)
        self._core.set_delays(self._sending_micros, per_sample)
        self._answering_micros, _ = self._margins.answering.line(now)

    def _now(self) -> int:
        """Now, to tell the core what happens; what it had to decide before comes first."""
        now = now_micros()
        wakeup = self._core.next_wakeup()
        if wakeup is not None and wakeup < now:
            self._decide(wakeup)
        return now

    def _wake(self) -> None:
        """Let the core decide, once for all that happens in this turn of the event loop."""
        if not self._awake:
            self._awake = True
            asyncio.get_running_loop().call_soon(self._wake_up, now_micros())

    def _wake_up(self, due: int) -> None:
        self._awake = False
        self._decide(due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakeup = self._core.next_wakeup()
        if wakeup is not None:
            wait = max(0, wakeup - TIMER_MICROS - now_micros()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait, self._wake_up, wakeup)

    def _decide(self, due: int) -> None:
        """Carry out what the core decides, which it should have been asked for at `due`.

        How late the event loop usually is, is part of a batch's way, which the core has allowed for. So it is told
        the moment that it waited for, not the later one, from which its batch would not be in time any more.
        """
        at = max(due, now_micros() - self._sending_micros)
        for action in self._core.advance(at):
            if isinstance(action, Drop):
                self._dropped(action, at)
            else:
                self._dispatch(action, at)

    def _dropped(self, drop: Drop, now: int) -> None:
        outcome, status, message = _DROPS[drop.reason]
        error = UnservedError(outcome, status, message.format(module=drop.module, detail=drop.detail))
        self._fail(drop.request_id, error, now)

    def _dispatch(self, dispatch: Dispatch, due: int) -> None:
        rows = []
        for sub_id in dispatch.request_ids:
            sample_id, sub = self._subs[sub_id]
            rows.append(self._calls[sample_id].samples[sample_id].model_input(sub))
        self._flights[dispatch.batch_id] = _Flight(dispatch, due)
        path: tuple[Hop, ...] = tuple(self.links.hop(worker) for worker in dispatch.path[1:])
        header = tensor_header((len(rows), *rows[0].shape), rows[0].dtype)
        batch = Batch(batch_id=dispatch.batch_id, frontend=self.id, path=path, tensors=(header,))
        try:
            self.links.send(dispatch.path[0], batch, rows)
        except WireError as error:
            self._core.failed(dispatch.batch_id, due, str(error))
            self._ended(dispatch.batch_id)
            self._wake()

    def _ended(self, batch_id: int) -> None:
        flight = self._flights.pop(batch_id)
        for worker in flight.dispatch.path:
            self._leave_drained(worker)

    def _leave_drained(self, worker: str) -> None:
        if worker in self._leaving and not any(worker in f.dispatch.path for f in self._flights.values()):
            self.links.close_one(worker)
