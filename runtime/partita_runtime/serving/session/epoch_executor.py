"""The requests of one epoch on their way through the DAG: models by the dispatcher, functions in their processes.

One driver serves one epoch. With a new epoch another one takes the new requests, and this one finishes what it has:
no request ever sees two plans, or two versions of the session.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from partita_runtime.execution.executor import Array
from partita_runtime.scheduling.events import Drop, DropReason
from partita_runtime.scheduling.requests import RequestGraph, SubRequest
from partita_runtime.serving.central.coordinator_link import AWAY
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.dispatch.dispatcher import OVERDUE_MICROS, Dispatcher
from partita_runtime.serving.dispatch.scheduler import MakeScheduler, now_micros
from partita_runtime.serving.protocol.inference import InferRequest, UnservedError
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.dataflow import DataflowError, Sample, answer_of
from partita_runtime.serving.session.functions import FunctionError, FunctionInput, FunctionPool
from partita_runtime.serving.telemetry.signals import Meter, Outcome
from partita_runtime.serving.transport.transport import TCP, Carrier

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTrace, SubRequestTraces

logger = logging.getLogger(__name__)

_DROPS: Final[Mapping[DropReason, tuple[Outcome, int, str]]] = {
    DropReason.TOO_LATE: (Outcome.TOO_LATE, 504, "there is not enough time left to answer within the deadline"),
    DropReason.OVERLOAD: (Outcome.OVERLOAD, 503, "there are more requests than can be answered in time"),
    DropReason.NO_WORKERS: (Outcome.NO_WORKERS, 503, "no replicas of module {module!r} are ready"),
    DropReason.WORKER_LOST: (Outcome.FAILED, 503, "a replica of module {module!r} was lost, with no time to try again"),
    DropReason.EXECUTION_FAILED: (Outcome.FAILED, 500, "module {module!r} failed: {detail}"),
    DropReason.NO_COORDINATOR: (Outcome.FAILED, 503, AWAY),
}


class ClientLeftError(Exception):
    """The client closed the connection before its request was answered."""


class Asker(Protocol):
    """Who waits for a request's answer; called on the event loop, once, and never before `Driver.begin` is back."""

    def answered(self, tensors: dict[str, Array]) -> None:
        """The tensors that answer it."""

    def failed(self, error: Exception) -> None:
        """It will not be answered: an UnservedError."""


@dataclass(eq=False, slots=True)
class Call:
    """A request in progress: one graph of sub-requests for each of its samples."""

    asker: Asker | None
    """None once that is answered, or gone."""
    expires: int
    """When it is given up, after every other rescue."""
    trace: "RequestTrace | None"
    """Of a sampled request."""
    samples: dict[int, Sample] = field(default_factory=dict)
    results: dict[int, tuple[SubRequest, ...]] = field(default_factory=dict)
    """By finished sample."""


