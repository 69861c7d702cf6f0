"""The Open Inference Protocol v2 over HTTP: bytes to tensors and back, JSON and the binary tensor extension. Pure.

Specification: https://github.com/open-inference/open-inference-protocol; the binary extension is Triton's
(extension_binary_data.md): raw tensors follow the JSON, whose length is in the Inference-Header-Content-Length header.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partita_api.inferencesession import TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES
from partita_runtime.serving.interface import MAX_SAMPLES, Interface

HEADER_LENGTH: Final = "inference-header-content-length"
MODEL_VERSION: Final = "1"

Array = NDArray[Any]

_DATATYPES: Final = {np.dtype(dtype): name for name, dtype in NUMPY_DTYPES.items()} | {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.uint16): "UINT16",
    np.dtype(np.uint32): "UINT32",
    np.dtype(np.uint64): "UINT64",
    np.dtype(np.int8): "INT8",
    np.dtype(np.int16): "INT16",
    np.dtype(np.float64): "FP64",
}


class RequestError(Exception):
    """The request is answered with an error: an HTTP status, and a message for the one who sent it."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_seconds = retry_after_seconds


@dataclass(frozen=True)
class InferRequest:
    """A checked inference request."""

    id: str | None
    samples: int
    inputs: Mapping[str, Array]
    """Each of shape [samples, *spec.shape]; views of the request's body."""
    outputs: Mapping[str, bool] | None
    """Names of the wanted outputs, and whether each is wanted in binary; None: all of them."""
    binary: bool
    """Whether outputs are binary unless said otherwise."""
    timeout_micros: int | None
    """How long the client will wait, if it said so."""


class _Header(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Parameters(_Header):
    binary_data_size: int | None = Field(default=None, ge=0)
    binary_data: bool | None = None
    binary_data_output: bool = False
    timeout: int | None = Field(default=None, gt=0)
    classification: int = 0
    shared_memory_region: str | None = None


class _InputHeader(_Header):
    name: str
    datatype: str
    shape: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=9)]
    parameters: _Parameters = _Parameters()
    data: list[Any] | None = None


class _OutputHeader(_Header):
    name: str
    parameters: _Parameters = _Parameters()


class _RequestHeader(_Header):
    id: str | None = Field(default=None, max_length=1024)
    parameters: _Parameters = _Parameters()
    inputs: Annotated[tuple[_InputHeader, ...], Field(max_length=64)] = ()
    outputs: Annotated[tuple[_OutputHeader, ...], Field(max_length=256)] = ()


def decode_request(body: bytes, header_length: str | None, interface: Interface) -> InferRequest:
    """The request in an HTTP body; `header_length` is the header of that name.

    Raises RequestError (400) that says what is wrong and what is expected.
    """
    length = _header_length(header_length, len(body))
    try:
        header = _RequestHeader.model_validate_json(body[:length])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise RequestError(400, f"no inference request: {where}: {first['msg']}") from None
    outputs = _wanted(header, interface)
    inputs = _inputs(header.inputs, memoryview(body)[length:], interface)
    samples = {array.shape[0] for array in inputs.values()} or {1}
    if len(samples) > 1:
        raise RequestError(400, f"all inputs must have the same first dimension, not {sorted(samples)}")
    return InferRequest(
        id=header.id,
        samples=samples.pop(),
        inputs=inputs,
        outputs=outputs,
        binary=header.parameters.binary_data_output,
        timeout_micros=header.parameters.timeout,
    )


def encode_answer(
    request: InferRequest, interface: Interface, tensors: Mapping[str, Array]
) -> tuple[dict[str, str], bytes]:
    """HTTP headers and body that answer `request` with `tensors`.

    Raises RequestError (500) if a tensor that was asked for is not there or cannot be encoded.
    """
    wanted = dict.fromkeys(tensors, request.binary) if request.outputs is None else request.outputs
    described, blobs = [], []
    for name, binary in wanted.items():
        if name not in tensors:
            raise RequestError(500, f"the answer has no output {name!r}; it has {_listed(tensors)}")
        array = np.ascontiguousarray(tensors[name])
        if array.dtype not in _DATATYPES:
            raise RequestError(500, f"output {name!r} has element type {array.dtype}, which cannot be sent")
        output: dict[str, Any] = {"name": name, "datatype": _DATATYPES[array.dtype], "shape": list(array.shape)}
        if binary:
            output["parameters"] = {"binary_data_size": array.nbytes}
            blobs.append(array.tobytes())
        else:
            output["data"] = array.reshape(-1).tolist()
        described.append(output)
    answer = {"model_name": interface.model_name, "model_version": MODEL_VERSION, "outputs": described}
    if request.id is not None:
        answer["id"] = request.id
    text = json.dumps(answer, separators=(",", ":")).encode()
    if not blobs:
        return {"content-type": "application/json"}, text
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return headers, b"".join((text, *blobs))


def server_metadata(version: str) -> dict[str, Any]:
    """What `GET v2` answers."""
    return {"name": "partita", "version": version, "extensions": ["binary_tensor_data"]}


