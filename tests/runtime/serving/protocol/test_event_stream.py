"""Server-sent events, written and read."""

import pytest

from partita_runtime.serving.protocol.event_stream import EventReader, StreamEvent, asks_for_events, error_event


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        pytest.param("text/event-stream", True, id="alone"),
        pytest.param("application/json,  Text/Event-Stream;q=0.5", True, id="among others"),
        pytest.param("*/*", False, id="anything"),
        pytest.param("text/*", False, id="any text"),
        pytest.param("text/event-streams", False, id="another type"),
        pytest.param(None, False, id="no header"),
    ],
)
def test_only_the_media_type_itself_asks_for_events(accept: str | None, want: bool) -> None:
    assert asks_for_events({} if accept is None else {"accept": accept}) is want


STREAM = (
    b': a comment\r\nevent: output\r\ndata: {"a":1}\r\n\r\n'
    b"id: 3\ndata\ndata:  two\ndata:lines\n\nevent: none\n\ndata: half\n"
)
EVENTS = [StreamEvent("output", b'{"a":1}'), StreamEvent("message", b"\n two\nlines")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
def test_a_stream_may_arrive_in_parts_of_any_size(size: int) -> None:
    reader = EventReader()
    parts = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [event for part in parts for event in reader.events(part)] == EVENTS


@pytest.mark.parametrize("event", [*EVENTS, StreamEvent("answer", b"")])
def test_what_is_written_can_be_read(event: StreamEvent) -> None:
    assert [*EventReader().events(event.encoded)] == [event]


def test_an_error_has_its_body_and_the_status_of_the_answer() -> None:
    (event,) = EventReader().events(error_event(504, b'{"error":"late"}'))
    assert event == StreamEvent("error", b'{"error":"late","status":504}')
