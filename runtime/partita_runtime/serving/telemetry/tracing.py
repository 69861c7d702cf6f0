"""OpenTelemetry traces of sampled requests: their waits, batches and stages.

All spans are made in the frontend. A stage's replica reports how long a batch waited and ran there. The rest of the
time between two reports is network and event loops. Requests that are not sampled cost nothing here.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from partita_runtime.scheduling.events import Dispatch, StageRef
from partita_runtime.scheduling.plan import SchedulingPlan
from partita_runtime.scheduling.requests import SubRequest

DEFAULT_RATIO: Final = 0.01
"""Default share of requests that are traced, if neither the environment nor the client sets it."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_SERVICE: Final = "partita"


def provider_of(environment: Mapping[str, str]) -> TracerProvider:
    """A provider that exports by OTLP over HTTP, configured by OpenTelemetry's environment variables.

    Raises ImportError if the exporter is not installed.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    provider = TracerProvider(
        sampler=None if "OTEL_TRACES_SAMPLER" in environment else ParentBasedTraceIdRatio(DEFAULT_RATIO),
        resource=Resource.create({SERVICE_NAME: _SERVICE}).merge(OTELResourceDetector().detect()),
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class RequestTracer:
    """Begins the traces of one session's requests."""

    def __init__(self, provider: TracerProvider, session_key: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("partita")
        self._session_key = session_key

    def begin(self, plan: str, samples: int, arrived: int, headers: Mapping[str, str]) -> "RequestTrace | None":
        """The trace of a request that arrived at `arrived` (monotonic microseconds); None if it is not sampled.

        A W3C `traceparent` header becomes its parent and may decide whether it is sampled.
        """
        clock = time.time_ns() - time.monotonic_ns()
        parent = _PROPAGATOR.extract(headers) if "traceparent" in headers else Context()
        attributes: dict[str, str | int] = {
            "partita.session": self._session_key,
            "partita.plan": plan,
            "partita.samples": samples,
        }
        span = self._tracer.start_span("infer", parent, SpanKind.SERVER, attributes, start_time=arrived * 1000 + clock)
        return RequestTrace(self._tracer, span, clock) if span.is_recording() else None

    def sub_requests(self, plan: SchedulingPlan) -> "SubRequestTraces":
        """The traces of sub-requests under this plan."""
        return SubRequestTraces(plan)

    def close(self) -> None:
        """Export the remaining spans; this may take seconds."""
        self._provider.shutdown()


class RequestTrace:
    """One sampled request. Times are microseconds of the monotonic clock."""

    def __init__(self, tracer: trace.Tracer, span: Span, clock: int) -> None:
        """`clock` is the difference between nanoseconds since 1970 and monotonic ones."""
        self._tracer = tracer
        self._span = span
        self._clock = clock

    def span(self, name: str, parent: Span, start: int, attributes: Mapping[str, Any]) -> Span:
        """A span of the request that began at `start`."""
        context = trace.set_span_in_context(parent, Context())
        return self._tracer.start_span(name, context, attributes=attributes, start_time=self.nanos(start))

    def module(self, name: str, start: int, attributes: Mapping[str, Any]) -> Span:
        """The span of a sub-request."""
        return self.span(name, self._span, start, attributes)

    def end(self, outcome: str, now: int, error: str = "") -> None:
        """The request has ended; `error` says why it was not answered."""
        self._span.set_attribute("partita.outcome", outcome)
        if error:
            self._span.set_status(StatusCode.ERROR, error)
        self._span.end(self.nanos(now))

    def nanos(self, micros: int) -> int:
        """Nanoseconds since 1970."""
        return micros * 1000 + self._clock


@dataclass
class _TracedSubRequest:
    """A sub-request of a sampled request."""

    request: RequestTrace
    span: Span
    waits_since: int | None
    """When it was queued for a batch; None for a function, and in a batch."""


@dataclass
class _TracedPhase:
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]


