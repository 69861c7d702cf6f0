"""Calls by gRPC as requests by HTTP with the same content, and the answers back. Pure.

Neither the model nor its interface is known here, so what is wrong in a request is found by the session that answers.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, Field

from partita_api.session.module import DType
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.protocol.grpc_codec import TYPED_CONTENTS, parameter
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import RequestError, digits, joined_bytes
from partita_runtime.serving.protocol.inference_client import HEADER_LENGTH

_TIMEOUT: Final = "timeout"


class _Binary(BaseModel):
    binary_data_size: int = Field(ge=0)


class _Output(BaseModel):
    name: str
    datatype: str
    shape: list[int]
    parameters: _Binary


class _Answer(BaseModel):
    """The JSON of an answer by HTTP."""

    model_name: str
    model_version: str
    id: str = ""
    outputs: list[_Output]


def http_request(message: Any, deadline_micros: int | None) -> tuple[dict[str, str], bytes]:
    """Headers, by name in lower case, and body of a request with the content of a ModelInferRequest.

    deadline_micros: the time that the call has left; None if it has no deadline. Raises RequestError (400) if the
    message does not say what its tensors contain.
    """
    parameters = {name: parameter(name, message.parameters) for name in message.parameters}
    if deadline_micros is not None:
        parameters[_TIMEOUT] = min(deadline_micros, _positive(parameters.get(_TIMEOUT)) or deadline_micros)
    contents = [*_contents(message)]
    header: dict[str, Any] = {
        "inputs": _described(message.inputs, contents),
        "parameters": {**parameters, "binary_data_output": True},
    }
    if message.id:
        header["id"] = message.id
    if message.outputs:
        header["outputs"] = [{"name": output.name} for output in message.outputs]
    return _binary(header, contents)


def http_answer(message: Any) -> tuple[dict[str, str], bytes]:
    """Headers, by name in lower case, and body of an answer with the content of a ModelInferResponse."""
    contents = [*message.raw_output_contents]
    header = {"model_name": message.model_name, "outputs": _described(message.outputs, contents)}
    return _binary(header, contents)


def infer_response(headers: Mapping[str, str], body: bytes) -> Any:
    """The ModelInferResponse in an answer by HTTP with binary tensors. Raises ValueError if it is none."""
    length = digits(headers.get(HEADER_LENGTH.lower(), ""))
    answer = _Answer.model_validate_json(body[:length])
    message = MESSAGES["ModelInferResponse"](
        model_name=answer.model_name, model_version=answer.model_version, id=answer.id
    )
    start = len(body) if length is None else length
    for output in answer.outputs:
        end = start + output.parameters.binary_data_size
        if end > len(body):
            raise ValueError("the answer is shorter than its tensors")
        message.outputs.add(name=output.name, datatype=output.datatype, shape=output.shape)
        message.raw_output_contents.append(body[start:end])
        start = end
    return message


def _described(tensors: Iterable[Any], contents: Sequence[bytes]) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": [*tensor.shape],
            "parameters": {"binary_data_size": len(content)},
        }
        for tensor, content in zip(tensors, contents, strict=True)
    ]


def _binary(header: Mapping[str, Any], contents: Iterable[bytes]) -> tuple[dict[str, str], bytes]:
    head = json.dumps(header, separators=(",", ":")).encode()
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH.lower(): str(len(head))}
    return headers, b"".join((head, *contents))


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _contents(message: Any) -> Iterator[bytes]:
    """The bytes of each input."""
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RequestError(
            400, f"raw_input_contents must have one element for each of {len(message.inputs)} inputs, not {len(raw)}"
        )
    yield from raw if raw else map(_typed_content, message.inputs)


def _typed_content(tensor: Any) -> bytes:
    if tensor.datatype == "BYTES":
        return joined_bytes(tensor.contents.bytes_contents)
    dtype = next((dtype for dtype in TYPED_CONTENTS if dtype == tensor.datatype), None)
    if dtype is None:
        known = ", ".join(DType)
        raise RequestError(400, f"input {tensor.name!r} needs raw_input_contents, or has none of the types {known}")
    try:
        return np.array([*getattr(tensor.contents, TYPED_CONTENTS[dtype])], NUMPY_DTYPES[dtype]).tobytes()
    except OverflowError:
        raise RequestError(400, f"input {tensor.name!r} has elements that {dtype} cannot hold") from None
