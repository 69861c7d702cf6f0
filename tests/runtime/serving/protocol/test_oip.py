"""The Open Inference Protocol: reading bodies, refusals with messages, and writing answers."""

import json
from typing import Any

import numpy as np
import pytest
from tests.runtime.serving.plans import Application, application, detector_with_crops

from partita_api.session.module import DType, NamedInput, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.inference import RequestError, check_model, model_metadata
from partita_runtime.serving.protocol.interface import Interface
from partita_runtime.serving.protocol.oip import HEADER_LENGTH, decode_request, encode_answer


def interface(app: Application) -> Interface:
    return Interface(app.name, app.session.spec, app.epoch.outputs)


PLAIN = interface(application("plain").model("only", input=(2, 3), outputs=((4,),)))
IDS = NamedInput(name="ids", shape=(3,))
TWO_ROOTS = interface(application("two").model("left", input=(2,)).model("right", input=(3,)))
TRAFFIC = interface(detector_with_crops())


def taking(dtype: DType) -> Interface:
    """A session whose samples are two elements of this type."""
    functions = application("whole").function("only", "echo", input=TensorSpec(shape=(2,), dtype=dtype)).functions
    return Interface("whole", PLAIN.session.model_copy(update={"modules": functions}), {})


def tensor(**fields: Any) -> dict[str, Any]:
    return {"name": "input", "datatype": "FP32", "shape": [1, 2, 3], "data": [0, 1, 2, 3, 4, 5], **fields}


def without(tensor: dict[str, Any], field: str) -> dict[str, Any]:
    return {k: v for k, v in tensor.items() if k != field}


def body(*inputs: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"inputs": inputs, **fields}).encode()


def binary(*arrays: Array, names: tuple[str, ...] = ("input",), **fields: Any) -> tuple[bytes, str]:
    """A body with binary tensors, and its Inference-Header-Content-Length."""
    datatypes = {"float32": "FP32", "int64": "INT64"}
    inputs = [
        {
            "name": name,
            "datatype": datatypes[str(a.dtype)],
            "shape": a.shape,
            "parameters": {"binary_data_size": a.nbytes},
        }
        for name, a in zip(names, arrays, strict=True)
    ]
    header = json.dumps({"inputs": inputs, **fields}).encode()
    return header + b"".join(a.tobytes() for a in arrays), str(len(header))


@pytest.mark.parametrize(
    "data", [pytest.param([[[0, 1, 2], [3, 4, 5]]], id="nested"), pytest.param([0, 1, 2, 3, 4, 5], id="flat")]
)
def test_json_tensors(data: list[Any]) -> None:
    request = decode_request(body(tensor(data=data)), None, PLAIN)
    assert request.samples == 1
    np.testing.assert_array_equal(request.inputs["input"], np.arange(6, dtype=np.float32).reshape(1, 2, 3))
    assert request.inputs["input"].dtype == np.float32


def test_binary_tensors_are_views_of_the_body() -> None:
    left, right = (
        np.random.default_rng(1).random((5, 2), np.float32),
        np.random.default_rng(2).random((5, 3), np.float32),
    )
    content, length = binary(left, right, names=("left", "right"))
    request = decode_request(content, length, TWO_ROOTS)
    assert request.samples == 5
    np.testing.assert_array_equal(request.inputs["left"], left)
    np.testing.assert_array_equal(request.inputs["right"], right)
    assert np.shares_memory(request.inputs["right"], np.frombuffer(content, np.uint8))


def test_equal_requests_have_separate_tensors() -> None:
    other = interface(application("plain").model("only", input=(3, 2)))
    for number in range(3):
        given = np.full((1, 2, 3), number, np.float32)
        content, length = binary(given)
        np.testing.assert_array_equal(decode_request(content, length, PLAIN).inputs["input"], given)
        with pytest.raises(RequestError, match="24 bytes, but binary_data_size says 24 and 20 bytes are there"):
            decode_request(content[:-4], length, PLAIN)
        with pytest.raises(RequestError, match="NaN"):
            decode_request(content[: int(length)] + np.full(6, np.nan, np.float32).tobytes(), length, PLAIN)
        with pytest.raises(RequestError, match="must be FP32"):
            decode_request(content, length, other)


def test_requested_outputs_and_parameters() -> None:
    request = decode_request(
        body(
            tensor(),
            id="42",
            parameters={"timeout": 5000, "binary_data_output": True, "priority": 3},
            outputs=[{"name": "only", "parameters": {"binary_data": False}}],
        ),
        None,
        PLAIN,
    )
    assert (request.id, request.timeout_micros, request.binary, request.outputs) == ("42", 5000, True, {"only": False})


