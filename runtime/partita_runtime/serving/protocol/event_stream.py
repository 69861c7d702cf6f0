"""Answers as server-sent events: each output as soon as it is known, then the rest of the answer, or an error. Pure.

Specification: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from partita_runtime.execution.executor import Array
from partita_runtime.serving.protocol.inference import InferRequest, RequestError, listed, output_of
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.oip import answer_header, in_json

EVENT_STREAM: Final = "text/event-stream"
EVENT_HEADERS: Final[Mapping[str, str]] = {
    "content-type": EVENT_STREAM,
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # else nginx would send no event before its buffer is full
}
"""HTTP headers of a stream."""
OUTPUT: Final = "output"
ANSWER: Final = "answer"
ERROR: Final = "error"


class StreamEvent(NamedTuple):
    """One event."""

    kind: str
    """`message` if it has no name."""
    data: bytes

    @property
    def encoded(self) -> bytes:
        """Its bytes in a stream."""
        return b"event: %b\ndata: %b\n\n" % (self.kind.encode(), self.data.replace(b"\n", b"\ndata: "))


def asks_for_events(headers: Mapping[str, str]) -> bool:
    """Whether a request with these headers (in lower case) asks for an event stream."""
    media_ranges = headers.get("accept", "").lower().split(",")
    return any(media_range.partition(";")[0].strip() == EVENT_STREAM for media_range in media_ranges)


def check_no_binary(requested: InferRequest) -> None:
    """Raise RequestError (400) if an output is requested as binary data."""
    binary = [name for name, is_binary in (requested.outputs or {}).items() if is_binary]
    if binary or (requested.binary and requested.outputs is None):
        named = f" for {listed(binary)}" if binary else ""
        raise RequestError(
            400, f"an event stream has no binary data{named}; ask for JSON, or leave out Accept: {EVENT_STREAM}"
        )


class EventStream:
    """The events that answer one request."""

    def __init__(self, requested: InferRequest) -> None:
        self._requested = requested
        self._sent: set[str] = set()

    @property
    def has_begun(self) -> bool:
        """Whether there have been events."""
        return bool(self._sent)

    def outputs(self, tensors: Mapping[str, Array]) -> bytes:
        """The events of those of these tensors that are requested; empty if there are none.

        Raises RequestError (500) if one cannot be encoded.
        """
        requested = self._requested.outputs
        return self._unsent([name for name in tensors if requested is None or name in requested], tensors)

    def end(self, interface: Interface, tensors: Mapping[str, Array]) -> bytes:
        """The events that are left, from all tensors of the answer.

        Raises RequestError (500) if a requested tensor is missing or cannot be encoded.
        """
        requested = self._requested.outputs
        names = [*(tensors if requested is None else requested)]
        header = answer_header(interface.model_name, [{"name": name} for name in names], self._requested.id)
        return self._unsent(names, tensors) + StreamEvent(ANSWER, header).encoded

    def _unsent(self, names: Iterable[str], tensors: Mapping[str, Array]) -> bytes:
        unsent = [name for name in names if name not in self._sent]
        events = [StreamEvent(OUTPUT, _json(in_json(output_of(name, tensors)))).encoded for name in unsent]
        self._sent.update(unsent)
        return b"".join(events)


def error_event(status: int, body: bytes) -> bytes:
    """The last event of a stream that fails: the error's body in JSON, with the HTTP status that it would have."""
    return StreamEvent(ERROR, _json({**json.loads(body), "status": status})).encoded


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


class EventReader:
    """Reads the events of a stream that arrives in parts."""

    def __init__(self) -> None:
        self._line = bytearray()
        """The beginning of a line that has arrived in part."""
        self._kind = ""
        self._data: list[bytes] = []

    def events(self, part: bytes) -> Iterator[StreamEvent]:
        """The events that are complete with this part."""
        *ends, rest = part.split(b"\n")
        for end in ends:
            self._line += end
            line, self._line = bytes(self._line).removesuffix(b"\r"), bytearray()
            if line:
                self._take(line)
                continue
            if self._data:
                yield StreamEvent(self._kind or "message", b"\n".join(self._data))
            self._kind, self._data = "", []
        self._line += rest

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"event":
            self._kind = value.removeprefix(b" ").decode(errors="replace")
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
