"""Parameters of a request mean the same over HTTP and gRPC."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.runtime.serving.plans import application

from partita_runtime.serving.protocol import grpc_codec, oip
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import InferRequest, RequestError
from partita_runtime.serving.protocol.interface import Interface

PLAIN = application("plain").model("only", input=(2,), outputs=((4,),))
INTERFACE = Interface("plain", PLAIN.session.spec, PLAIN.epoch.outputs)

Read = Callable[[str, dict[str, Any]], InferRequest]


def over_http(request_id: str, parameters: dict[str, Any]) -> InferRequest:
    tensor = {"name": "input", "datatype": "FP32", "shape": [1, 2], "data": [0, 0]}
    body = {"id": request_id, "parameters": parameters, "inputs": [tensor]}
    return oip.decode_request(json.dumps(body).encode(), None, INTERFACE)


def over_grpc(request_id: str, parameters: dict[str, Any]) -> InferRequest:
    message = MESSAGES["ModelInferRequest"](model_name="plain", id=request_id, raw_input_contents=[bytes(8)])
    message.inputs.add(name="input", datatype="FP32", shape=[1, 2])
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in parameters.items():
        message.parameters[name].CopyFrom(MESSAGES["InferParameter"](**{fields[type(value)]: value}))
    return grpc_codec.decode_request(message, INTERFACE)


@pytest.fixture(params=[over_http, over_grpc])
def read(request: pytest.FixtureRequest) -> Read:
    way: Read = request.param
    return way


@pytest.mark.parametrize(
    ("parameters", "want_timeout"),
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"timeout": 7}, 7, id="timeout"),
        pytest.param({"timeout": "7"}, 7, id="timeout as text"),
        pytest.param({"timeout": 0}, None, id="no timeout"),
        pytest.param({"timeout": 7, "priority": 1}, 7, id="priority"),
        pytest.param({"sequence_id": 5, "other": "text"}, None, id="others"),
    ],
)
def test_parameters_are_read(read: Read, parameters: dict[str, Any], want_timeout: int | None) -> None:
    request = read("seven", parameters)
    assert (request.id, request.timeout_micros) == ("seven", want_timeout)


@pytest.mark.parametrize("name", ["timeout", "priority"])
@pytest.mark.parametrize("value", [-1, True, 1.0, "", "soon", "-1", "\u0667", "9" * 5000])
def test_parameters_that_are_not_whole_numbers_are_refused(read: Read, name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"parameter '{name}' must be a whole number from 0") as refused:
        read("", {name: value})
    assert refused.value.status == 400
    assert len(str(refused.value)) < 200


def test_a_request_without_an_id_has_none(read: Read) -> None:
    assert read("", {}).id is None


def test_a_long_id_is_refused(read: Read) -> None:
    assert read("x" * 1024, {}).id == "x" * 1024
    with pytest.raises(RequestError, match="1024 characters") as refused:
        read("x" * 1025, {})
    assert refused.value.status == 400
