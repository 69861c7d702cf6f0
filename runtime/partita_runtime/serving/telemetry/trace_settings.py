"""Reads from OpenTelemetry's environment variables whether requests are traced. Does not import OpenTelemetry."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from partita_runtime.installation import extra_command

if TYPE_CHECKING:
    from partita_runtime.serving.telemetry.tracing import RequestTracer

logger = logging.getLogger(__name__)

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Where traces are sent by OTLP over HTTP. Without either variable nothing is traced."""


def tracer_of(environment: Mapping[str, str], session_key: str) -> "RequestTracer | None":
    """The tracer of the session's requests; None if tracing is off, or the exporter is not installed."""
    is_configured = any(environment.get(name) for name in ENDPOINTS)
    disabled = environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not is_configured or disabled or environment.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    try:
        from partita_runtime.serving.telemetry.tracing import RequestTracer, provider_of

        return RequestTracer(provider_of(environment), session_key)
    except ImportError as error:
        logger.error("requests are not traced: %s; install it with: %s", error, extra_command("tracing"))
        return None
