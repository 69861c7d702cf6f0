"""Messages are read from a byte stream exactly as they were written, for any division into pieces."""

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.transport.wire import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    STAGE_DIALECT,
    Array,
    BatchAnswer,
    Decoder,
    Draining,
    Failed,
    Hello,
    PeerAddress,
    Report,
    Reserve,
    RunBatch,
    StageMessage,
    Taken,
    TensorHeader,
    Welcome,
    WireError,
    Withdraw,
    check_tensors,
    encode,
    tensor_header,
)

PREFIX = struct.Struct("<4sIQ")

names = st.text(max_size=20)
micros = st.integers(0, 2**63 - 1)
tensors = st.lists(
    st.builds(
        lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 200, shape).astype(NUMPY_DTYPES[dtype]),
        st.sampled_from([*NUMPY_DTYPES]),
        st.lists(st.integers(0, 4), min_size=1, max_size=4),
        st.integers(0, 1000),
    ),
    max_size=4,
)
plain_messages: st.SearchStrategy[StageMessage] = st.one_of(
    st.builds(Hello, frontend=st.none() | names),
    st.just(Welcome()),
    st.just(Draining()),
    st.builds(Report, batch_id=micros, waited_micros=micros, ran_micros=micros),
    st.builds(Failed, batch_id=micros, reason=names),
    st.builds(Reserve, batch_id=micros, sent=micros, start=micros, latest=micros, sends_from=micros),
    st.builds(Withdraw, batch_id=micros),
    st.builds(Taken, batch_id=micros, held_micros=micros),
)
addresses = st.builds(PeerAddress, host=names, port=st.integers(1, 65535), token=names)


def decode(
    stream: bytes, pieces: Sequence[int] = (), most: int = MAX_BODY_BYTES
) -> list[tuple[StageMessage, list[Array]]]:
    """All messages in `stream`, read in pieces of at most the sizes in `pieces`, in turn."""
    decoder = Decoder(STAGE_DIALECT, lambda _: None, most)
    complete = []
    turn = 0
    while stream:
        size = min(len(decoder.buffer()), len(stream), pieces[turn % len(pieces)] if pieces else len(stream))
        decoder.buffer()[:size] = stream[:size]
        stream, turn = stream[size:], turn + 1
        message = decoder.received(size)
        if message is not None:
            complete.append(message)
    return complete


def frame(header: bytes, body: bytes = b"", magic: bytes = b"PTA8", claims: int | None = None) -> bytes:
    """A frame by hand; `claims` is the body length in its prefix."""
    return PREFIX.pack(magic, len(header), len(body) if claims is None else claims) + header + body


@given(st.lists(plain_messages, max_size=4), st.lists(st.integers(1, 50), max_size=4))
def test_messages_survive_any_division(messages: list[StageMessage], pieces: list[int]) -> None:
    stream = b"".join(chunk for message in messages for chunk in encode(message))
    assert decode(stream, pieces) == [(message, []) for message in messages]


@given(tensors, st.lists(addresses, max_size=3), st.booleans(), st.lists(st.integers(1, 200), max_size=4))
def test_tensors_survive_any_division(
    arrays: list[Array], path: list[PeerAddress], answer: bool, pieces: list[int]
) -> None:
    headers = tuple(tensor_header(a.shape, a.dtype) for a in arrays)
    sent: StageMessage = (
        BatchAnswer(batch_id=7, waited_micros=1, ran_micros=2, tensors=headers)
        if answer
        else RunBatch(batch_id=7, frontend="f", path=tuple(path), tensors=headers)
    )
    ((got, got_arrays),) = decode(b"".join(encode(sent, arrays)), pieces)
    assert got == sent
    for array, got_array in zip(arrays, got_arrays, strict=True):
        assert got_array.dtype == array.dtype
        np.testing.assert_array_equal(got_array, array)