def model_metadata(interface: Interface) -> dict[str, Any]:
    """What `GET v2/models/<name>` answers."""
    return {
        "name": interface.model_name,
        "versions": [MODEL_VERSION],
        "platform": "partita",
        "inputs": [
            {"name": name, "datatype": spec.dtype.value, "shape": [-1, *spec.shape]}
            for name, spec in interface.inputs.items()
        ],
        "outputs": [{"name": o.name, "datatype": o.datatype, "shape": list(o.shape)} for o in interface.outputs],
    }


def check_model(interface: Interface, name: str, version: str | None) -> None:
    """Raise RequestError (404) unless the session serves this model and version."""
    if name != interface.model_name:
        raise RequestError(404, f"no model {name!r} is served here; the model is {interface.model_name!r}")
    if version not in (None, MODEL_VERSION):
        raise RequestError(404, f"model {name!r} has no version {version!r}; its version is {MODEL_VERSION!r}")


def _header_length(given: str | None, body: int) -> int:
    if given is None:
        return body
    if not given.isascii() or not given.isdecimal() or int(given) > body:
        raise RequestError(
            400, f"Inference-Header-Content-Length {given!r} is no length within the body of {body} bytes"
        )
    return int(given)


def _wanted(header: _RequestHeader, interface: Interface) -> dict[str, bool] | None:
    if not header.outputs:
        return None
    wanted = {}
    for output in header.outputs:
        if not interface.may_give(output.name):
            raise RequestError(
                400, f"unknown output {output.name!r}; there is {_listed(o.name for o in interface.outputs)}"
            )
        if output.parameters.classification or output.parameters.shared_memory_region is not None:
            raise RequestError(400, f"output {output.name!r}: classification and shared memory are not supported")
        binary = output.parameters.binary_data
        wanted[output.name] = header.parameters.binary_data_output if binary is None else binary
    return wanted


def _inputs(headers: Sequence[_InputHeader], blob: memoryview, interface: Interface) -> dict[str, Array]:
    by_name = {header.name: header for header in headers}
    if len(by_name) < len(headers):
        raise RequestError(400, "two inputs have the same name")
    if by_name.keys() != interface.inputs.keys():
        raise RequestError(400, f"the inputs must be {_listed(interface.inputs)}, not {_listed(by_name)}")
    arrays, offset = {}, 0
    for header in headers:
        spec = interface.inputs[header.name]
        _check_input(header, spec)
        if header.parameters.binary_data_size is None:
            arrays[header.name] = _from_json(header, spec)
            continue
        arrays[header.name] = _from_binary(header, spec, blob[offset:])
        offset += header.parameters.binary_data_size
    if offset != len(blob):
        raise RequestError(400, f"{len(blob) - offset} bytes are left over after the inputs' binary data")
    return arrays


def _check_input(header: _InputHeader, spec: TensorSpec) -> None:
    shape = header.shape
    if header.datatype != spec.dtype or shape[1:] != spec.shape or not 1 <= shape[0] <= MAX_SAMPLES:
        expected = ", ".join(("n", *map(str, spec.shape)))
        raise RequestError(
            400,
            f"input {header.name!r} must be {spec.dtype} [{expected}] with n from 1 to {MAX_SAMPLES}, "
            f"not {header.datatype} {list(shape)}",
        )


def _from_json(header: _InputHeader, spec: TensorSpec) -> Array:
    if header.data is None:
        raise RequestError(400, f"input {header.name!r} needs data, or parameters.binary_data_size and binary data")
    dtype = NUMPY_DTYPES[spec.dtype]
    try:
        given = np.array(header.data)
        fits = given.dtype.kind in ("iuf" if dtype.kind == "f" else "iu") or given.size == 0
        if fits and dtype.kind != "f" and given.size:
            limits = np.iinfo(dtype)
            fits = int(given.min()) >= limits.min and int(given.max()) <= limits.max
    except ValueError:
        fits = False  # not a rectangle
    if not fits:
        raise RequestError(400, f"input {header.name!r}: its data is no array of {spec.dtype} numbers")
    array = given.astype(dtype)
    if array.size != math.prod(header.shape):
        raise RequestError(
            400,
            f"input {header.name!r}: shape {list(header.shape)} has {math.prod(header.shape)} elements, "
            f"but data has {array.size}",
        )
    return array.reshape(header.shape)


def _from_binary(header: _InputHeader, spec: TensorSpec, blob: memoryview) -> Array:
    dtype = NUMPY_DTYPES[spec.dtype]
    size = math.prod(header.shape) * dtype.itemsize
    given = header.parameters.binary_data_size
    if given != size or len(blob) < size:
        raise RequestError(
            400,
            f"input {header.name!r}: {spec.dtype} {list(header.shape)} is {size} bytes, "
            f"but binary_data_size says {given} and {len(blob)} bytes are there",
        )
    return np.frombuffer(blob[:size], dtype).reshape(header.shape)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
