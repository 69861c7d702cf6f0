"""Traces of sampled requests: their spans, attributes and destination."""

import asyncio
import dataclasses
from collections import Counter

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBasedTraceIdRatio, Sampler
from opentelemetry.trace import StatusCode
from tests.runtime.serving.gates import Gate, gated
from tests.runtime.serving.in_process.stand import Stand, post, stand, until
from tests.runtime.serving.load import infer_body
from tests.runtime.serving.plans import application, detector_with_crops
from tests.runtime.serving.telemetry.collector import collector

from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.telemetry.trace_settings import tracer_of
from partita_runtime.serving.telemetry.tracing import RequestTracer

CALLER = "0af7651916cd43dd8448eb211c80319c"
"""A trace that a client has started."""
NEVER_BY_ITSELF = ParentBasedTraceIdRatio(0.0)


class Spans:
    """The exported spans."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = RequestTracer(provider, "default/traced")

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted((span for span in self.all if span.name == name), key=lambda span: span.start_time or 0)

    def names(self) -> Counter[str]:
        return Counter(span.name for span in self.all)

    def within(self, parent: ReadableSpan) -> list[ReadableSpan]:
        assert parent.context is not None
        return [span for span in self.all if span.parent and span.parent.span_id == parent.context.span_id]


def traceparent(sampled: bool) -> dict[str, str]:
    return {"traceparent": f"00-{CALLER}-b7ad6b7169203331-{'01' if sampled else '00'}"}


async def infer(running: Stand, sample: np.ndarray, headers: dict[str, str] | None = None) -> int:
    content, length = infer_body(sample)
    url = f"/v2/models/{running.app.name}/infer"
    answer = await running.client.post(url, content=content, headers={**length, **(headers or {})})
    return answer.status_code


def crops(count: int) -> np.ndarray:
    """A sample with this number of crops."""
    return np.full((1, 3, 4), count, np.float32)


async def test_a_request_has_a_span_for_each_step() -> None:
    spans = Spans()
    async with stand(detector_with_crops(), tracer=spans.tracer) as running:
        assert await infer(running, crops(2)) == 200
    (root,) = spans.named("infer")
    assert root.parent is None
    assert dict(root.attributes or {}) == {
        "partita.session": "default/traced",
        "partita.plan": "plan-1",
        "partita.samples": 1,
        "partita.outcome": "in_time",
    }
    found = sorted(span.name for span in spans.within(root))
    assert found == ["function crop", "model classifier", "model classifier", "model detector"]
    (detector,) = spans.named("model detector")
    assert [span.name for span in spans.within(detector)] == ["queue", "batch"]
    (batch,) = (span for span in spans.within(detector) if span.name == "batch")
    assert (batch.attributes or {})["partita.batch_size"] == 1
    assert (batch.attributes or {})["partita.pipeline"] == "p0"
    assert [span.name for span in spans.within(batch)] == ["network", "wait", "run"]
    (run,) = (span for span in spans.within(batch) if span.name == "run")
    assert (run.attributes or {})["partita.pool"] == "emulated"
    assert (run.attributes or {})["partita.stage"] == 0


async def test_spans_are_within_their_parents() -> None:
    spans = Spans()
    app = dataclasses.replace(detector_with_crops(), stages=2)
    async with stand(app, tracer=spans.tracer) as running:
        assert await infer(running, crops(1)) == 200
    stages = [
        [(part.attributes or {})["partita.stage"] for part in spans.within(batch)] for batch in spans.named("batch")
    ]
    assert stages == [[0, 0, 0, 1, 1, 1]] * 2
    by_id = {span.context.span_id: span for span in spans.all if span.context}
    for span in spans.all:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time, span.name
        if span.parent:
            parent = by_id[span.parent.span_id]
            assert (parent.start_time or 0) <= span.start_time, span.name
            assert span.end_time <= (parent.end_time or 0), span.name


async def test_requests_of_one_batch_have_a_trace_each() -> None:
    spans = Spans()
    async with stand(application("plain").model("only"), tracer=spans.tracer) as running:
        sent = [infer(running, np.zeros((1, 2, 2), np.float32)) for _ in range(6)]
        assert await asyncio.gather(*sent) == [200] * 6
    assert len({span.context.trace_id for span in spans.named("infer") if span.context}) == 6
    assert spans.names() == dict.fromkeys(("infer", "model only", "queue", "batch", "network", "wait", "run"), 6)


@pytest.mark.parametrize(
    ("headers", "want_traces"),
    [
        pytest.param(traceparent(sampled=True), {CALLER}, id="the client traces it"),
        pytest.param(traceparent(sampled=False), set(), id="the client does not trace it"),
        pytest.param({}, set(), id="the client sends no trace"),
        pytest.param({"traceparent": "nonsense"}, set(), id="the client sends an invalid trace"),
    ],
)
async def test_a_client_may_trace_requests_that_are_not_sampled(headers: dict[str, str], want_traces: set[str]) -> None:
    spans = Spans(NEVER_BY_ITSELF)
    async with stand(application("plain").model("only"), tracer=spans.tracer) as running:
        assert await infer(running, np.zeros((1, 2, 2), np.float32), headers) == 200
    assert {f"{span.context.trace_id:032x}" for span in spans.all if span.context} == want_traces


async def test_a_grpc_client_sends_its_trace_in_the_metadata() -> None:
    import tritonclient.grpc.aio as triton

    spans = Spans(NEVER_BY_ITSELF)
    async with stand(application("plain").model("only"), tracer=spans.tracer) as running:
        endpoint = grpc_endpoint(running.session, "127.0.0.1")
        await endpoint.move_to(0)
        await until(lambda: running.session.addresses.grpc, "gRPC is listened for")
        async with triton.InferenceServerClient(running.session.addresses.grpc) as client:
            given = triton.InferInput("input", [1, 2, 2], "FP32")
            given.set_data_from_numpy(np.zeros((1, 2, 2), np.float32))
            await client.infer("plain", [given], headers=traceparent(sampled=True))
        await endpoint.close()
    assert {f"{span.context.trace_id:032x}" for span in spans.all if span.context} == {CALLER}


async def test_a_lost_batch_and_the_next_one_have_spans() -> None:
    gates: list[Gate] = []
    spans = Spans()
    async with stand(application("one").model("only"), wrap=gated(gates), tracer=spans.tracer) as running:
        (first,) = running.workers
        answer = asyncio.create_task(post(running))
        await until(lambda: gates[0].runs, "the batch runs")
        await running.kill(first)
        gates[0].open.set()
        (arguments,) = running.app.stage_arguments()
        await running.add_replica(arguments)
        assert (await answer)[0] == 200
    assert [batch.status.status_code for batch in spans.named("batch")] == [StatusCode.ERROR, StatusCode.UNSET]
    assert len(spans.named("queue")) == 2


async def test_the_span_of_a_refused_request_has_the_reason() -> None:
    spans = Spans()
    async with stand(application("slow").model("only", beta_micros=300_000).slo(100), tracer=spans.tracer) as running:
        assert await infer(running, np.zeros((1, 2, 2), np.float32)) == 504
    (root,) = spans.named("infer")
    assert root.status.status_code is StatusCode.ERROR
    assert "not enough time" in (root.status.description or "")
    assert (root.attributes or {})["partita.outcome"] == "too_late"
    assert spans.named("model only")[0].status.status_code is StatusCode.ERROR


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({}, id="no endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, id="an empty endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_SDK_DISABLED": "true"}, id="disabled"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_TRACES_EXPORTER": "none"}, id="not exported"),
    ],
)
def test_nothing_is_traced_by_default(environment: dict[str, str]) -> None:
    assert tracer_of(environment, "default/traced") is None


async def test_traces_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector() as taking:
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": taking.url, "OTEL_TRACES_SAMPLER": "parentbased_always_on"}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        tracer = tracer_of(environment, "default/plain")
        assert tracer is not None
        async with stand(application("plain").model("only"), tracer=tracer) as running:
            assert await infer(running, np.zeros((1, 2, 2), np.float32)) == 200
        await asyncio.to_thread(tracer.close)
    (resource,) = taking.resources
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == "partita"
    want = {"infer", "model only", "queue", "batch", "network", "wait", "run"}
    assert {span.name for span in taking.spans} == want