@pytest.mark.parametrize(
    ("content", "want_message"),
    [
        pytest.param(b"", "not an inference request", id="empty"),
        pytest.param(b"{", "not an inference request", id="no JSON"),
        pytest.param(b"\xff\xfe", "not an inference request", id="not UTF-8"),
        pytest.param(b"[]", "not an inference request", id="not an object"),
        pytest.param(b"{}", "inputs must be 'input', not none", id="no inputs"),
        pytest.param(body(tensor(name="image")), "inputs must be 'input', not 'image'", id="unknown input"),
        pytest.param(body(tensor(), tensor(name="more")), "must be 'input', not 'input', 'more'", id="one too many"),
        pytest.param(body(tensor(), tensor()), "same name", id="same name twice"),
        pytest.param(body(without(tensor(), "datatype")), "inputs.0.datatype", id="no datatype"),
        pytest.param(body(without(tensor(), "data")), "needs data", id="no data"),
        pytest.param(body(tensor(datatype="INT64")), r"must be FP32 \[n, 2, 3\]", id="another datatype"),
        pytest.param(body(tensor(datatype="FLOAT")), r"must be FP32 \[n, 2, 3\]", id="unknown datatype"),
        pytest.param(body(tensor(shape=[1, 3, 2])), r"must be FP32 \[n, 2, 3\]", id="another shape"),
        pytest.param(body(tensor(shape=[2, 3])), r"must be FP32 \[n, 2, 3\]", id="no batch dimension"),
        pytest.param(body(tensor(shape=[0, 2, 3], data=[])), "n from 1 to 64", id="no samples"),
        pytest.param(body(tensor(shape=[65, 2, 3])), "n from 1 to 64", id="too many samples"),
        pytest.param(body(tensor(shape=[-1, 2, 3])), "inputs.0.shape", id="negative dimension"),
        pytest.param(body(tensor(shape=[1.5, 2, 3])), "inputs.0.shape", id="fractional dimension"),
        pytest.param(body(tensor(data=[1, 2, 3])), "has 6 elements, but data has 3", id="too little data"),
        pytest.param(body(tensor(data=["1"] * 6)), "not an array of FP32 numbers", id="text in place of data"),
        pytest.param(body(tensor(data=[[1, 2], [3]])), "not an array of FP32 numbers", id="ragged data"),
        pytest.param(body(tensor(data=[None] * 6)), "not an array of FP32 numbers", id="nulls as data"),
        pytest.param(body(tensor(), id=7), "id", id="id is not text"),
        pytest.param(body(tensor(), outputs=[{"name": "other"}]), "unknown output 'other'", id="unknown output"),
        pytest.param(
            body(tensor(), outputs=[{"name": "only", "parameters": {"classification": 3}}]),
            "not supported",
            id="classification",
        ),
        pytest.param(
            body(without(tensor(parameters={"binary_data_size": 24}), "data")), "0 bytes are there", id="binary missing"
        ),
    ],
)
def test_refused_bodies(content: bytes, want_message: str) -> None:
    with pytest.raises(RequestError, match=want_message) as refused:
        decode_request(content, None, PLAIN)
    assert refused.value.status == 400


ZEROS = np.zeros((1, 2, 3), np.float32)


@pytest.mark.parametrize(
    ("content", "length", "want_message"),
    [
        pytest.param(binary(ZEROS)[0], "x", "is not a length", id="length is no number"),
        pytest.param(binary(ZEROS)[0], "-1", "is not a length", id="negative length"),
        pytest.param(binary(ZEROS)[0], "10000", "is not a length", id="length beyond the body"),
        pytest.param(binary(ZEROS)[0] + b"x", binary(ZEROS)[1], "1 bytes are left over", id="bytes left over"),
        pytest.param(binary(ZEROS)[0][:-1], binary(ZEROS)[1], "23 bytes are there", id="bytes missing"),
        pytest.param(binary(ZEROS)[0].replace(b": 24", b": 20"), binary(ZEROS)[1], "size says 20", id="another size"),
        pytest.param(*binary(np.zeros((1, 2, 3), np.int64)), "must be FP32", id="another datatype"),
    ],
)
def test_refused_binary_bodies(content: bytes, length: str, want_message: str) -> None:
    with pytest.raises(RequestError, match=want_message) as refused:
        decode_request(content, length, PLAIN)
    assert refused.value.status == 400


