"""A log of requests as CloudEvents, one JSON object on each line: Partita's request log, or that of KServe. Pure."""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partita_runtime.serving.protocol.inference import first_problem
from partita_runtime.serving.protocol.inference_client import HEADER_LENGTH, Payload
from partita_runtime.serving.telemetry.logged_events import REQUEST_TYPE, V1


class LoggedRequest(NamedTuple):
    """A request of the log."""

    second: float
    """When it was logged, from the first request of the log on."""
    payload: Payload
    is_v1: bool
    """Whether it is of KServe's V1 protocol; otherwise of the Open Inference Protocol."""


class EventLog(NamedTuple):
    """What a log has."""

    requests: Sequence[LoggedRequest]
    """In the order of their times."""
    without_body: int
    """Requests that the log has without their bodies, because they were too large for it."""


_BINARY: Final = "application/octet-stream"


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: str
    time: datetime
    # Attributes of Partita's events (serving.telemetry.logged_events), which KServe's do not have.
    jsonheaderlength: Annotated[int, Field(ge=0)] | None = None
    omittedbytes: int | None = None
    protocol: Literal["v1", "v2"] | None = None
    datacontenttype: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,200}$")] = "application/json"
    data: Any = None
    data_base64: str | None = None


def read_log(lines: Iterable[str]) -> EventLog:
    """The requests of a log. Empty lines and other events are skipped.

    Raises ValueError with the number of a line that is no CloudEvent in JSON, or whose request has no time or no data.
    """
    events = [event for number, line in enumerate(lines, 1) if line.strip() and (event := _event(number, line))]
    found = sorted(((at, payload, is_v1) for at, payload, is_v1 in events if payload is not None), key=lambda e: e[0])
    if not found:
        raise ValueError(f"the log has no requests with a body: events of type {REQUEST_TYPE}")
    first = found[0][0]
    requests = [LoggedRequest((at - first).total_seconds(), payload, is_v1) for at, payload, is_v1 in found]
    return EventLog(requests, len(events) - len(found))


def _event(number: int, line: str) -> tuple[datetime, Payload | None, bool] | None:
    """Time, request and protocol; no request if the event has no body; None for another event."""
    try:
        kind = json.loads(line)
        if isinstance(kind, dict) and "specversion" in kind and kind.get("type") != REQUEST_TYPE:
            return None
        event = _Event.model_validate(kind)
        body = None if event.omittedbytes is not None else _body(event)
    except ValidationError as error:
        raise ValueError(f"line {number}: {first_problem(error, 'the event')}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not a CloudEvent with a request: {error}") from None
    at = event.time if event.time.tzinfo is not None else event.time.replace(tzinfo=UTC)
    if body is None:
        return at, None, False
    headers = {"Content-Type": event.datacontenttype}
    if event.jsonheaderlength is not None:
        headers[HEADER_LENGTH] = str(event.jsonheaderlength)
    return at, Payload(headers, body), _is_v1(event.protocol, body)


def _is_v1(protocol: str | None, body: bytes) -> bool:
    """Whether a request is of V1: as its event says, else if it has rows; one that is not JSON has none."""
    if protocol is not None:
        return protocol == V1
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "instances" in content


def _body(event: _Event) -> bytes:
    # Partita's events have the protocol, and no length if the body has no binary tensors.
    if event.datacontenttype == _BINARY and event.jsonheaderlength is None and event.protocol is None:
        raise ValueError("binary tensors need the length of their JSON, in the attribute jsonheaderlength")
    if event.data_base64 is not None:
        try:
            return base64.b64decode(event.data_base64, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("data_base64 is not base64") from None
    if event.data is None:
        raise ValueError("it has no data")
    text = event.data if isinstance(event.data, str) else json.dumps(event.data, separators=(",", ":"))
    return text.encode()