@dataclass
class _TracedBatch:
    """A batch that holds sub-requests of sampled requests."""

    dispatch: Dispatch
    size: int
    sent: int
    sub_ids: Sequence[int]
    """The sub-requests of sampled requests."""
    phases: list[_TracedPhase] = field(default_factory=list)
    stages_done: int = 0


class SubRequestTraces:
    """Traces the sub-requests of sampled requests under one plan. Other sub-requests are unknown to it, and ignored."""

    def __init__(self, plan: SchedulingPlan) -> None:
        self._pools = {ref: stage.pool for ref, stage in plan.stages()}
        self._subs: dict[int, _TracedSubRequest] = {}
        self._batches: dict[int, _TracedBatch] = {}

    def began(self, request: RequestTrace, sub: SubRequest, is_model: bool, now: int) -> None:
        """A sub-request begins: it is queued for a batch, or its function is called."""
        attributes = {"partita.module": sub.module, "partita.sample": sub.sample}
        kind = "model" if is_model else "function"
        span = request.module(f"{kind} {sub.module}", now, attributes)
        self._subs[sub.sub_id] = _TracedSubRequest(request, span, now if is_model else None)

    def ended(self, sub_id: int, now: int, failed: bool = False) -> None:
        """A sub-request is answered, or its request has failed or was cancelled."""
        sub = self._subs.pop(sub_id, None)
        if sub is None:
            return
        if sub.waits_since is not None:
            self._queue(sub, now)
        if failed:
            sub.span.set_status(StatusCode.ERROR, "given up")
        sub.span.end(sub.request.nanos(now))

    def sent(self, dispatch: Dispatch, sub_ids: Sequence[int], now: int) -> None:
        """A batch was sent."""
        sampled = [sub_id for sub_id in sub_ids if sub_id in self._subs] if self._subs else ()
        if not sampled:
            return
        for sub_id in sampled:
            self._queue(self._subs[sub_id], now)
        self._batches[dispatch.batch_id] = _TracedBatch(dispatch, len(sub_ids), now, sampled)

    def ran(self, batch_id: int, stage: int, waited: int, ran: int, now: int) -> None:
        """A stage reports how long a batch waited and ran there (microseconds)."""
        batch = self._batches.get(batch_id)
        if batch is None or stage < batch.stages_done:  # reports of two replicas may arrive out of order
            return
        ref = StageRef(batch.dispatch.module, batch.dispatch.pipeline, stage)
        attributes = {
            "partita.stage": stage,
            "partita.pool": self._pools[ref],
            "partita.replica": batch.dispatch.path[stage],
        }
        before = batch.phases[-1].end if batch.phases else batch.sent
        started = max(before, now - ran)
        came = max(before, started - waited)
        batch.phases.append(_TracedPhase("network", before, came, attributes))
        batch.phases.append(_TracedPhase("wait", came, started, attributes))
        batch.phases.append(_TracedPhase("run", started, now, attributes))
        batch.stages_done = stage + 1

    def over(self, batch_id: int, now: int) -> None:
        """A batch is answered, lost or failed. Its sub-requests that are not ended are queued again."""
        batch = self._batches.pop(batch_id, None)
        if batch is None:
            return
        dispatch = batch.dispatch
        attributes = {
            "partita.batch": dispatch.batch_id,
            "partita.batch_size": batch.size,
            "partita.pipeline": dispatch.pipeline,
        }
        for sub_id in batch.sub_ids:
            sub = self._subs.get(sub_id)
            if sub is None:
                continue
            span = sub.request.span("batch", sub.span, batch.sent, attributes)
            for phase in batch.phases:
                part = sub.request.span(phase.name, span, phase.start, phase.attributes)
                part.end(sub.request.nanos(phase.end))
            if batch.stages_done < len(dispatch.path):
                span.set_status(StatusCode.ERROR, "lost, or failed")
                sub.waits_since = now
            span.end(sub.request.nanos(now))

    def _queue(self, sub: _TracedSubRequest, until: int) -> None:
        if sub.waits_since is not None:
            sub.request.span("queue", sub.span, sub.waits_since, {}).end(sub.request.nanos(until))
            sub.waits_since = None
