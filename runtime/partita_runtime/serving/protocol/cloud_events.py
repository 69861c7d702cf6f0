"""Inference requests that are CloudEvents 1.0, over HTTP in binary and in structured content mode. Pure.

Specification: https://github.com/cloudevents/spec (http-protocol-binding.md, json-format.md). The attributes of answers
are those of KServe.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from partita_runtime.serving.protocol.inference import RequestError

STRUCTURED_TYPE: Final = "application/cloudevents+json"
"""Content type of an event in structured mode."""
VERSION: Final = "1.0"
_PREFIX: Final = "ce-"
_MAX_ATTRIBUTE: Final = 1024
"""Most characters of an attribute."""
_REQUIRED: Final = ("id", "source", "type")

_Attribute = Annotated[str, Field(min_length=1, max_length=_MAX_ATTRIBUTE)]


class EventMode(Enum):
    """How a request is an event."""

    BINARY = auto()
    """Its attributes are headers, and the body is the data."""
    STRUCTURED = auto()
    """The body is a JSON object with attributes and data."""


class StructuredEvent(BaseModel):
    """What is read of an event in structured mode; subclasses have a field `data` with the protocol's request."""

    model_config = ConfigDict(extra="ignore")

    specversion: str
    id: _Attribute
    source: _Attribute
    type: _Attribute
    data_base64: str | None = None


def event_mode(headers: Mapping[str, str], content_type: str) -> EventMode | None:
    """How a request with these headers (in lower case) is an event; None if it is not.

    Raises RequestError (400) for an event in binary mode without the attributes that it needs.
    """
    if content_type == STRUCTURED_TYPE:
        return EventMode.STRUCTURED
    version = headers.get(f"{_PREFIX}specversion")
    if version is None:
        return None
    check_version(version)
    for name in _REQUIRED:
        if not 1 <= len(headers.get(_PREFIX + name, "")) <= _MAX_ATTRIBUTE:
            raise RequestError(400, f"a CloudEvent needs {_PREFIX}{name} with 1 to {_MAX_ATTRIBUTE} characters")
    return EventMode.BINARY


def check_version(version: str) -> None:
    """Raise RequestError (400) for another version of CloudEvents."""
    if version != VERSION:
        raise RequestError(400, f"CloudEvents {version!r:.80} are not supported; send specversion {VERSION}")


def event_data(event: StructuredEvent) -> bytes:
    """The data of an event that is in base64. Raises RequestError (400) if there is none."""
    if event.data_base64 is None:
        raise RequestError(400, "the CloudEvent has no data; send the request as data, or in base64 as data_base64")
    try:
        return base64.b64decode(event.data_base64, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(400, "data_base64 of the CloudEvent is not base64") from None


def answer_attributes(model: str, event_id: str, now: float) -> dict[str, str]:
    """The attributes of the event that answers a request, at `now` (seconds since 1970)."""
    return {
        "specversion": VERSION,
        "id": event_id,
        "source": f"io.kserve.inference.{model}",
        "type": "io.kserve.inference.response",
        "time": datetime.fromtimestamp(now, UTC).isoformat(),
    }


def as_event(
    mode: EventMode, attributes: Mapping[str, str], headers: Mapping[str, str], content: bytes
) -> tuple[dict[str, str], bytes]:
    """HTTP headers and body of an answer in this mode. In structured mode its content is JSON."""
    if mode is EventMode.BINARY:
        return {**headers, **{_PREFIX + name: value for name, value in attributes.items()}}, content
    described: dict[str, Any] = {**attributes, "datacontenttype": headers["content-type"]}
    text = json.dumps(described, separators=(",", ":")).encode()
    return {"content-type": STRUCTURED_TYPE}, b'%b,"data":%b}' % (text[:-1], content)
