"""Damaged input for parsers of what others write: each returns something valid, or raises its own error.

A longer run: HYPOTHESIS_PROFILE=fuzz
"""

import contextlib
import json
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
import yaml
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.crds.documents import PLAN, POOL, SESSION
from tests.operator.doubles import made_profile
from tests.operator.profiling.requests import quick
from tests.runtime.serving.in_process.stand import LocalDirectory
from tests.runtime.serving.ingress.raw_http import post
from tests.runtime.serving.plans import application

from partita_api.manifests import ManifestError, parse_manifests
from partita_api.profile import Profile
from partita_api.session.module import DType, ImageInput, TensorSpec
from partita_profiling.result import ERROR_PREFIX, RESULT_PREFIX, parse_result, result_line
from partita_runtime.serving.ingress.http_head import HeadReader
from partita_runtime.serving.ingress.http_service import HttpCall, HttpService
from partita_runtime.serving.protocol import grpc_codec, oip
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import InferRequest, RequestError
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.transport.wire import (
    STAGE_DIALECT,
    Decoder,
    Hello,
    PeerAddress,
    Reserve,
    RunBatch,
    WireError,
    encode,
    tensor_header,
)

APP = application("plain").model("only", input=(3, 2, 2), image=ImageInput())
INTERFACE = Interface("plain", APP.session.spec, APP.epoch.outputs)
TAKER = (
    application("plain")
    .function("texts", "echo", input=TensorSpec(shape=(3,), dtype=DType.BYTES))
    .function("flags", "echo", input=TensorSpec(shape=(4,), dtype=DType.BOOL))
    .model("only")
    .edge("flags", "only")
)
TAKER_INTERFACE = Interface("plain", TAKER.session.spec, TAKER.epoch.outputs)
"""Its requests have texts and truth values."""
SAMPLE = np.zeros((1, 3, 2, 2), np.float32)

Damage = Callable[[bytes], bytes]


def damaged(*tokens: bytes) -> st.SearchStrategy[Damage]:
    """Changes of a valid input: pieces of it cut out, repeated, moved, or replaced by noise or one of `tokens`."""
    piece = st.sampled_from(tokens) | st.binary(max_size=8)
    where = st.tuples(st.floats(0, 1), st.floats(0, 0.3))

    def changed(data: bytes, changes: list[tuple[tuple[float, float], bytes | None]]) -> bytes:
        for (start, length), new in changes:
            first = int(start * len(data))
            last = first + int(length * (len(data) - first))
            data = data[:first] + (2 * data[first:last] if new is None else new) + data[last:]
        return data

    return st.lists(st.tuples(where, piece | st.none()), max_size=4).map(
        lambda changes: lambda data: changed(data, changes)
    )


NUMBERS = (b"0", b"-1", b"1e999", b"NaN", b"true", b"null", b"9" * 25, b"9" * 5000, b"18446744073709551615")

T = TypeVar("T")


def unless_refused(read: Callable[[], T]) -> T | None:
    """What is read; None if the client gets an error that says that its request is wrong."""
    try:
        return read()
    except RequestError as error:
        if error.status not in (400, 413):
            raise
        return None


HEADS = (
    post(b"{}", {"Expect": "100-continue", "Inference-Header-Content-Length": 2}),
    post(b"", {"Content-Length": None, "Transfer-Encoding": "chunked"}),
    b"GET /default/plain/v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
)
HEAD_TOKENS = (
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b": ",
    b"HTTP/1.1",
    b"%00%ff",
    b"Content-Length: 5\r\n",
    b"//[",
)
HEAD_READER = HeadReader(
    HttpService(Session("default/plain", FrontendSettings(), LocalDirectory())), base_url="/default/plain"
)


@given(st.sampled_from(HEADS), damaged(*NUMBERS, *HEAD_TOKENS))
def test_heads_of_http(head: bytes, damage: Damage) -> None:
    end = b"\r\n\r\n"
    raw = damage(head).partition(end)[0] + end
    read = unless_refused(lambda: HEAD_READER.read(raw))
    if read is not None:
        assert 0 <= read.length < 2**64
        assert isinstance(read.call, HttpCall) or 400 <= read.call.status < 500
        assert not (read.chunked and read.keep_alive)


def binary_body(image: bool = False) -> tuple[bytes, bytes]:
    data = b"\x03\0\0\0abc" if image else SAMPLE.tobytes()
    tensor: dict[str, Any] = {"name": "input", "parameters": {"binary_data_size": len(data)}}
    tensor |= {"datatype": "BYTES", "shape": [1]} if image else {"datatype": "FP32", "shape": SAMPLE.shape}
    header = {"inputs": [tensor], "outputs": [{"name": "only", "parameters": {"binary_data": True}}]}
    return json.dumps(header).encode(), data


