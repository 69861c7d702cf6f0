"""Receives OpenTelemetry traces by OTLP over HTTP, like a collector, and keeps them."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span


class Collector:
    """Received traces, and the address."""

    def __init__(self, url: str) -> None:
        self.url = url
        """The endpoint for OTEL_EXPORTER_OTLP_ENDPOINT."""
        self.received: list[ExportTraceServiceRequest] = []

    @property
    def resources(self) -> list[ResourceSpans]:
        """Spans by sender."""
        return [spans for request in self.received for spans in request.resource_spans]

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [span for resource in self.resources for scope in resource.scope_spans for span in scope.spans]

    def names_in(self, trace_id: str) -> set[str]:
        """Names of the spans of one trace, its id in hexadecimal."""
        return {span.name for span in self.spans if span.trace_id.hex() == trace_id}


@contextlib.contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                running.received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
