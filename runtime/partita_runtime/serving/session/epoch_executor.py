"""Executes the requests of one epoch along the DAG: by the dispatcher, the functions' processes, and the endpoints.

One executor serves one epoch. A new epoch has another executor, which takes the new requests; this one finishes its
requests. So no request sees two plans, or two versions of the session.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from partita_runtime.autoscaling.latency import latency_key
from partita_runtime.execution.executor import Array
from partita_runtime.scheduling.events import Drop, DropReason
from partita_runtime.scheduling.requests import RequestGraph, RequestOutcome, SubRequest
from partita_runtime.serving.central.coordinator_link import COORDINATOR_AWAY
from partita_runtime.serving.deploy.epochs import GIVEN_UP_AFTER_SLOS, Epoch
from partita_runtime.serving.dispatch.dispatcher import OVERDUE_MICROS, Dispatcher
from partita_runtime.serving.dispatch.scheduler import MakeScheduler
from partita_runtime.serving.protocol.inference import InferRequest
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.variable_size import SizedInputs
from partita_runtime.serving.session.dataflow import DataflowError, SampleTensors, answer_of
from partita_runtime.serving.session.endpoints import Endpoint
from partita_runtime.serving.session.function_pools import FunctionPools
from partita_runtime.serving.session.function_processes import FunctionError, FunctionRefusalError
from partita_runtime.serving.session.functions import FunctionInput
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.session.unserved_error import UnservedError, UnservedReason
from partita_runtime.serving.telemetry.signals import Meter
from partita_runtime.serving.transport.clock import now_micros
from partita_runtime.serving.transport.transport import TCP, Transport

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTrace, SubRequestTraces

logger = logging.getLogger(__name__)

_DROPS: Final[Mapping[DropReason, tuple[UnservedReason, str]]] = {
    DropReason.TOO_LATE: (UnservedReason.TOO_LATE, "there is not enough time left to answer within the deadline"),
    DropReason.OVERLOAD: (UnservedReason.OVERLOAD, "there are more requests than can be answered in time"),
    DropReason.NO_WORKERS: (UnservedReason.NO_REPLICAS, "no replicas of module {module!r} are ready"),
    DropReason.WORKER_LOST: (
        UnservedReason.UNAVAILABLE,
        "a replica of module {module!r} was lost, with no time to try again",
    ),
    DropReason.EXECUTION_FAILED: (UnservedReason.BROKEN, "module {module!r} failed: {detail}"),
    DropReason.NO_COORDINATOR: (UnservedReason.UNAVAILABLE, COORDINATOR_AWAY),
}


class ClientLeftError(Exception):
    """The client closed the connection before its request was answered."""


class ResponseHandler(Protocol):
    """Receives the answer of a request: one call, on the event loop, never within `EpochExecutor.begin`."""

    def answered(self, tensors: dict[str, Array]) -> None:
        """The request is answered with these tensors."""

    def failed(self, error: Exception) -> None:
        """The request is not answered, for the reason of an UnservedError."""


TakeOutputs = Callable[[dict[str, Array]], None]
"""Receives outputs of a request before the others are known; must not raise."""


@dataclass(eq=False, slots=True)
class RequestExecution:
    """A request in progress: one graph of sub-requests for each of its samples."""

    handler: ResponseHandler | None
    """None once it was called, or the client has left."""
    expires: int
    """When it is given up, if it has not ended before."""
    trace: "RequestTrace | None"
    """None unless the request is sampled."""
    number: int
    """Of its call, as the scheduler knows it: the id of its first sample."""
    early: TakeOutputs | None = None
    """None if the request has one answer with all outputs."""
    given: set[str] = field(default_factory=set)
    """Modules with outputs that `early` has received."""
    samples: dict[int, SampleTensors] = field(default_factory=dict)
    outcomes: dict[int, RequestOutcome] = field(default_factory=dict)
    """Of each finished sample."""


class EpochExecutor:
    """Executes the requests of one epoch; use it on one event loop."""

    def __init__(
        self,
        epoch: Epoch,
        meter: Meter,
        settings: FrontendSettings,
        make_scheduler: MakeScheduler,
        sampled: "SubRequestTraces | None" = None,
        transport: Transport = TCP,
    ) -> None:
        """`sampled` traces the sub-requests of sampled requests."""
        self.epoch = epoch
        self.interface = Interface(
            epoch.session_key.partition("/")[2],
            epoch.session,
            epoch.outputs,
            epoch.output_names,
            epoch.vocabularies,
            frozenset(module.name for module in epoch.plan.modules),
        )
        self.slo_micros = epoch.session.slo.latency_ms * 1000
        zero = epoch.session.autoscaling.scale_to_zero
        self.hold_micros = None if zero is None else zero.hold_seconds * 1_000_000
        """For how long requests are held while there are no replicas; None if they are not held."""
        self.plan_since = 0
        """When the session began to use the plan (`now_micros`); 0 while the epoch is pending."""
        self._sampled = sampled
        self.dispatcher = Dispatcher(
            epoch.plan, self.slo_micros, self, make_scheduler, sampled, transport, settings.reserved_order
        )
        functions = [module.function for module in epoch.session.modules if module.function is not None]
        self._functions = FunctionPools(functions, settings.function_processes, self)
        self._endpoints: dict[str, Endpoint] = {}
        self._meter = meter
        self._graph = RequestGraph(epoch.session, epoch.plan)
        self._calls: dict[int, RequestExecution] = {}
        """By unfinished sample."""
        self._next_sample = 0
        self._root_samples = {root.name: 1 for root in self.interface.roots}
        self._subs: dict[int, tuple[int, SubRequest]] = {}
        """Unanswered sub-requests, each with the id of its sample."""

    async def prepare(self) -> None:
        """Load the session's functions. Raises FunctionError or EndpointError for what cannot be used."""
        self._endpoints = self._endpoints or {
            module.name: Endpoint(module.name, module.endpoint, self)
            for module in self.epoch.session.modules
            if module.endpoint is not None
        }
        await self._functions.prepare()

    def close(self) -> None:
        """Disconnect from the replicas and the endpoints, and end the functions' processes."""
        self.dispatcher.close()
        self._functions.close()
        for endpoint in self._endpoints.values():
            endpoint.close()

    def tick(self) -> None:
        """To be called a few times a second."""
        self.dispatcher.tick()
        self._functions.tick()
        for endpoint in self._endpoints.values():
            endpoint.tick()
        self._expire()

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return not self._calls

    def begin(
        self,
        request: InferRequest,
        arrived: int,
        handler: ResponseHandler,
        trace: "RequestTrace | None" = None,
        early: TakeOutputs | None = None,
    ) -> RequestExecution:
        """Begin a request that arrived at `arrived` (microseconds), and report its end to `handler`.

        `early` receives outputs as soon as they are known, unless the request ends then; `handler` receives them all.
        """
        now = self.dispatcher.now()
        time = self.slo_micros if request.timeout_micros is None else min(self.slo_micros, request.timeout_micros)
        deadline = arrived + time - self.dispatcher.answering_micros
        expires = now + GIVEN_UP_AFTER_SLOS * self.slo_micros + OVERDUE_MICROS
        call = RequestExecution(handler, expires, trace, self._next_sample, early)
        for row in range(request.samples):
            sample_id = self._next_sample
            self._next_sample += 1
            tensors = {name: array[row] for name, array in request.inputs.items()}
            call.samples[sample_id] = SampleTensors(self.interface, tensors)
            self._calls[sample_id] = call
            self._run(sample_id, self._graph.start(sample_id, deadline, self._root_samples), now)
        return call

    def cancel(self, call: RequestExecution) -> None:
        """The client has left."""
        call.handler = None
        self._drop_all(call, self.dispatcher.now())

    # Called by the dispatcher (dispatcher.SubRequests).

    def batch(self, sub_ids: Sequence[int], any_size: bool) -> dict[int, Sequence[Array]]:
        """The inputs of those sub-requests of a batch that have not ended, at one size."""
        inputs: dict[int, Sequence[Array]] = {}
        sized: SizedInputs | None = None
        for sub_id in sub_ids:
            if sub_id in self._subs:
                sample_id, sub = self._subs[sub_id]
                inputs[sub_id] = self._calls[sample_id].samples[sample_id].model_inputs(sub)
                sized = self.interface.sized.get(sub.module)
        if sized is None:
            return inputs
        return dict(zip(inputs, sized.padded([*inputs.values()], any_size=any_size), strict=True))

    def answered(self, sub_id: int, outputs: list[Array], now: int) -> None:
        """A model has answered."""
        if sub_id not in self._subs:
            return
        sample_id, sub = self._subs[sub_id]
        sample = self._calls[sample_id].samples[sample_id]
        try:
            children = sample.model_answered(sub, outputs)
        except DataflowError as error:
            self._fail(sub_id, UnservedError(UnservedReason.BROKEN, str(error)), now)
        else:
            self._proceed(sub_id, children, now)
        self._count_edges(sample)

    def dropped(self, drop: Drop, now: int) -> None:
        """The scheduler dropped a sub-request, so its request fails, or goes on without it."""
        reason, message = _DROPS[drop.reason]
        error = UnservedError(reason, message.format(module=drop.module, detail=drop.detail))
        self._fail(drop.request_id, error, now)

    # Called by the endpoints (endpoints.EndpointCaller) and the function pool (functions.Caller).

    def is_unneeded(self, sub_id: int) -> bool:
        """Whether a call need not run: its request has ended, or cannot be in time."""
        return self._graph.cannot_be_in_time(sub_id, now_micros())

    def skipped(self, sub_id: int) -> None:
        """A call does not run: its request has ended, or fails as too late now."""
        if sub_id in self._subs:
            _, sub = self._subs[sub_id]
            self.dropped(Drop(sub_id, sub.module, DropReason.TOO_LATE), self.dispatcher.now())

    # Called by the endpoints.

    def endpoint_input(self, sub_id: int) -> Array:
        """The sample of a call."""
        sample_id, sub = self._subs[sub_id]
        return self._calls[sample_id].samples[sample_id].model_inputs(sub)[0]

    def endpoint_answered(self, sub_id: int, outputs: Sequence[Array]) -> None:
        """An endpoint has answered, as a model does."""
        self.answered(sub_id, [*outputs], self.dispatcher.now())

    def endpoint_failed(self, sub_id: int, error: UnservedError) -> None:
        """A call has failed, so its request fails."""
        self._fail(sub_id, error, self.dispatcher.now())

    def endpoint_took(self, module: str, micros: int) -> None:
        """An endpoint has taken so long for a call."""
        self._meter.endpoint_calls[latency_key(module, micros)] += 1

    # Called by the function pool.

    def function_input(self, sub_id: int) -> FunctionInput:
        """The input of a call."""
        sample_id, sub = self._subs[sub_id]
        sample = self._calls[sample_id].samples[sample_id]
        try:
            return FunctionInput(sample.request, sample.function_upstream(sub))
        except DataflowError as error:
            raise FunctionError(str(error)) from None

    def function_answered(self, sub_id: int, answer: Mapping[str, Any]) -> None:
        """A function has answered."""
        if sub_id not in self._subs:
            return
        sample_id, sub = self._subs[sub_id]
        sample = self._calls[sample_id].samples[sample_id]
        try:
            children = sample.function_answered(sub, answer)
        except DataflowError as error:
            self.function_failed(sub_id, FunctionError(str(error)))
        else:
            self._proceed(sub_id, children, self.dispatcher.now())
        self._count_edges(sample)

    def function_failed(self, sub_id: int, error: FunctionError) -> None:
        """A function has failed or refuses the request, so the request fails."""
        if sub_id in self._subs:
            _, sub = self._subs[sub_id]
            if isinstance(error, FunctionRefusalError):
                failure = UnservedError(UnservedReason.REFUSED, str(error))
            else:
                failure = UnservedError(UnservedReason.BROKEN, f"module {sub.module!r} failed: {error}")
            self._fail(sub_id, failure, self.dispatcher.now())

    # Requests and their sub-requests.

    def _count_edges(self, sample: SampleTensors) -> None:
        if sample.decided:
            self._meter.decided.update(sample.decided)
            self._meter.sent.update(sample.sent)
            sample.decided.clear()
            sample.sent.clear()

    def _run(self, sample_id: int, spawned: Sequence[SubRequest], now: int) -> None:
        for sub in spawned:
            self._subs[sub.sub_id] = (sample_id, sub)
            module = self.interface.modules[sub.module]
            if self._sampled is not None and (trace := self._calls[sample_id].trace) is not None:
                self._sampled.began(trace, sub, module.model is not None, now)
            if module.function is not None:
                self._functions.call(sub.sub_id, module.function)
            elif module.endpoint is not None:
                self._endpoints[sub.module].call(sub.sub_id)
            else:
                call = self._calls[sample_id]
                sample = call.samples[sample_id]
                if (size_class := sample.size_class(sub)) is not None:
                    self._meter.size_classes[size_class] += 1
                self.dispatcher.arrive(sub.sub_id, sample.served_by(sub), sub.deadline, now, call.number)

    def _proceed(self, sub_id: int, children: Mapping[str, int], now: int) -> None:
        """A sub-request is answered; run those that follow it, or finish its sample."""
        if sub_id not in self._subs:
            return
        sample_id, _ = self._subs.pop(sub_id)
        if self._sampled is not None:
            self._sampled.ended(sub_id, now)
        self._run(sample_id, self._graph.completed(sub_id, children), now)
        for other in self._graph.take_superseded():
            self._cancel(other, now)
        self._finish_sample(sample_id, now)

    def _leave_out(self, sub_id: int) -> None:
        """A sub-request of an optional module has failed; run what follows without its answer."""
        if sub_id not in self._subs:
            return
        now = self.dispatcher.now()
        sample_id, sub = self._subs.pop(sub_id)
        self._meter.left_out[sub.module] += 1
        if self._sampled is not None:
            self._sampled.ended(sub_id, now, failed=True)
        self._run(sample_id, self._graph.left_out(sub_id), now)
        self._finish_sample(sample_id, now)

    def _finish_sample(self, sample_id: int, now: int) -> None:
        """Answer the request if nothing of this sample, and of its other samples, is in progress."""
        call, outcome = self._calls[sample_id], self._graph.finished(sample_id)
        if outcome is not None:
            del self._calls[sample_id]
            call.outcomes[sample_id] = outcome
            if cut_off := call.samples[sample_id].cut_off:
                self._meter.cut_off.update(cut_off)
        if len(call.outcomes) == len(call.samples):
            self._finish(call, now)
        elif call.early is not None:
            self._give_early(call, call.early, now)

    def _give_early(self, call: RequestExecution, early: TakeOutputs, now: int) -> None:
        """Give the outputs that have become known to a client that waits for them."""
        unfinished = [sample_id for sample_id in call.samples if sample_id not in call.outcomes]
        known = {
            name
            for name in self.interface.answering
            if name not in call.given and all(self._graph.is_closed(sample_id, name) for sample_id in unfinished)
        }
        if not known:
            return
        call.given |= known
        so_far = call.outcomes | {sample_id: self._graph.so_far(sample_id) for sample_id in unfinished}
        try:
            early(self._outputs(call, so_far, known))
        except DataflowError as error:
            self._fail_call(call, UnservedError(UnservedReason.BROKEN, str(error)), now)

    def _finish(self, call: RequestExecution, now: int) -> None:
        handler, call.handler = call.handler, None
        if handler is None:
            return
        try:
            tensors = self._outputs(call, call.outcomes, self.interface.answering)
        except DataflowError as error:
            handler.failed(UnservedError(UnservedReason.BROKEN, str(error)))
        else:
            try:
                handler.answered(tensors)
            except Exception:  # affects this request only; the others of its batch follow
                logger.exception("a request raised an unexpected error")
        ended = now_micros()
        self.dispatcher.margins.answering.observe(1, ended - now, ended)

    def _outputs(
        self, call: RequestExecution, outcomes: Mapping[int, RequestOutcome], modules: Collection[str]
    ) -> dict[str, Array]:
        """The tensors of these modules. Raises DataflowError."""
        rows = [sample.sink_rows(outcomes[sample_id].results) for sample_id, sample in call.samples.items()]
        return answer_of(self.interface, rows, [outcomes[sample_id].left_out for sample_id in call.samples], modules)

    def _fail(self, sub_id: int, error: UnservedError, now: int) -> None:
        if self._graph.is_optional(sub_id):
            # Not at once: within `begin`, no answer may be made.
            asyncio.get_running_loop().call_soon(self._leave_out, sub_id)
        elif sub_id in self._subs:
            sample_id, _ = self._subs[sub_id]
            self._fail_call(self._calls[sample_id], error, now)

    def _fail_call(self, call: RequestExecution, error: UnservedError, now: int) -> None:
        self._drop_all(call, now)
        asyncio.get_running_loop().call_soon(_report_failure, call, error)

    def _expire(self) -> None:
        """Give up requests that nothing else has ended. They are in the order in which they expire."""
        now = self.dispatcher.now()
        while self._calls:
            call = next(iter(self._calls.values()))
            if call.expires > now:
                return
            self._fail_call(
                call, UnservedError(UnservedReason.NO_ANSWER, "no answer came within four times the SLO"), now
            )

    def _drop_all(self, call: RequestExecution, now: int) -> None:
        for sample_id in call.samples:
            self._drop(sample_id, now)

    def _drop(self, sample_id: int, now: int) -> None:
        if self._calls.pop(sample_id, None) is None:
            return
        for sub in self._graph.cancel(sample_id):
            self._cancel(sub, now)

    def _cancel(self, sub: SubRequest, now: int) -> None:
        """The answer of a sub-request is not needed any more."""
        del self._subs[sub.sub_id]
        if self._sampled is not None:
            self._sampled.ended(sub.sub_id, now, failed=True)
        if sub.module in self._endpoints:
            self._endpoints[sub.module].cancel(sub.sub_id)
        elif self.interface.modules[sub.module].function is not None:
            self._functions.cancel(sub.sub_id)
        else:
            self.dispatcher.cancel(sub.sub_id, now)


def _report_failure(call: RequestExecution, error: UnservedError) -> None:
    handler, call.handler = call.handler, None
    if handler is not None:
        handler.failed(error)
