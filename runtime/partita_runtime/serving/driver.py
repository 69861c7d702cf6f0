"""The requests of one epoch on their way through the DAG: models by the dispatcher, functions in their processes.

One driver serves one epoch. With a new epoch another one takes the new requests, and this one finishes what it has:
no request ever sees two plans, or two versions of the session.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from partita_runtime.execution.executor import Array
from partita_runtime.scheduling.events import Drop, DropReason
from partita_runtime.scheduling.requests import RequestGraph, SubRequest
from partita_runtime.serving.dataflow import DataflowError, Sample, answer_of
from partita_runtime.serving.dispatcher import OVERDUE_MICROS, Dispatcher
from partita_runtime.serving.epoch import Epoch
from partita_runtime.serving.functions import FunctionError, FunctionInput, FunctionPool
from partita_runtime.serving.inference import InferRequest, RequestError
from partita_runtime.serving.interface import Interface
from partita_runtime.serving.rank_link import AWAY
from partita_runtime.serving.scheduler import MakeScheduler, now_micros
from partita_runtime.serving.signals import Meter, Outcome

if TYPE_CHECKING:
    from partita_runtime.serving.tracing import RequestTrace, SubRequestTraces

RETRY_AFTER_SECONDS: Final = 1

_DROPS: Final[Mapping[DropReason, tuple[Outcome, int, str]]] = {
    DropReason.TOO_LATE: (Outcome.TOO_LATE, 504, "there is not enough time left to answer within the deadline"),
    DropReason.OVERLOAD: (Outcome.OVERLOAD, 503, "there are more requests than can be answered in time"),
    DropReason.NO_WORKERS: (Outcome.NO_WORKERS, 503, "no replicas of module {module!r} are ready"),
    DropReason.WORKER_LOST: (Outcome.FAILED, 503, "a replica of module {module!r} was lost, with no time to try again"),
    DropReason.EXECUTION_FAILED: (Outcome.FAILED, 500, "module {module!r} failed: {detail}"),
    DropReason.NO_RANK: (Outcome.FAILED, 503, AWAY),
}


class UnservedError(RequestError):
    """An accepted request that is not answered, and how that is counted."""

    def __init__(self, outcome: Outcome, status: int, message: str) -> None:
        super().__init__(status, message, RETRY_AFTER_SECONDS if status == 503 else None)
        self.outcome = outcome


class ClientLeftError(Exception):
    """The client closed the connection before its request was answered."""


@dataclass(eq=False)
class _Call:
    """A request in progress: one graph of sub-requests for each of its samples."""

    samples: dict[int, Sample]
    answer: asyncio.Future[None]
    results: dict[int, tuple[SubRequest, ...]] = field(default_factory=dict)
    """By finished sample."""
    trace: "RequestTrace | None" = None
    """Of a sampled request."""
    answered: int = 0
    """When the last sample was finished."""

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def expire(self) -> None:
        self.fail(UnservedError(Outcome.FAILED, 504, "no answer came within four times the SLO"))


class Driver:
    """Serves one epoch; use it on one event loop."""

    def __init__(
        self,
        epoch: Epoch,
        meter: Meter,
        function_processes: int,
        make_scheduler: MakeScheduler,
        sampled: "SubRequestTraces | None" = None,
    ) -> None:
        """`sampled` is told how the sub-requests of sampled requests go."""
        self.epoch = epoch
        self.interface = Interface(epoch.session_key.partition("/")[2], epoch.session, epoch.outputs)
        self._slo_micros = epoch.session.slo.latency_ms * 1000
        self._sampled = sampled
        self.dispatcher = Dispatcher(epoch.plan, self._slo_micros, self, make_scheduler, sampled)
        functions = [module.function for module in epoch.session.modules if module.function is not None]
        self._functions = FunctionPool(functions, function_processes, self)
        self._meter = meter
        self._graph = RequestGraph(epoch.session, epoch.plan)
        self._calls: dict[int, _Call] = {}
        """By sample that is not finished."""
        self._next_sample = 0
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

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._calls

    def infer(
        self,
        request: InferRequest,
        arrived: int,
        left: asyncio.Future[None] | None = None,
        trace: "RequestTrace | None" = None,
    ) -> Coroutine[None, None, dict[str, Array]]:
        """Take `request` in, which arrived at `arrived`; await what this gives for the tensors that answer it.

        Raises UnservedError, when awaited, if it will not be answered, and ClientLeftError if `left` is done before.
        Without `left`, cancel it when the client leaves.
        """
        time = self._slo_micros if request.timeout_micros is None else min(self._slo_micros, request.timeout_micros)
        call = self._begin(request, arrived + time - self.dispatcher.answering_micros, trace)
        if left is not None:
            left.add_done_callback(lambda _: call.fail(ClientLeftError()))
        return self._answer(call)

    async def _answer(self, call: _Call) -> dict[str, Array]:
        seconds = (4 * self._slo_micros + OVERDUE_MICROS) / 1e6  # after every other rescue
        rescue = asyncio.get_running_loop().call_later(seconds, call.expire)
        try:
            await call.answer
        finally:
            rescue.cancel()
            for sample_id in call.samples:
                if sample_id in self._calls:
                    self._abandon(sample_id, self.dispatcher.now())
        try:
            rows = [sample.sink_rows(call.results[sample_id]) for sample_id, sample in call.samples.items()]
            tensors = answer_of(self.interface, rows)
        except DataflowError as error:
            raise UnservedError(Outcome.FAILED, 500, str(error)) from None
        ended = now_micros()
        self.dispatcher.margins.answering.observe(1, ended - call.answered, ended)
        return tensors

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
        return self._graph.in_vain(sub_id, now_micros())

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

    def _begin(self, request: InferRequest, deadline: int, trace: "RequestTrace | None") -> _Call:
        call = _Call({}, asyncio.get_running_loop().create_future(), trace=trace)
        roots = {root.name: 1 for root in self.interface.roots}
        now = self.dispatcher.now()
        for row in range(request.samples):
            sample_id = self._next_sample
            self._next_sample += 1
            tensors = {name: array[row] for name, array in request.inputs.items()}
            call.samples[sample_id] = Sample(self.interface, tensors)
            self._calls[sample_id] = call
            self._run(sample_id, self._graph.start(sample_id, deadline, roots), now)
        return call

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
            if self._sampled is not None:
                self._sampled.ended(sub.sub_id, now, given_up=True)
            self.dispatcher.cancel(sub.sub_id, now)
