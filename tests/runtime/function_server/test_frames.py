"""Frames carry JSON and arrays unchanged, and bytes that are no frame are refused before anything is made of them."""

import json
from typing import Any

import numpy as np
import pytest

from partita_runtime.function_server.frames import (
    MAX_BODY_BYTES,
    NUMBERS,
    PREFIX,
    FrameError,
    decode,
    encode,
    lengths,
)
from partita_runtime.function_server.messages import (
    CallOutcome,
    FunctionCall,
    LoadedFunction,
    calls_frame,
    loaded_frame,
    outcome_frame,
    to_calls,
    to_loaded,
    to_outcome,
)


def parts(chunks: Any) -> tuple[bytes, bytearray]:
    whole = b"".join(chunks)
    header, body = lengths(whole[: PREFIX.size])
    assert len(whole) == PREFIX.size + header + body
    return whole[PREFIX.size : PREFIX.size + header], bytearray(whole[PREFIX.size + header :])


@pytest.mark.parametrize(
    "array",
    [
        *(pytest.param(np.arange(6).reshape(2, 3).astype(name), id=name) for name in NUMBERS),
        pytest.param(np.array(3.5), id="a scalar"),
        pytest.param(np.empty((0, 4), np.float32), id="nothing"),
        pytest.param(np.arange(6, dtype=np.int32).reshape(2, 3).T, id="columns"),
        pytest.param(np.arange(3, dtype=">i4"), id="big-endian"),
        pytest.param(np.array([[b"one", b""], [b"nul\0", b"\xff"]], np.object_), id="texts"),
        pytest.param(np.empty(0, np.object_), id="no texts"),
    ],
)
def test_arrays_arrive_unchanged_and_can_be_written_to(array: Any) -> None:
    before = np.array([7], np.uint8)  # moves the next one within the body
    value, (_, got) = decode(*parts(encode({"kept": ["\u00fc", 1.5, None]}, [before, array])))
    assert value == {"kept": ["\u00fc", 1.5, None]}
    assert (got.dtype, got.shape) == (array.dtype.newbyteorder("="), array.shape)
    assert np.array_equal(got, array)
    assert got.flags.writeable
    assert got.flags.aligned


@pytest.mark.parametrize("array", [np.array([1j]), np.array(["2026-01-01"], "M8[D]"), np.array([1], np.longdouble)])
def test_other_arrays_cannot_be_sent(array: Any) -> None:
    with pytest.raises(FrameError, match="cannot be sent; convert them to one of bool, int8"):
        encode(None, [array])


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("listed", "body"),
    [
        pytest.param([["float32", [2], 8]], b"", id="no body"),
        pytest.param([], bytes(16), id="more body"),
        pytest.param([["float32", [3], 8]], bytes(16), id="another shape"),
        pytest.param([["float32", [-2, -1], 8]], bytes(16), id="negative lengths"),
        pytest.param([["float32", [HUGE, HUGE, 0], 0]], b"", id="lengths beyond memory"),
        pytest.param([["float32", [True, 2], 8]], bytes(16), id="no lengths"),
        pytest.param([["float32", [2], -8]], bytes(16), id="a negative size"),
        pytest.param([["object", [1], 8]], bytes(16), id="objects"),
        pytest.param([["O", [1], 8]], bytes(16), id="objects by another name"),
        pytest.param([[["float32"], [2], 8]], bytes(16), id="no element type"),
        pytest.param([["bytes", [HUGE], 8]], bytes(16), id="more texts than bytes"),
        pytest.param([["bytes", [1], 8]], b"\xff\xff\xff\xff" + bytes(12), id="a longer text"),
        pytest.param([["bytes", [1], 8]], bytes(16), id="a shorter text"),
        pytest.param([["bytes", [2], 16]], b"\xff\xff\xff\xff" * 2 + bytes(8), id="longer texts"),
        pytest.param("nothing", b"", id="no list"),
        pytest.param([1], b"", id="no array"),
    ],
)
def test_a_wrong_list_of_arrays_is_refused(listed: Any, body: bytes) -> None:
    with pytest.raises(FrameError):
        decode(json.dumps([None, listed]).encode(), body)


@pytest.mark.parametrize("header", [b"", b"\x80\x04N.", b"[1", b"[" * 100_000, b"[1]", b"9" * 10_000, b"[null, null]"])
def test_a_header_that_is_not_json_of_two_parts_is_refused(header: bytes) -> None:
    with pytest.raises(FrameError):
        decode(header, b"")


def test_the_size_of_an_answer_is_bounded_before_it_is_read() -> None:
    with pytest.raises(FrameError, match="are above"):
        lengths(PREFIX.pack(10, MAX_BODY_BYTES + 1))


def test_messages_arrive_unchanged() -> None:
    rows = [np.zeros((1, 2)), np.ones((3, 2))]
    call = FunctionCall("a:b", {"to": [1]}, {"input": np.array(1)}, {"up": [rows, np.arange(3)]})
    [(number, got), cancelled] = to_calls(*decode(*parts(calls_frame([(7, call), (8, None)]))))
    assert cancelled == (8, None)
    assert got is not None
    assert (number, got.entrypoint, got.kwargs) == (7, "a:b", {"to": [1]})
    assert np.array_equal(got.request["input"], 1)
    assert [each.tolist() for each in got.upstream["up"][0]] == [each.tolist() for each in rows]
    assert np.array_equal(got.upstream["up"][1], np.arange(3))

    answer = {"next": np.arange(2), "encoder": {"ids": rows}}
    number, outcome = to_outcome(*decode(*parts(outcome_frame(9, CallOutcome(answer)))))
    assert number == 9
    assert outcome.answer is not None
    assert np.array_equal(outcome.answer["next"], np.arange(2))
    assert [each.shape for each in outcome.answer["encoder"]["ids"]] == [(1, 2), (3, 2)]

    refused = CallOutcome(None, "not this one", True)
    assert to_outcome(*decode(*parts(outcome_frame(9, refused)))) == (9, refused)
    loaded = [LoadedFunction("no"), LoadedFunction(is_asynchronous=True, module="a")]
    assert to_loaded(decode(*parts(loaded_frame(loaded)))[0], ["a:b", "a:c"]) == loaded


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [1, None, "", False, 0],
        ["1", None, "", False],
        [1, [], "", False],
        [1, None, 5, False],
        [1, {"next": 0}, "", False],
        [1, {"next": -1}, "", False],
        [1, {"next": "0"}, "", False],
        [1, {"next": [None]}, "", False],
        [1, {"next": {"part": {"part": 0}}}, "", False],
    ],
)
def test_a_wrong_outcome_is_refused(value: Any) -> None:
    with pytest.raises(FrameError):
        to_outcome(value, [])


@pytest.mark.parametrize("value", [None, 5, [["no", False, 5]], [[5, False, None]], [["", False, None]] * 2])
def test_a_wrong_list_of_functions_is_refused(value: Any) -> None:
    with pytest.raises(FrameError):
        to_loaded(value, ["a:b"])


def test_an_answer_that_cannot_be_sent_is_a_problem() -> None:
    _, outcome = to_outcome(*decode(*parts(outcome_frame(1, CallOutcome({"next": np.array([1j])})))))
    assert outcome.answer is None
    assert outcome.problem.startswith("its answer cannot be sent: arrays of complex128 cannot be sent")