def test_roots_must_get_as_many_samples() -> None:
    content, length = binary(np.zeros((2, 2), np.float32), np.zeros((3, 3), np.float32), names=("left", "right"))
    with pytest.raises(RequestError, match=r"same first dimension, not \[2, 3\]"):
        decode_request(content, length, TWO_ROOTS)


@pytest.mark.parametrize(
    ("dtype", "data", "want_fit"),
    [
        pytest.param(DType.UINT8, [0, 255], True, id="within range"),
        pytest.param(DType.UINT8, [0, 256], False, id="above range"),
        pytest.param(DType.UINT8, [-1, 0], False, id="below range"),
        pytest.param(DType.INT64, [0, 1.5], False, id="fractions"),
        pytest.param(DType.INT64, [0, 2**70], False, id="huge"),
        pytest.param(DType.INT64, [True, False], False, id="booleans"),
        pytest.param(DType.INT8, [-128, 127], True, id="INT8"),
        pytest.param(DType.INT8, [-129, 127], False, id="below INT8"),
        pytest.param(DType.INT16, [-(2**15), 2**15 - 1], True, id="INT16"),
        pytest.param(DType.INT32, [-(2**31), 2**31], False, id="above INT32"),
        pytest.param(DType.UINT16, [0, 2**16 - 1], True, id="UINT16"),
        pytest.param(DType.UINT32, [0, 2**32 - 1], True, id="UINT32"),
        pytest.param(DType.UINT64, [1, 2**64 - 1], True, id="UINT64"),
        pytest.param(DType.UINT64, [1, 2**64], False, id="above UINT64"),
        pytest.param(DType.FP64, [1e300, 7], True, id="FP64"),
        pytest.param(DType.FP64, [10**400, 7], False, id="above FP64"),
        pytest.param(DType.FP32, [1e300, 7], False, id="above FP32"),
        pytest.param(DType.BOOL, [True, False], True, id="BOOL"),
        pytest.param(DType.BOOL, [1, 0], True, id="BOOL as numbers"),
        pytest.param(DType.BOOL, [2, 0], False, id="above BOOL"),
        pytest.param(DType.BOOL, [1.0, 0.0], False, id="BOOL as fractions"),
        pytest.param(DType.BOOL, ["true", "false"], False, id="BOOL as texts"),
    ],
)
def test_json_numbers_out_of_range_are_refused(dtype: DType, data: list[Any], want_fit: bool) -> None:
    content = body(tensor(datatype=dtype.value, shape=[1, 2], data=data))
    if want_fit:
        given = decode_request(content, None, taking(dtype)).inputs["input"]
        assert (given.tolist(), given.dtype) == ([data], NUMPY_DTYPES[dtype])
    else:
        with pytest.raises(RequestError, match=f"not an array of {dtype} numbers"):
            decode_request(content, None, taking(dtype))


@pytest.mark.parametrize("dtype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("place", [0, 1])
def test_tensors_may_have_infinities_but_no_nan(dtype: str, place: int) -> None:
    given = np.array([[np.inf, -np.inf]], NUMPY_DTYPES[dtype])
    description = tensor(datatype=dtype, shape=[1, 2], parameters={"binary_data_size": given.nbytes})
    header = body(without(description, "data"))
    read = decode_request(header + given.tobytes(), str(len(header)), taking(DType(dtype))).inputs["input"]
    assert read.tolist() == given.tolist()
    for nan in (np.nan, -np.nan):
        given[0, place] = nan
        with pytest.raises(RequestError, match="NaN"):
            decode_request(header + given.tobytes(), str(len(header)), taking(DType(dtype)))


@pytest.mark.parametrize("dtype", [*NUMPY_DTYPES])
def test_binary_tensors_of_every_element_type_of_numbers(dtype: str) -> None:
    given = np.array([[0, 1]], NUMPY_DTYPES[dtype])
    description = tensor(datatype=dtype, shape=[1, 2], parameters={"binary_data_size": given.nbytes})
    header = body(without(description, "data"))
    read = decode_request(header + given.tobytes(), str(len(header)), taking(DType(dtype))).inputs["input"]
    assert (read.tolist(), read.dtype) == (given.tolist(), given.dtype)
    headers, content = encode_answer(
        decode_request(body(tensor(), parameters={"binary_data_output": True}), None, PLAIN), PLAIN, {"only": given}
    )
    (described,) = json.loads(content[: int(headers[HEADER_LENGTH])])["outputs"]
    assert described["datatype"] == dtype
    assert content[int(headers[HEADER_LENGTH]) :] == given.tobytes()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(["one", "\u00fc"], [[b"one", b"\xc3\xbc"]], id="flat"),
        pytest.param([["", "nul\0"]], [[b"", b"nul\0"]], id="nested"),
        pytest.param(["one"], "has 2 elements, but data has 1", id="too few"),
        pytest.param(["one", 2], "not an array of texts; send other bytes as binary", id="a number"),
        pytest.param(["one", ["two"]], "not an array of texts", id="ragged"),
    ],
)
def test_texts_in_json(data: list[Any], want: Any) -> None:
    content = body(tensor(datatype="BYTES", shape=[1, 2], data=data))
    if isinstance(want, str):
        with pytest.raises(RequestError, match=want):
            decode_request(content, None, taking(DType.BYTES))
    else:
        given = decode_request(content, None, taking(DType.BYTES)).inputs["input"]
        assert (given.tolist(), given.dtype) == (want, np.object_)


