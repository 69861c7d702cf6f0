"""The CloudEvents of the request log, over HTTP in binary content mode. Pure.

Types and attributes are those of KServe's logger, besides some of Partita's own, so a log can be replayed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

REQUEST_TYPE: Final = "org.kubeflow.serving.inference.request"
RESPONSE_TYPE: Final = "org.kubeflow.serving.inference.response"

HEADER_LENGTH_ATTRIBUTE: Final = "jsonheaderlength"
"""Bytes of JSON before binary tensors: Inference-Header-Content-Length of the request or answer."""
OMITTED_ATTRIBUTE: Final = "omittedbytes"
"""Bytes of a body that is not in its event, because it is too large."""
PROTOCOL_ATTRIBUTE: Final = "protocol"
"""The protocol of a request: V1 or V2."""
STATUS_ATTRIBUTE: Final = "statuscode"
"""HTTP status of an answer."""

V1: Final = "v1"
"""KServe's V1 protocol, in PROTOCOL_ATTRIBUTE."""
V2: Final = "v2"
"""The Open Inference Protocol."""

_VERSION: Final = "1.0"
_HEAD_BYTES: Final = 2048
"""What an event takes besides its body, at most."""


class Content(NamedTuple):
    """The body of a request or an answer."""

    body: bytes | memoryview
    type: str
    """Its content type, one of those that frontends accept or send."""
    header_length: int | None = None
    """Its Inference-Header-Content-Length."""


class Origin(NamedTuple):
    """What the events of one request have in common."""

    id: str
    session_key: str
    protocol: str


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event as it is sent."""

    headers: dict[str, str]
    body: bytes | memoryview

    @property
    def size(self) -> int:
        """Bytes of memory that it takes, at most."""
        return len(self.body) + _HEAD_BYTES


def logged_event(
    origin: Origin, content: Content, now: float, max_body_bytes: int, status: int | None = None
) -> LoggedEvent:
    """The event of a request, or of an answer with this HTTP `status`, at `now` (seconds since 1970)."""
    omitted = len(content.body) if len(content.body) > max_body_bytes else None
    attributes = {f"ce-{name}": value for name, value in _attributes(origin, content, now, omitted, status)}
    body = content.body if omitted is None else b""
    return LoggedEvent({"content-type": content.type, **attributes}, body)


def _attributes(
    origin: Origin, content: Content, now: float, omitted: int | None, status: int | None
) -> Iterator[tuple[str, str]]:
    namespace, _, name = origin.session_key.partition("/")
    yield "specversion", _VERSION
    yield "id", origin.id
    yield "source", f"/{namespace}/{name}"
    yield "type", REQUEST_TYPE if status is None else RESPONSE_TYPE
    yield "time", datetime.fromtimestamp(now, UTC).isoformat()
    yield "namespace", namespace
    yield "inferenceservicename", name
    yield PROTOCOL_ATTRIBUTE, origin.protocol
    if content.header_length is not None:
        yield HEADER_LENGTH_ATTRIBUTE, str(content.header_length)
    if omitted is not None:
        yield OMITTED_ATTRIBUTE, str(omitted)
    if status is not None:
        yield STATUS_ATTRIBUTE, str(status)