def test_a_tensor_may_be_written_in_rows() -> None:
    rows = [np.full((2, 3), k, np.float32) for k in range(4)]
    sent = RunBatch(batch_id=1, frontend="f", tensors=(tensor_header((4, 2, 3), rows[0].dtype),))
    ((_, (stacked,)),) = decode(b"".join(encode(sent, rows)))
    np.testing.assert_array_equal(stacked, np.stack(rows))


def test_a_large_tensor_is_not_overwritten_by_the_next_one() -> None:
    stream = b""
    for number in (1, 2):
        array = np.full((1, 1 << 19), number, np.float32)
        sent = RunBatch(batch_id=number, frontend="f", tensors=(tensor_header(array.shape, array.dtype),))
        stream += b"".join(encode(sent, [array]))
    (_, (first,)), (_, (second,)) = decode(stream)
    assert (first == 1).all()
    assert (second == 2).all()


def test_large_tensors_are_not_copied_for_sending() -> None:
    array = np.zeros((2, 1000), np.float32)
    sent = BatchAnswer(batch_id=1, waited_micros=0, ran_micros=0, tensors=(tensor_header(array.shape, array.dtype),))
    chunk = encode(sent, [array])[1]
    assert np.shares_memory(np.frombuffer(chunk, np.uint8), array)


@given(st.binary(min_size=1, max_size=200), st.lists(st.integers(1, 50), max_size=3))
def test_noise_is_refused_or_incomplete(noise: bytes, pieces: list[int]) -> None:
    try:
        assert decode(noise, pieces) == []
    except WireError:
        assert not noise.startswith(b"PTA8")


ONE_FLOAT = b'{"kind":"answer","batch_id":1,"waited_micros":0,"ran_micros":0,"tensors":[{"dtype":"FP32","shape":[1]}]}'
HUGE = b'{"kind":"answer","batch_id":1,"waited_micros":0,"ran_micros":0,"tensors":[{"dtype":"FP32","shape":%s}]}'


@pytest.mark.parametrize(
    ("stream", "want_message"),
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", "does not speak", id="another protocol"),
        pytest.param(frame(b"{}", magic=b"PTA7"), "does not speak", id="the version before"),
        pytest.param(PREFIX.pack(b"PTA8", 0, 0), "header of 0", id="no header"),
        pytest.param(PREFIX.pack(b"PTA8", MAX_HEADER_BYTES + 1, 0), "is above", id="header too long"),
        pytest.param(PREFIX.pack(b"PTA8", 10, MAX_BODY_BYTES + 1), "is above", id="body too long"),
        pytest.param(frame(b"{"), "not a message", id="no JSON"),
        pytest.param(frame(b"[1, 2]"), "not a message", id="not an object"),
        pytest.param(frame(b'{"kind":"shutdown"}'), "not a message", id="unknown kind"),
        pytest.param(frame(b'{"kind":"welcome","more":1}'), "not a message", id="unknown field"),
        pytest.param(frame(b'{"kind":"failed","batch_id":-1,"reason":""}'), "not a message", id="negative id"),
        pytest.param(frame(b'{"kind":"failed","batch_id":1}'), "not a message", id="field missing"),
        pytest.param(
            frame(ONE_FLOAT.replace(b"FP32", b"OBJECT"), bytes(4)), "not a message", id="unknown element type"
        ),
        pytest.param(frame(ONE_FLOAT.replace(b"[1]", b"[-1]"), bytes(4)), "not a message", id="negative dimension"),
        pytest.param(frame(ONE_FLOAT.replace(b"[1]", b"[1,1,1,1,1,1,1,1,1,1]"), bytes(4)), "not a message", id="10-d"),
        pytest.param(frame(ONE_FLOAT, bytes(3)), "lists 4 bytes", id="body too short for its tensors"),
        pytest.param(frame(b'{"kind":"welcome"}', bytes(3)), "lists 0 bytes", id="body without tensors"),
        pytest.param(
            frame(HUGE % b"[2147483647,2147483647,2147483647]", claims=100), "lists", id="shapes larger than memory"
        ),
    ],
)
def test_malformed_streams_are_refused(stream: bytes, want_message: str) -> None:
    with pytest.raises(WireError, match=want_message):
        decode(stream)


