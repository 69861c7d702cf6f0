"""Requests equal those of Triton's client; answers are read exactly."""

import json
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from numpy.typing import NDArray

from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer, encode_request


def header_of(headers: dict[str, str], body: bytes) -> dict[str, Any]:
    document = json.loads(body[: int(headers["Inference-Header-Content-Length"])])
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("dtype", [*map(str, NUMPY_DTYPES.values())])
def test_request_equals_that_of_the_triton_client(dtype: str) -> None:
    tensor = np.arange(24).reshape(2, 3, 4).astype(dtype)
    desired = triton.InferInput("input", list(tensor.shape), triton.np_to_triton_dtype(tensor.dtype))
    desired.set_data_from_numpy(tensor, binary_data=True)
    want_body, want_length = triton.InferenceServerClient.generate_request_body([desired])

    payload = encode_request({"input": tensor})

    length = int(payload.headers["Inference-Header-Content-Length"])
    assert header_of(dict(payload.headers), payload.body)["inputs"] == json.loads(want_body[:want_length])["inputs"]
    assert payload.body[length:] == want_body[want_length:]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(np.array([[b"one", b"", b"\xff\0"]], np.object_), id="bytes"),
        pytest.param(np.array([["one", "", "drei"]]), id="numpy's text"),
        pytest.param(np.array([[b"one", b"", b"drei"]]), id="numpy's bytes"),
    ],
)
def test_texts_equal_those_of_the_triton_client(texts: NDArray[Any]) -> None:
    desired = triton.InferInput("input", [1, 3], "BYTES")
    desired.set_data_from_numpy(texts.astype(np.object_), binary_data=True)
    want_body, want_length = triton.InferenceServerClient.generate_request_body([desired])

    payload = encode_request({"input": texts})

    length = int(payload.headers["Inference-Header-Content-Length"])
    assert header_of(dict(payload.headers), payload.body)["inputs"] == json.loads(want_body[:want_length])["inputs"]
    assert payload.body[length:] == want_body[want_length:]
    description = {"name": "a", "shape": [1, 3], "datatype": "BYTES"}
    size = len(payload.body) - length
    head = json.dumps({"outputs": [{**description, "parameters": {"binary_data_size": size}}]}).encode()
    read = decode_answer({"Inference-Header-Content-Length": str(len(head))}, head + payload.body[length:])
    assert encode_request({"input": read["a"]}) == payload


def test_texts_in_json_are_read() -> None:
    answer = {"outputs": [{"name": "a", "shape": [2, 1], "datatype": "BYTES", "data": ["\u00fc", ""]}]}
    assert decode_answer({}, json.dumps(answer).encode())["a"].tolist() == [["\u00fc".encode()], [b""]]


def test_tensors_of_any_layout_are_sent_in_order() -> None:
    tensor = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]

    payload = encode_request({"a": tensor, "b": np.ones((1, 2), dtype=np.uint8)})

    length = int(payload.headers["Inference-Header-Content-Length"])
    assert payload.body[length:] == tensor.tobytes() + b"\x01\x01"


def test_type_that_is_not_in_the_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="complex64; use one of float32"):
        encode_request({"input": np.zeros(3, dtype=np.complex64)})


def test_binary_and_json_tensors_are_read_from_one_answer() -> None:
    vehicle = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    head = json.dumps(
        {
            "outputs": [
                {"name": "person", "shape": [1, 2], "datatype": "INT64", "data": [[4, 5]]},
                {"name": "vehicle", "shape": [2, 8], "datatype": "FP32", "parameters": {"binary_data_size": 64}},
            ]
        }
    ).encode()

    tensors = decode_answer({"inference-header-content-length": str(len(head))}, head + vehicle.tobytes())

    np.testing.assert_array_equal(tensors["vehicle"], vehicle)
    np.testing.assert_array_equal(tensors["person"], [[4, 5]])


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param({}, b"<html>", id="not JSON"),
        pytest.param({}, b"{}", id="no outputs"),
        pytest.param({"Inference-Header-Content-Length": "x"}, b"{}", id="length is not a number"),
        pytest.param(
            {},
            b'{"outputs": [{"name": "a", "shape": [2], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}',
            id="tensor cut short",
        ),
        pytest.param(
            {}, b'{"outputs": [{"name": "a", "shape": [1], "datatype": "??", "data": [1]}]}', id="unknown type"
        ),
        pytest.param(
            {}, b'{"outputs": [{"name": "a", "shape": [1], "datatype": "BYTES", "data": [1]}]}', id="a number as text"
        ),
        pytest.param(
            {"Inference-Header-Content-Length": "94"},
            b'{"outputs":[{"name":"a","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":8}}]} '
            b"\xff\xff\xff\xff----",
            id="a text of 4 GiB",
        ),
    ],
)
def test_invalid_answer_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(AnswerError, match=f"answer of {len(body)} bytes"):
        decode_answer(headers, body)
