"""A log of requests as CloudEvents, one JSON object on each line, as collectors of KServe's logger store them. Pure."""

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partita_runtime.serving.protocol.inference import first_problem
from partita_runtime.serving.protocol.inference_client import Payload

REQUEST_TYPE: Final = "org.kubeflow.serving.inference.request"
"""The type of the events that are requests; others are ignored."""


class LoggedRequest(NamedTuple):
    """A request of the log."""

    second: float
    """When it was logged, from the first request of the log on."""
    payload: Payload
    is_v1: bool
    """Whether it is of KServe's V1 protocol; otherwise of the Open Inference Protocol."""


class _Event(BaseModel):
    model_config = ConfigDict(extra="ignore")

    type: str
    time: datetime
    datacontenttype: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,200}$")] = "application/json"
    data: Any = None
    data_base64: str | None = None


def logged_requests(lines: Iterable[str]) -> Sequence[LoggedRequest]:
    """The requests of a log, in the order of their times. Empty lines and other events are skipped.

    Raises ValueError with the number of a line that is no CloudEvent in JSON, or whose request has no time or no data.
    """
    found = [event for number, line in enumerate(lines, 1) if line.strip() and (event := _event(number, line))]
    if not found:
        raise ValueError(f"the log has no requests: events of type {REQUEST_TYPE}")
    found.sort(key=lambda event: event[0])
    first = found[0][0]
    return [LoggedRequest((at - first).total_seconds(), payload, _is_v1(payload.body)) for at, payload in found]


def _is_v1(body: bytes) -> bool:
    """Whether a body has rows; one that is not JSON has none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and "instances" in content


def _event(number: int, line: str) -> tuple[datetime, Payload] | None:
    try:
        kind = json.loads(line)
        if isinstance(kind, dict) and "specversion" in kind and kind.get("type") != REQUEST_TYPE:
            return None
        event = _Event.model_validate(kind)
        body = _body(event)
    except ValidationError as error:
        raise ValueError(f"line {number}: {first_problem(error, 'the event')}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} is not a CloudEvent with a request: {error}") from None
    at = event.time if event.time.tzinfo is not None else event.time.replace(tzinfo=UTC)
    return at, Payload({"Content-Type": event.datacontenttype}, body)


def _body(event: _Event) -> bytes:
    if event.datacontenttype == "application/octet-stream":
        raise ValueError("binary tensors cannot be replayed, because the log does not have the length of their JSON")
    if event.data_base64 is not None:
        try:
            return base64.b64decode(event.data_base64, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("data_base64 is not base64") from None
    if event.data is None:
        raise ValueError("it has no data")
    text = event.data if isinstance(event.data, str) else json.dumps(event.data, separators=(",", ":"))
    return text.encode()