def test_texts_have_the_shape_of_their_input() -> None:
    with pytest.raises(RequestError, match=r"must be BYTES \[n, 2\] with n from 1 to 64, not BYTES \[65, 2\]"):
        decode_request(body(tensor(datatype="BYTES", shape=[65, 2], data=["x"] * 130)), None, taking(DType.BYTES))
    with pytest.raises(RequestError, match="takes no images, so it cannot be BYTES"):
        decode_request(body(tensor(datatype="BYTES", shape=[1, 2], data=["x"] * 2)), None, taking(DType.INT8))


TEXTS: dict[str, Array] = {"only": np.array([[b"a", b""], ["\u00fc".encode(), b"dd"]], np.object_)}


def test_texts_in_answers() -> None:
    headers, content = encode_answer(decode_request(body(tensor()), None, PLAIN), PLAIN, TEXTS)
    (described,) = json.loads(content)["outputs"]
    assert described == {"name": "only", "datatype": "BYTES", "shape": [2, 2], "data": ["a", "", "\u00fc", "dd"]}
    asked = body(tensor(), parameters={"binary_data_output": True})
    headers, content = encode_answer(decode_request(asked, None, PLAIN), PLAIN, TEXTS)
    length = int(headers[HEADER_LENGTH])
    (described,) = json.loads(content[:length])["outputs"]
    raw = content[length:]
    assert described == {
        "name": "only",
        "datatype": "BYTES",
        "shape": [2, 2],
        "parameters": {"binary_data_size": len(raw)},
    }
    assert raw == b"\1\0\0\0a" + b"\0\0\0\0" + b"\2\0\0\0\xc3\xbc" + b"\2\0\0\0dd"


def test_bytes_that_are_no_text_need_a_binary_answer() -> None:
    picture: dict[str, Array] = {"only": np.array([b"\xff\xd8"], np.object_)}
    with pytest.raises(RequestError, match="no UTF-8, which JSON cannot say; ask for binary data") as refused:
        encode_answer(decode_request(body(tensor()), None, PLAIN), PLAIN, picture)
    assert refused.value.status == 500
    asked = body(tensor(), parameters={"binary_data_output": True})
    assert encode_answer(decode_request(asked, None, PLAIN), PLAIN, picture)[1].endswith(b"\2\0\0\0\xff\xd8")


ANSWER: dict[str, Array] = {"only": np.arange(4, dtype=np.float32).reshape(1, 4), "more": np.array([3], np.int64)}


def test_answers_in_json() -> None:
    headers, content = encode_answer(decode_request(body(tensor(), id="a"), None, PLAIN), PLAIN, ANSWER)
    assert headers == {"content-type": "application/json"}
    assert json.loads(content) == {
        "id": "a",
        "model_name": "plain",
        "model_version": "1",
        "outputs": [
            {"name": "only", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]},
            {"name": "more", "datatype": "INT64", "shape": [1], "data": [3]},
        ],
    }


@pytest.mark.parametrize("rows", [1, 2, 0])
def test_answers_in_binary(rows: int) -> None:
    request = decode_request(body(tensor(), parameters={"binary_data_output": True}), None, PLAIN)
    answer: dict[str, Array] = {"only": np.full((rows, 4), rows, np.float32), "more": np.arange(rows)}
    headers, content = encode_answer(request, PLAIN, answer)
    length = int(headers[HEADER_LENGTH])
    assert [
        (output["name"], output["shape"], output["parameters"]) for output in json.loads(content[:length])["outputs"]
    ] == [("only", [rows, 4], {"binary_data_size": 16 * rows}), ("more", [rows], {"binary_data_size": 8 * rows})]
    assert content[length:] == answer["only"].tobytes() + answer["more"].tobytes()