def test_a_message_is_refused_before_its_tensors_are_received() -> None:
    def refuse(message: StageMessage) -> None:
        raise WireError(f"no {message.kind} here")

    decoder = Decoder(STAGE_DIALECT, refuse)
    stream = b"".join(encode(BatchAnswer(batch_id=1, waited_micros=0, ran_micros=0, tensors=(HEADER,)), [ARRAY]))
    decoder.buffer()[: PREFIX.size] = stream[: PREFIX.size]
    assert decoder.received(PREFIX.size) is None
    header = len(decoder.buffer())
    decoder.buffer()[:header] = stream[PREFIX.size : PREFIX.size + header]
    with pytest.raises(WireError, match="no answer here"):
        decoder.received(header)


def test_the_receiver_may_set_a_lower_bound() -> None:
    stream = b"".join(encode(BatchAnswer(batch_id=1, waited_micros=0, ran_micros=0, tensors=(HEADER,)), [ARRAY]))
    with pytest.raises(WireError, match="is above"):
        decode(stream, most=ARRAY.nbytes - 1)


ARRAY = np.zeros((2, 3), np.float32)
HEADER = tensor_header(ARRAY.shape, ARRAY.dtype)


def test_a_message_must_match_its_header() -> None:
    with pytest.raises(WireError, match="24 bytes, but 48"):
        encode(RunBatch(batch_id=1, frontend="f", tensors=(HEADER,)), [ARRAY, ARRAY])


def test_only_plain_numbers_are_sent() -> None:
    with pytest.raises(WireError, match="complex128 cannot be sent"):
        tensor_header((1,), np.dtype(np.complex128))


SPECS = (TensorSpec(shape=(2, 3)), TensorSpec(shape=(4,), dtype=DType.INT64))


def test_no_tensor_of_objects_is_received() -> None:
    """numpy would take the bytes of a peer for pointers."""
    with pytest.raises(WireError, match="only tensors of numbers are sent, not BYTES"):
        decode(frame(ONE_FLOAT.replace(b"FP32", b"BYTES"), bytes(4)))
    with pytest.raises(WireError, match="object cannot be sent"):
        tensor_header((1,), np.dtype(np.object_))


def headers(batch: int, *, first: tuple[int, ...] = (2, 3), dtype: DType = DType.INT64) -> tuple[TensorHeader, ...]:
    return (TensorHeader(dtype=DType.FP32, shape=(batch, *first)), TensorHeader(dtype=dtype, shape=(batch, 4)))


def test_batches_of_a_stage_of_any_size_may_be_smaller() -> None:
    check_tensors(headers(2, first=(1, 2)), SPECS, 8, any_size=True)
    for wrong in (headers(2, first=(2, 4)), headers(2, first=(2,)), headers(2, first=(0, 3)), headers(9)):
        with pytest.raises(WireError, match="with b from 1 to 8"):
            check_tensors(wrong, SPECS, 8, any_size=True)


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        pytest.param(headers(1), True, id="smallest batch"),
        pytest.param(headers(8), True, id="largest batch"),
        pytest.param(headers(0), False, id="empty batch"),
        pytest.param(headers(9), False, id="batch too large"),
        pytest.param(headers(2)[:1], False, id="tensor missing"),
        pytest.param((*headers(2), *headers(2)), False, id="tensors too many"),
        pytest.param(headers(2, first=(3, 2)), False, id="another shape"),
        pytest.param(headers(2, dtype=DType.INT32), False, id="another element type"),
        pytest.param((headers(2)[0], headers(3)[1]), False, id="two batch sizes"),
        pytest.param((), False, id="nothing"),
    ],
)
def test_batches_must_fit_the_stage(given: tuple[TensorHeader, ...], fits: bool) -> None:
    if fits:
        check_tensors(given, SPECS, 8)
    else:
        with pytest.raises(WireError, match=r"not FP32\['b', 2, 3\], INT64\['b', 4\] with b from 1 to 8"):
            check_tensors(given, SPECS, 8)
