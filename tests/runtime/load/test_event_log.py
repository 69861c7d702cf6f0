"""Logs of requests as CloudEvents, as collectors store what KServe's logger sends."""

import base64
import json
from typing import Any, Final

import pytest

from partita_runtime.load.event_log import read_log
from partita_runtime.serving.telemetry.logged_events import REQUEST_TYPE

ROWS: Final = {"instances": [[1, 2]]}
TENSORS: Final[dict[str, list[int]]] = {"inputs": []}
BINARY: Final = "application/octet-stream"


def event(second: int = 0, **fields: Any) -> str:
    """A line of a log; None removes a field."""
    made = {
        "specversion": "1.0",
        "id": "0f3c",
        "source": "http://localhost:9081/",
        "type": REQUEST_TYPE,
        "time": f"2026-11-27T10:00:{second:02}.5Z",
        "datacontenttype": "application/json",
        "inferenceservicename": "traffic",
        "data": ROWS,
        **fields,
    }
    return json.dumps({name: value for name, value in made.items() if value is not None})


def test_requests_are_in_the_order_of_their_times() -> None:
    answer = event(1, type="org.kubeflow.serving.inference.response", data={"predictions": [1]})
    encoded = base64.b64encode(json.dumps(TENSORS).encode()).decode()
    lines = [event(7, data=None, data_base64=encoded), "\n", answer, event(2), event(4, data=json.dumps(TENSORS))]
    requests = read_log(lines).requests
    assert [request.second for request in requests] == [0.0, 2.0, 5.0]
    assert [json.loads(request.payload.body) for request in requests] == [ROWS, TENSORS, TENSORS]
    assert [request.is_v1 for request in requests] == [True, False, False]
    assert {request.payload.headers["Content-Type"] for request in requests} == {"application/json"}


def test_times_of_different_zones_are_compared() -> None:
    lines = [
        event(time="2026-11-27T11:00:00+01:00"),
        event(time="2026-11-27T10:00:03Z"),
        event(time="2026-11-27T10:00:04"),
    ]
    assert [request.second for request in read_log(lines).requests] == [0.0, 3.0, 4.0]


@pytest.mark.parametrize("length", [14, "14"])
def test_binary_tensors_with_the_length_of_their_json(length: int | str) -> None:
    body = b'{"inputs": []}\0\1\2\3'
    encoded = base64.b64encode(body).decode()
    line = event(data=None, data_base64=encoded, datacontenttype=BINARY, jsonheaderlength=length, protocol="v2")
    ((_, payload, is_v1),) = read_log([line]).requests
    assert (payload.body, is_v1) == (body, False)
    assert payload.headers == {"Content-Type": BINARY, "Inference-Header-Content-Length": "14"}


def test_the_protocol_of_an_event_counts_before_its_rows() -> None:
    lines = [event(1, protocol="v2"), event(2, protocol="v1", data={"specversion": "1.0", "data": ROWS})]
    assert [request.is_v1 for request in read_log(lines).requests] == [False, True]


def test_requests_without_their_bodies_are_counted() -> None:
    found = read_log([event(), event(1, data=None, omittedbytes="2000000"), event(2)])
    assert ([request.second for request in found.requests], found.without_body) == ([0.0, 2.0], 1)


@pytest.mark.parametrize(
    ("line", "want_message"),
    [
        pytest.param("{", "line 2 is not a CloudEvent", id="no JSON"),
        pytest.param("[" * 200_000, "line 2 is not a CloudEvent", id="nested without end"),
        pytest.param("[]", "line 2: the event", id="no object"),
        pytest.param("{}", "line 2: type: Field required", id="no event"),
        pytest.param(event(time=None), "line 2: time: Field required", id="no time"),
        pytest.param(event(time="soon"), "line 2: time", id="a time that is none"),
        pytest.param(event(data=None), "it has no data", id="no data"),
        pytest.param(event(data=None, data_base64="%"), "not base64", id="no base64"),
        pytest.param(event(datacontenttype="a\r\nHost: b"), "line 2: datacontenttype", id="a header in a header"),
        pytest.param(event(datacontenttype=BINARY), "need the length of their JSON", id="binary tensors of KServe"),
        pytest.param(event(jsonheaderlength="x"), "line 2: jsonheaderlength", id="a length that is none"),
        pytest.param(event(jsonheaderlength=-1), "line 2: jsonheaderlength", id="a negative length"),
        pytest.param(event(protocol="v9"), "line 2: protocol", id="another protocol"),
    ],
)
def test_lines_that_cannot_be_replayed(line: str, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        read_log([event(), line])


def test_a_log_without_requests() -> None:
    with pytest.raises(ValueError, match="the log has no requests"):
        read_log([event(type="org.kubeflow.serving.inference.response"), ""])