JSON_BODY = json.dumps(
    {
        "id": "seven",
        "parameters": {"timeout": 7, "priority": "1", "binary_data_output": True},
        "inputs": [{"name": "input", "datatype": "FP32", "shape": SAMPLE.shape, "data": SAMPLE.tolist()}],
    }
).encode()
BODIES = ((JSON_BODY, b""), binary_body(), binary_body(image=True))
JSON_TOKENS = (b"[", b"]", b"{", b"}", b'"', b",", b"[[[[[[[[[[", b'"\\ud800"', b'"shape":[]', b'"BYTES"', b'"x"')


def check(request: InferRequest | None) -> None:
    """A request that is to be executed has what the interface says."""
    if request is None:
        return
    given = {**request.inputs, **request.images}
    assert given.keys() == INTERFACE.inputs.keys()
    assert all(len(rows) == request.samples for rows in given.values())
    assert 1 <= request.samples <= 64
    for name, array in request.inputs.items():
        spec = INTERFACE.inputs[name]
        assert (array.shape[1:], str(array.dtype), np.isnan(array).any()) == (spec.shape, "float32", False)


@given(
    st.sampled_from(BODIES),
    damaged(*NUMBERS, *JSON_TOKENS),
    damaged(b"\xff\xff\xff\xff", bytes(4)),
    st.none() | st.integers(-2, 400),
)
def test_bodies_of_the_open_inference_protocol(
    body: tuple[bytes, bytes], in_json: Damage, in_data: Damage, length: int | None
) -> None:
    text, data = in_json(body[0]), in_data(body[1])
    header_length = None if body[0] is JSON_BODY else str(len(text) if length is None else length)
    check(unless_refused(lambda: oip.decode_request(text + data, header_length, INTERFACE)))


TEXTS = b"\x03\0\0\0one" + b"\0\0\0\0" + b"\x02\0\0\0\xff\0"
TEXT_HEADER = json.dumps(
    {
        "inputs": [
            {"name": "texts", "datatype": "BYTES", "shape": [1, 3], "parameters": {"binary_data_size": len(TEXTS)}},
            {"name": "flags", "datatype": "BOOL", "shape": [1, 4], "parameters": {"binary_data_size": 4}},
        ]
    }
).encode()
TEXT_JSON = json.dumps(
    {
        "inputs": [
            {"name": "texts", "datatype": "BYTES", "shape": [1, 3], "data": ["one", "", "drei \u00fc"]},
            {"name": "flags", "datatype": "BOOL", "shape": [1, 4], "data": [True, False, 1, 0]},
        ]
    }
).encode()


def check_texts(request: InferRequest | None) -> None:
    """What a function is given of a request, whatever the client sends."""
    if request is None:
        return
    texts, flags = request.inputs["texts"], request.inputs["flags"]
    assert texts.shape == (request.samples, 3)
    assert {type(text) for text in texts.flat} == {bytes}
    assert (flags.shape, flags.dtype) == ((request.samples, 4), np.bool_)
    assert set(flags.view(np.uint8).flat) <= {0, 1}


@given(
    st.sampled_from([(TEXT_HEADER, TEXTS + b"\0\1\1\0"), (TEXT_JSON, b"")]),
    damaged(*NUMBERS, *JSON_TOKENS),
    damaged(b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4), b"\2"),
)
def test_texts_of_the_open_inference_protocol(body: tuple[bytes, bytes], in_json: Damage, in_data: Damage) -> None:
    text, data = in_json(body[0]), in_data(body[1])
    length = str(len(text)) if body[0] is TEXT_HEADER else None
    check_texts(unless_refused(lambda: oip.decode_request(text + data, length, TAKER_INTERFACE)))


@pytest.mark.parametrize(
    ("texts", "flags", "want"),
    [
        pytest.param(b"\xff\xff\xff\xff" + TEXTS[4:], b"\0\1\1\0", "not 3 elements", id="a length of 4 GiB"),
        pytest.param(TEXTS[:-6] + b"\x03\0\0\0\xff\0", b"\0\1\1\0", "not 3 elements", id="a length of one more"),
        pytest.param(b"\0\0\0\0" * 3 + b"\0", b"\0\1\1\0", "not 3 elements", id="a byte left over"),
        pytest.param(TEXTS, b"\0\1\2\0", "must be 0 or 1", id="a truth value of 2"),
    ],
)
def test_hostile_texts_are_refused(texts: bytes, flags: bytes, want: str) -> None:
    head = TEXT_HEADER.replace(f'size": {len(TEXTS)}'.encode(), f'size": {len(texts)}'.encode())
    with pytest.raises(RequestError, match=want) as by_http:
        oip.decode_request(head + texts + flags, str(len(head)), TAKER_INTERFACE)
    made = MESSAGES["ModelInferRequest"](raw_input_contents=[texts, flags])
    made.inputs.add(name="texts", datatype="BYTES", shape=[1, 3])
    made.inputs.add(name="flags", datatype="BOOL", shape=[1, 4])
    with pytest.raises(RequestError, match=want) as by_grpc:
        grpc_codec.decode_request(made, TAKER_INTERFACE)
    assert {by_http.value.status, by_grpc.value.status} == {400}


