"""What a coordinator and its frontends send: objects with named fields, each of which is checked on arrival."""

import json
import struct
from typing import Any

import pytest

from partita_runtime.scheduling.events import DropReason
from partita_runtime.serving.central.messages import (
    COORDINATOR_DIALECT,
    BatchDelays,
    BatchFailed,
    CoordinatorMessage,
    Decisions,
    FrontendEvents,
    StageCompleted,
    SubRequestArrived,
    SubRequestDropped,
    WorkerBusy,
    WorkerJoined,
    WorkerLeft,
)
from partita_runtime.serving.transport.wire import Decoder, WireError, encode

PREFIX = struct.Struct("<4sIQ")
EVENTS = FrontendEvents(
    sent=9,
    delays=BatchDelays(control=3, per_request=1),
    workers_joined=(WorkerJoined("detector", "a", 0, worker="w", node="n"),),
    workers_busy=(WorkerBusy("w", until=70),),
    arrived=(SubRequestArrived(1, "detector", deadline=50, at=8, call=3),),
    completed=(StageCompleted(4, stage=0, at=7, took=None),),
    failed=(BatchFailed(5, reason="why"),),
    workers_left=(WorkerLeft("detector", "a", 0, worker="w"),),
)
DECISIONS = Decisions(due=9, drops=(SubRequestDropped(1, "detector", DropReason.TOO_LATE, detail=""),))


def decode(message: CoordinatorMessage, **changed: Any) -> CoordinatorMessage:
    """A message after its way through a stream, with fields of its JSON changed."""
    header = json.dumps(json.loads(message.model_dump_json()) | changed).encode()
    magic = bytes(encode(message)[0][:4])
    decoder = Decoder(COORDINATOR_DIALECT, lambda _: None)
    for part in (PREFIX.pack(magic, len(header), 0), header):
        decoder.buffer()[: len(part)] = part
        complete = decoder.received(len(part))
    assert complete is not None
    return complete[0]


@pytest.mark.parametrize("message", [EVENTS, DECISIONS], ids=["events", "decisions"])
def test_messages_arrive_as_they_were_sent(message: CoordinatorMessage) -> None:
    assert decode(message) == message


def test_entries_have_names_on_the_wire() -> None:
    sent = json.loads(EVENTS.model_dump_json())

    assert sent["arrived"] == [{"id": 1, "module": "detector", "deadline": 50, "at": 8, "call": 3}]
    assert sent["completed"] == [{"batch": 4, "stage": 0, "at": 7, "took": None}]
    assert sent["workers_joined"] == [{"module": "detector", "pipeline": "a", "stage": 0, "worker": "w", "node": "n"}]


ARRIVED = {"id": 1, "module": "detector", "deadline": 50, "at": 8, "call": 3}


@pytest.mark.parametrize(
    ("changed", "want_message"),
    [
        pytest.param({"arrived": [[1, "detector", 50, 8]]}, "frontend_events.arrived.0: ", id="an array"),
        pytest.param(
            {"arrived": [ARRIVED | {"deadline": "soon"}]}, r"arrived.0.deadline: .*integer", id="another type"
        ),
        pytest.param({"arrived": [ARRIVED | {"id": -1}]}, r"arrived.0.id: .*greater", id="out of range"),
        pytest.param({"arrived": [ARRIVED, {"id": 1}]}, r"arrived.1.module: .*required", id="a field is missing"),
        pytest.param({"arrived": [ARRIVED | {"x" * 999: 1}]}, r"arrived.0.x{1,200}: ", id="an unknown field"),
    ],
)
def test_an_entry_that_is_not_valid_is_refused_by_the_name_of_its_field(
    changed: dict[str, Any], want_message: str
) -> None:
    with pytest.raises(WireError, match=want_message):
        decode(EVENTS, **changed)