class Driver:
    """Serves one epoch; use it on one event loop."""

    def __init__(
        self,
        epoch: Epoch,
        meter: Meter,
        function_processes: int,
        make_scheduler: MakeScheduler,
        sampled: "SubRequestTraces | None" = None,
        carrier: Carrier = TCP,
    ) -> None:
        """`sampled` is told how the sub-requests of sampled requests go."""
        self.epoch = epoch
        self.interface = Interface(epoch.session_key.partition("/")[2], epoch.session, epoch.outputs)
        self.slo_micros = epoch.session.slo.latency_ms * 1000
        self._sampled = sampled
        self.dispatcher = Dispatcher(epoch.plan, self.slo_micros, self, make_scheduler, sampled, carrier)
        functions = [module.function for module in epoch.session.modules if module.function is not None]
        self._functions = FunctionPool(functions, function_processes, self)
        self._meter = meter
        self._graph = RequestGraph(epoch.session, epoch.plan)
        self._calls: dict[int, Call] = {}
        """By sample that is not finished."""
        self._next_sample = 0
        self._root_samples = {root.name: 1 for root in self.interface.roots}
        self._subs: dict[int, tuple[int, SubRequest]] = {}
        """Unanswered sub-requests, each with its sample."""

    async def prepare(self) -> None:
        """Load the session's functions. Raises FunctionError for one that cannot be loaded."""
        await self._functions.prepare()

    def close(self) -> None:
        """Leave the replicas and end the functions' processes."""
        self.dispatcher.close()
        self._functions.close()

    def tick(self) -> None:
        """To be called a few times a second."""
        self.dispatcher.tick()
        self._functions.tick()
        self._expire()

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._calls

    def begin(self, request: InferRequest, arrived: int, asker: Asker, trace: "RequestTrace | None" = None) -> Call:
        """Take `request` in, which arrived at `arrived`, for `asker` to be told what becomes of it."""
        now = self.dispatcher.now()
        time = self.slo_micros if request.timeout_micros is None else min(self.slo_micros, request.timeout_micros)
        deadline = arrived + time - self.dispatcher.answering_micros
        call = Call(asker, now + 4 * self.slo_micros + OVERDUE_MICROS, trace)
        for row in range(request.samples):
            sample_id = self._next_sample
            self._next_sample += 1
            tensors = {name: array[row] for name, array in request.inputs.items()}
            call.samples[sample_id] = Sample(self.interface, tensors)
            self._calls[sample_id] = call
            self._run(sample_id, self._graph.start(sample_id, deadline, self._root_samples), now)
        return call

    def cancel(self, call: Call) -> None:
        """Nobody waits for it any more."""
        call.asker = None
        self._abandon_all(call, self.dispatcher.now())

    # What the dispatcher says (dispatcher.SubRequests).

    def tensor(self, sub_id: int) -> Array | None:
        """What a sub-request works on; None if nobody waits for it any more."""
        if sub_id not in self._subs:
            return None
        sample_id, sub = self._subs[sub_id]
        return self._calls[sample_id].samples[sample_id].model_input(sub)

    def answered(self, sub_id: int, outputs: list[Array], now: int) -> None:
        """A model has answered."""
        if sub_id not in self._subs:
            return
        sample_id, sub = self._subs[sub_id]
        try:
            children = self._calls[sample_id].samples[sample_id].model_answered(sub, outputs)
        except DataflowError as error:
            self._fail(sub_id, UnservedError(Outcome.FAILED, 500, str(error)), now)
        else:
            self._go_on(sub_id, children, now)

    def dropped(self, drop: Drop, now: int) -> None:
        """The core gave a sub-request up, and so its request fails."""
        outcome, status, message = _DROPS[drop.reason]
        error = UnservedError(outcome, status, message.format(module=drop.module, detail=drop.detail))
        self._fail(drop.request_id, error, now)

    # What the functions' processes say (functions.Caller).

    def in_vain(self, sub_id: int) -> bool:
        """Whether a call need not be run any more."""
        return self._graph.cannot_be_in_time(sub_id, now_micros())

    def function_input(self, sub_id: int) -> FunctionInput:
        """What a call works on."""
        sample_id, sub = self._subs[sub_id]
        sample = self._calls[sample_id].samples[sample_id]
        try:
            return FunctionInput(sample.request, sample.function_upstream(sub))
        except DataflowError as error:
            raise FunctionError(str(error)) from None

    def function_skipped(self, sub_id: int) -> None:
        """A call is not run any more; its request, unless that has ended, cannot be answered in time."""
        if sub_id in self._subs:
            _, sub = self._subs[sub_id]
            self.dropped(Drop(sub_id, sub.module, DropReason.TOO_LATE), self.dispatcher.now())

    def function_answered(self, sub_id: int, answer: Mapping[str, Any]) -> None:
        """A function has answered."""
        if sub_id not in self._subs:
            return
        sample_id, sub = self._subs[sub_id]
        try:
            children = self._calls[sample_id].samples[sample_id].function_answered(sub, answer)
        except DataflowError as error:
            self.function_failed(sub_id, FunctionError(str(error)))
        else:
            self._go_on(sub_id, children, self.dispatcher.now())

    def function_failed(self, sub_id: int, error: FunctionError) -> None:
        """A function has no answer, and so its request fails."""
        if sub_id in self._subs:
            _, sub = self._subs[sub_id]
            failure = UnservedError(Outcome.FAILED, 500, f"module {sub.module!r} failed: {error}")
            self._fail(sub_id, failure, self.dispatcher.now())

    # Requests and their sub-requests.

    def _run(self, sample_id: int, spawned: Sequence[SubRequest], now: int) -> None:
        for sub in spawned:
            self._subs[sub.sub_id] = (sample_id, sub)
            function = self.interface.modules[sub.module].function
            if self._sampled is not None and (trace := self._calls[sample_id].trace) is not None:
                self._sampled.began(trace, sub, function is None, now)
            if function is None:
                self.dispatcher.arrive(sub.sub_id, sub.module, sub.deadline, now)
            else:
                self._functions.call(sub.sub_id, function)

    def _go_on(self, sub_id: int, children: Mapping[str, int], now: int) -> None:
        """A sub-request is answered; run what this makes due, or finish its sample."""
        if sub_id not in self._subs:
            return
        sample_id, _ = self._subs.pop(sub_id)
        if self._sampled is not None:
            self._sampled.ended(sub_id, now)
        self._run(sample_id, self._graph.completed(sub_id, children), now)
        outcome = self._graph.finished(sample_id)
        if outcome is None:
            return
        call = self._calls.pop(sample_id)
        call.results[sample_id] = outcome.results
        if cut_off := call.samples[sample_id].cut_off:
            self._meter.cut_off.update(cut_off)
        if len(call.results) == len(call.samples):
            self._finish(call, now)

    def _finish(self, call: Call, now: int) -> None:
        asker, call.asker = call.asker, None
        if asker is None:
            return
        try:
            rows = [sample.sink_rows(call.results[sample_id]) for sample_id, sample in call.samples.items()]
            tensors = answer_of(self.interface, rows)
        except DataflowError as error:
            asker.failed(UnservedError(Outcome.FAILED, 500, str(error)))
        else:
            try:
                asker.answered(tensors)
            except Exception:  # is of this request only; others of its batch come after it
                logger.exception("a request broke the frontend")
        ended = now_micros()
        self.dispatcher.margins.answering.observe(1, ended - now, ended)

    def _fail(self, sub_id: int, error: UnservedError, now: int) -> None:
        if sub_id in self._subs:
            sample_id, _ = self._subs[sub_id]
            self._fail_call(self._calls[sample_id], error, now)

    def _fail_call(self, call: Call, error: UnservedError, now: int) -> None:
        self._abandon_all(call, now)
        asyncio.get_running_loop().call_soon(_tell_failed, call, error)

    def _expire(self) -> None:
        """Give up what nothing else has: calls are in the order in which they expire."""
        now = self.dispatcher.now()
        while self._calls:
            call = next(iter(self._calls.values()))
            if call.expires > now:
                return
            self._fail_call(call, UnservedError(Outcome.FAILED, 504, "no answer came within four times the SLO"), now)

    def _abandon_all(self, call: Call, now: int) -> None:
        for sample_id in call.samples:
            self._abandon(sample_id, now)

    def _abandon(self, sample_id: int, now: int) -> None:
        if self._calls.pop(sample_id, None) is None:
            return
        for sub in self._graph.cancel(sample_id):
            del self._subs[sub.sub_id]
            if self._sampled is not None:
                self._sampled.ended(sub.sub_id, now, given_up=True)
            self.dispatcher.cancel(sub.sub_id, now)


def _tell_failed(call: Call, error: UnservedError) -> None:
    asker, call.asker = call.asker, None
    if asker is not None:
        asker.failed(error)