def test_texts_without_damage_are_read() -> None:
    sent = oip.decode_request(TEXT_HEADER + TEXTS + b"\0\1\1\0", str(len(TEXT_HEADER)), TAKER_INTERFACE)
    assert sent.inputs["texts"].tolist() == [[b"one", b"", b"\xff\0"]]
    assert sent.inputs["flags"].tolist() == [[False, True, True, False]]
    assert oip.decode_request(TEXT_JSON, None, TAKER_INTERFACE).inputs["texts"][0, 2] == "drei \u00fc".encode()


def message() -> bytes:
    made = MESSAGES["ModelInferRequest"](model_name="plain", id="seven", raw_input_contents=[SAMPLE.tobytes()])
    made.inputs.add(name="input", datatype="FP32", shape=SAMPLE.shape)
    made.outputs.add(name="only")
    made.parameters["timeout"].int64_param = 7
    return bytes(made.SerializeToString())


@given(damaged(b"\x3a", b"\x2a", b"\xff\xff\xff\xff\x0f", b"\x08", b"\x0b"))
def test_messages_of_grpc(damage: Damage) -> None:
    sent = damage(message())
    with contextlib.suppress(DecodeError):  # the server answers 400
        check(unless_refused(lambda: grpc_codec.decode_request(grpc_codec.parse_request(sent, 100), INTERFACE)))


FRAMES = b"".join(
    [
        *map(bytes, encode(Hello(frontend="f"))),
        *map(bytes, encode(Reserve(batch_id=7, sent=1, start=2, latest=3, sends_from=4))),
        *map(
            bytes,
            encode(
                RunBatch(
                    batch_id=7,
                    frontend="f",
                    path=(PeerAddress(host="h", port=9, token="t"),),
                    tensors=(tensor_header(SAMPLE.shape, SAMPLE.dtype),),
                ),
                [SAMPLE],
            ),
        ),
    ]
)


@given(damaged(*NUMBERS, *JSON_TOKENS, b"PTA8", b"\xff\xff\xff\xff", bytes(8)), st.integers(1, 100))
def test_frames_of_streams(damage: Damage, piece: int) -> None:
    stream, most = damage(FRAMES), 1 << 16
    decoder = Decoder(STAGE_DIALECT, lambda _: None, most)
    while stream:
        size = min(len(decoder.buffer()), len(stream), piece)
        assert size > 0, "a stream always has room for the next byte"
        decoder.buffer()[:size] = stream[:size]
        stream = stream[size:]
        try:
            complete = decoder.received(size)
        except WireError:
            return
        if complete is not None:
            headers = getattr(complete[0], "tensors", ())
            assert [array.shape for array in complete[1]] == [header.shape for header in headers]
            assert sum(array.nbytes for array in complete[1]) <= most


REQUEST = quick("t4")
LOG = f"a model's line\n{result_line(made_profile(REQUEST))}\n".encode()
LOG_TOKENS = (b"\n", b"\r", b"\x85", RESULT_PREFIX.encode(), ERROR_PREFIX.encode(), b"}", b"[" * 300, b'"\\ud800"')


@given(damaged(*NUMBERS, *LOG_TOKENS))
def test_logs_of_profiling_runs(damage: Damage) -> None:
    result = parse_result(damage(LOG).decode(errors="replace"))
    if isinstance(result, Profile):
        assert isinstance(result.differences(REQUEST), tuple)
    else:
        assert result.message


MANIFESTS = yaml.safe_dump_all([SESSION, POOL, PLAN]).encode()
YAML_TOKENS = (
    b"---\n",
    b"&a ",
    b"*a",
    b"<<: ",
    b"? ",
    b"!!binary ",
    b"2026-99-99",
    b"[" * 2_000,
    b"\t",
    b"\0",
    b".nan",
)


@given(damaged(*NUMBERS, *YAML_TOKENS))
def test_manifests_in_files(damage: Damage) -> None:
    with contextlib.suppress(ManifestError):
        found = parse_manifests(damage(MANIFESTS).decode(errors="replace"), "a file")
        assert all(session.spec.modules for session in found.sessions)


@pytest.mark.parametrize("body", BODIES, ids=["JSON", "binary", "images"])
def test_the_bodies_are_valid_before_they_are_damaged(body: tuple[bytes, bytes]) -> None:
    check(oip.decode_request(b"".join(body), None if body[0] is JSON_BODY else str(len(body[0])), INTERFACE))
