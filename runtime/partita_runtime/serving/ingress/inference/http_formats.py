"""The formats of inference requests over HTTP: the Open Inference Protocol or V1, plain or as CloudEvents."""

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from partita_runtime.execution.executor import Array
from partita_runtime.serving.protocol import oip, v1
from partita_runtime.serving.protocol.cloud_events import (
    EventMode,
    StructuredEvent,
    answer_attributes,
    as_event,
    check_version,
    event_data,
)
from partita_runtime.serving.protocol.images import image_request, is_image
from partita_runtime.serving.protocol.inference import Body, InferRequest
from partita_runtime.serving.protocol.interface import Interface

Encoded = tuple[dict[str, str], bytes]
"""HTTP headers and body."""
Encode = Callable[[InferRequest, Interface, Mapping[str, Array]], Encoded]
"""Writes the answer to a request."""


class _OipEvent(StructuredEvent):
    data: oip.RequestHeader | None = None


class _V1Event(StructuredEvent):
    data: v1.PredictRequest | None = None


class Received(NamedTuple):
    """A request that has arrived."""

    body: Body
    content_type: str
    headers: Mapping[str, str]
    max_json_bytes: int


class HttpFormat(NamedTuple):
    """How requests are read and answers are written. Both raise RequestError."""

    decode: Callable[[Received, Interface], InferRequest]
    encode: Encode


def format_of(is_v1: bool, mode: EventMode | None) -> HttpFormat:
    """The format of requests by V1, or by the Open Inference Protocol."""
    return _FORMATS[is_v1, mode]


def _oip(received: Received, interface: Interface) -> InferRequest:
    if is_image(received.content_type, received.body):
        return image_request(received.body, interface)
    length = received.headers.get(oip.HEADER_LENGTH)
    return oip.decode_request(received.body, length, interface, received.max_json_bytes)


def _v1(received: Received, interface: Interface) -> InferRequest:
    return v1.decode_request(received.body, interface, received.max_json_bytes)


def _structured_oip(received: Received, interface: Interface) -> InferRequest:
    event = _event(_OipEvent, received)
    if event.data is not None:
        return oip.request_in_json(event.data, interface)
    body = event_data(event)
    if is_image("", body):
        return image_request(body, interface)
    return oip.request_in_json(oip.parsed(oip.RequestHeader, body), interface)


def _structured_v1(received: Received, interface: Interface) -> InferRequest:
    event = _event(_V1Event, received)
    if event.data is not None:
        return v1.request_of(event.data, interface)
    return v1.decode_request(event_data(event), interface, received.max_json_bytes)


def _event(model: type[oip.Parsed], received: Received) -> oip.Parsed:
    oip.check_json_size(len(received.body), received.max_json_bytes)
    event = oip.parsed(model, bytes(received.body))
    assert isinstance(event, StructuredEvent)
    check_version(event.specversion)
    return event


def _v1_answer(_request: InferRequest, interface: Interface, tensors: Mapping[str, Array]) -> Encoded:
    return v1.encode_answer(interface, tensors)


def _in_event(mode: EventMode, encode: Encode) -> Encode:
    """`encode`, as an event."""

    def encoded(request: InferRequest, interface: Interface, tensors: Mapping[str, Array]) -> Encoded:
        headers, content = encode(request, interface, tensors)
        attributes = answer_attributes(interface.model_name, str(uuid.uuid4()), time.time())
        return as_event(mode, attributes, headers, content)

    return encoded


_FORMATS: Final[Mapping[tuple[bool, EventMode | None], HttpFormat]] = {
    (False, None): HttpFormat(_oip, oip.encode_answer),
    (False, EventMode.BINARY): HttpFormat(_oip, _in_event(EventMode.BINARY, oip.encode_answer)),
    (False, EventMode.STRUCTURED): HttpFormat(_structured_oip, _in_event(EventMode.STRUCTURED, oip.encode_answer)),
    (True, None): HttpFormat(_v1, _v1_answer),
    (True, EventMode.BINARY): HttpFormat(_v1, _in_event(EventMode.BINARY, _v1_answer)),
    (True, EventMode.STRUCTURED): HttpFormat(_structured_v1, _in_event(EventMode.STRUCTURED, _v1_answer)),
}