def test_answers_in_binary_and_json_mixed() -> None:
    asked = body(tensor(), outputs=[{"name": "only", "parameters": {"binary_data": True}}])
    headers, content = encode_answer(decode_request(asked, None, PLAIN), PLAIN, ANSWER)
    length = int(headers[HEADER_LENGTH])
    (output,) = json.loads(content[:length])["outputs"]
    assert output == {"name": "only", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": 16}}
    assert content[length:] == ANSWER["only"].tobytes()


@pytest.mark.parametrize(
    ("answer", "want_message"),
    [
        pytest.param({}, "no output 'only'", id="missing"),
        pytest.param({"only": np.array(["a"])}, "cannot be sent", id="text"),
        pytest.param({"only": np.array([object()])}, "cannot be sent", id="objects"),
    ],
)
def test_answers_that_cannot_be_written(answer: dict[str, Array], want_message: str) -> None:
    request = decode_request(body(tensor(), outputs=[{"name": "only"}]), None, PLAIN)
    with pytest.raises(RequestError, match=want_message) as failed:
        encode_answer(request, PLAIN, answer)
    assert failed.value.status == 500


@pytest.mark.parametrize(
    ("name", "version", "want_message"),
    [
        pytest.param("plain", None, None, id="the model"),
        pytest.param("plain", "1", None, id="its version"),
        pytest.param("plain", "2", "no version '2'", id="another version"),
        pytest.param("other", None, "no model 'other' is served here; the model is 'plain'", id="another model"),
    ],
)
def test_one_model_is_served(name: str, version: str | None, want_message: str | None) -> None:
    if want_message is None:
        check_model(PLAIN, name, version)
    else:
        with pytest.raises(RequestError, match=want_message) as unknown:
            check_model(PLAIN, name, version)
        assert unknown.value.status == 404


@pytest.mark.parametrize(
    ("app", "want_inputs", "want_outputs"),
    [
        pytest.param(
            application("a").model("m", input=(2,), outputs=((4,),)),
            {"input": [-1, 2]},
            {"m": [-1, 4]},
            id="one model",
        ),
        pytest.param(
            application("a").model("m", inputs=(IDS, NamedInput(name="b.c", shape=(4,)))),
            {"ids": [-1, 3], "b.c": [-1, 4]},
            {"m": [-1, 2]},
            id="several inputs",
        ),
        pytest.param(
            application("a").model("m", inputs=(IDS,)).model("n"),
            {"m.ids": [-1, 3], "n": [-1, 2, 2]},
            {"m": [-1, 2], "n": [-1, 2]},
            id="several inputs of several roots",
        ),
        pytest.param(
            application("a").model("m", outputs=((4,), (5, 6))),
            {"input": [-1, 2, 2]},
            {"m.0": [-1, 4], "m.1": [-1, 5, 6]},
            id="several outputs",
        ),
        pytest.param(
            application("a").model("m").model("n"),
            {"m": [-1, 2, 2], "n": [-1, 2, 2]},
            {"m": [-1, 2], "n": [-1, 2]},
            id="several roots and sinks",
        ),
        pytest.param(
            detector_with_crops(),
            {"input": [-1, 3, 4]},
            {"classifier": [-1, 5], "classifier.index": [-1]},
            id="rows of several samples, with their index",
        ),
        pytest.param(
            application("a").model("m", outputs=((2, 2),)).model("n").edge("m", "n"),
            {"input": [-1, 2, 2]},
            {"n": [-1, 2]},
            id="one row per sample needs no index",
        ),
        pytest.param(
            application("a").model("m").model("n").function("j", "join").edge("m", "j").edge("n", "j"),
            {"m": [-1, 2, 2], "n": [-1, 2, 2]},
            {},
            id="unknown outputs of a function",
        ),
    ],
)
def test_metadata(app: Application, want_inputs: dict[str, list[int]], want_outputs: dict[str, list[int]]) -> None:
    metadata = model_metadata(interface(app))
    assert {i["name"]: i["shape"] for i in metadata["inputs"]} == want_inputs
    assert {o["name"]: o["shape"] for o in metadata["outputs"]} == want_outputs


def test_any_output_of_a_function_may_be_requested() -> None:
    joined = interface(application("a").model("m").function("f", "double").edge("m", "f"))
    assert joined.may_give("f.doubled")
    assert not joined.may_give("m")
    assert not TRAFFIC.may_give("classifier.0")
