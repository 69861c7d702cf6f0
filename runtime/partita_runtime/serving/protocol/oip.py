"""The Open Inference Protocol v2 over HTTP: bytes to tensors and back, JSON and the binary tensor extension. Pure.

Specification: https://github.com/open-inference/open-inference-protocol; the binary extension is Triton's
(extension_binary_data.md): raw tensors follow the JSON, whose length is in the Inference-Header-Content-Length header.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.inference import (
    MAX_ID,
    MODEL_VERSION,
    Body,
    InferRequest,
    Output,
    RequestError,
    bytes_tensor,
    check_images,
    check_inputs,
    check_numbers,
    check_output,
    check_sizes,
    check_tensor,
    digits,
    first_problem,
    output_of,
    samples_of,
    split_bytes,
    takes_bytes,
    whole_number,
)
from partita_runtime.serving.protocol.interface import Interface

HEADER_LENGTH: Final = "inference-header-content-length"
MAX_JSON_BYTES: Final = 4 * 1024 * 1024
"""By default the most bytes of a request's JSON. Other requests wait while it is parsed, also if a thread parses it."""

_MOST_KEPT: Final = 256
"""Parsed headers that are cached; most requests of a client have the same header."""
_MOST_KEPT_BYTES: Final = 1024
_MOST_DIMENSIONS: Final = 9
_JSON_TYPES: Final[Mapping[str, Set[type]]] = {"f": {int, float}, "i": {int}, "u": {int}, "b": {bool, int}}
"""The types of elements in JSON, by the kind of numpy's element type."""
_Size = Annotated[int, Field(ge=0, lt=2**63)]


Parsed = TypeVar("Parsed", bound=BaseModel)


class _Header(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Parameters(_Header):
    binary_data_size: _Size | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    timeout: Any = None
    priority: Any = None
    classification: int = 0
    shared_memory_region: str | None = None


class InputHeader(_Header):
    """One input in a request's JSON."""

    name: str
    datatype: str
    shape: Annotated[tuple[_Size, ...], Field(max_length=_MOST_DIMENSIONS)]
    parameters: _Parameters = _Parameters()
    data: list[Any] | None = None


class _OutputHeader(_Header):
    name: str
    parameters: _Parameters = _Parameters()


class RequestHeader(_Header):
    """A request's JSON."""

    id: str | None = Field(default=None, max_length=MAX_ID)
    parameters: _Parameters = _Parameters()
    inputs: Annotated[tuple[InputHeader, ...], Field(max_length=256)] = ()
    outputs: Annotated[tuple[_OutputHeader, ...], Field(max_length=256)] = ()


class _TensorPlace(NamedTuple):
    """Where one input is in a request's binary data. Its header has been checked."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    elements: int
    offset: int


class _Form(NamedTuple):
    """A parsed header of a request."""

    header: RequestHeader
    outputs: dict[str, bool] | None
    places: tuple[_TensorPlace, ...] | None
    """The places of all inputs; None if an input is not plain binary data."""
    binary_bytes: int
    """Length of the binary data of `places`."""
    timeout_micros: int | None


def decode_request(
    body: Body, header_length: str | None, interface: Interface, max_json_bytes: int = MAX_JSON_BYTES
) -> InferRequest:
    """The request in an HTTP body; `header_length` is the header of that name.

    Raises RequestError with what is wrong and what is expected: 400, or 413 for too much JSON.
    """
    length = _header_length(header_length, len(body))
    check_json_size(length, max_json_bytes)
    read = _read_again if length <= _MOST_KEPT_BYTES else _read
    form = read(bytes(body[:length]), interface)
    inputs: Mapping[str, Array]
    images: Mapping[str, tuple[bytes, ...]]
    if form.places is not None and form.binary_bytes == len(body) - length:
        inputs, images = _placed(form.places, body, length, interface), {}
        samples = form.places[0].shape[0] if form.places else 1
    else:
        inputs, images = _inputs(form.header.inputs, memoryview(body)[length:], interface)
        samples = samples_of(inputs, images)
    return InferRequest(
        id=form.header.id or None,
        samples=samples,
        inputs=inputs,
        outputs=form.outputs,
        binary=form.header.parameters.binary_data_output,
        timeout_micros=form.timeout_micros,
        images=images,
    )


def request_in_json(header: RequestHeader, interface: Interface) -> InferRequest:
    """The request in parsed JSON without binary data, to be answered in JSON.

    Raises RequestError (400) with what is wrong and what is expected.
    """
    form = _form(header, interface)
    inputs, images = _inputs(header.inputs, memoryview(b""), interface)
    return InferRequest(
        id=header.id or None,
        samples=samples_of(inputs, images),
        inputs=inputs,
        outputs=None if form.outputs is None else dict.fromkeys(form.outputs, False),
        binary=False,
        timeout_micros=form.timeout_micros,
        images=images,
    )


def encode_answer(
    request: InferRequest, interface: Interface, tensors: Mapping[str, Array]
) -> tuple[dict[str, str], bytes]:
    """HTTP headers and body that answer `request` with `tensors`.

    Raises RequestError (500) if a requested tensor is missing or cannot be encoded.
    """
    requested = dict.fromkeys(tensors, request.binary) if request.outputs is None else request.outputs
    found = [output_of(name, tensors) for name in requested]
    blobs = {tensor.name: memoryview(tensor.raw) for tensor in found if requested[tensor.name]}
    if request.id is None and len(blobs) == len(found):
        described = tuple([(name, datatype, array.shape, blobs[name].nbytes) for name, datatype, array in found])
        text = _binary_header(interface.model_name, described)
    else:
        outputs = [
            _in_binary(*tensor[:2], tensor.array.shape, blobs[tensor.name].nbytes)
            if requested[tensor.name]
            else in_json(tensor)
            for tensor in found
        ]
        text = answer_header(interface.model_name, outputs, request.id)
    if not blobs:
        return {"content-type": "application/json"}, text
    headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(len(text))}
    return headers, b"".join((text, *blobs.values()))


def _in_binary(name: str, datatype: str, shape: tuple[int, ...], size: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": {"binary_data_size": size}}


def in_json(tensor: Output) -> dict[str, Any]:
    """An output of an answer as JSON. Raises RequestError (500) if JSON cannot say one of its elements."""
    name, datatype, array = tensor
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": json_elements(tensor)}


def json_elements(tensor: Output) -> list[Any]:
    """The elements of an output in row-major order. Raises RequestError (500) if JSON cannot say one of them."""
    name, datatype, array = tensor
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise RequestError(500, f"output {name!r} has infinities or NaN, which JSON cannot say; ask for binary data")
    data = array.reshape(-1).tolist()
    if datatype == DType.BYTES:
        try:
            data = [element.decode() for element in data]
        except UnicodeDecodeError:
            raise RequestError(
                500, f"output {name!r} has bytes that are no UTF-8, which JSON cannot say; ask for binary data"
            ) from None
    return data


@lru_cache(maxsize=_MOST_KEPT)
def _binary_header(model: str, described: tuple[tuple[str, str, tuple[int, ...], int], ...]) -> bytes:
    return answer_header(model, [_in_binary(*tensor) for tensor in described], None)


def answer_header(model: str, outputs: Sequence[Mapping[str, Any]], request_id: str | None) -> bytes:
    """An answer's JSON with these outputs."""
    answer = {"model_name": model, "model_version": MODEL_VERSION, "outputs": outputs}
    if request_id is not None:
        answer["id"] = request_id
    return json.dumps(answer, separators=(",", ":")).encode()


def _read(text: bytes, interface: Interface) -> _Form:
    return _form(parsed(RequestHeader, text), interface)


def _form(header: RequestHeader, interface: Interface) -> _Form:
    outputs = _requested_outputs(header, interface)
    whole_number("priority", header.parameters.priority)
    timeout = whole_number("timeout", header.parameters.timeout) or None
    places = _places(header.inputs, interface)
    return _Form(header, outputs, places, sum([p.elements * p.dtype.itemsize for p in places or ()]), timeout)


# Most clients repeat the same header; only the binary data differ.
_read_again: Final = lru_cache(maxsize=_MOST_KEPT)(_read)


def parsed(model: type[Parsed], text: bytes) -> Parsed:
    """A request's JSON. Raises RequestError (400) with what is wrong."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise RequestError(400, f"not an inference request: {first_problem(error, 'the body')}") from None


def check_json_size(size: int, max_json_bytes: int) -> None:
    """Raise RequestError (413) for too many bytes of JSON."""
    if size > max_json_bytes:
        raise RequestError(
            413, f"the request has {size} bytes of JSON, of at most {max_json_bytes}; send its tensors as binary data"
        )


def _places(headers: Sequence[InputHeader], interface: Interface) -> tuple[_TensorPlace, ...] | None:
    check_inputs([header.name for header in headers], interface)
    places: list[_TensorPlace] = []
    offset = 0
    for header in headers:
        size = header.parameters.binary_data_size
        if size is None or header.datatype == "BYTES":
            return None
        spec = interface.inputs[header.name]
        check_tensor(header.name, header.datatype, header.shape, spec)
        place = _TensorPlace(header.name, NUMPY_DTYPES[spec.dtype], header.shape, math.prod(header.shape), offset)
        places.append(place)
        if size != place.elements * place.dtype.itemsize or place.shape[0] != places[0].shape[0]:
            return None
        offset += size
    check_sizes({place.name: place.shape for place in places}, interface)
    return tuple(places)


def _placed(places: Sequence[_TensorPlace], body: Body, start: int, interface: Interface) -> dict[str, Array]:
    arrays = {}
    for name, dtype, shape, elements, offset in places:
        array = np.frombuffer(body, dtype, elements, start + offset).reshape(shape)
        arrays[name] = check_numbers(name, array, interface)
    return arrays


def _header_length(given: str | None, body: int) -> int:
    if given is None:
        return body
    length = digits(given)
    if length is None or length > body:
        raise RequestError(
            400, f"Inference-Header-Content-Length {given!r:.80} is not a length within the body of {body} bytes"
        )
    return length


def _requested_outputs(header: RequestHeader, interface: Interface) -> dict[str, bool] | None:
    if not header.outputs:
        return None
    requested = {}
    for output in header.outputs:
        check_output(output.name, interface, output.parameters.model_dump(exclude_defaults=True))
        binary = output.parameters.binary_data
        requested[output.name] = header.parameters.binary_data_output if binary is None else binary
    return requested


def _inputs(
    headers: Sequence[InputHeader], blob: memoryview, interface: Interface
) -> tuple[dict[str, Array], dict[str, tuple[bytes, ...]]]:
    check_inputs([header.name for header in headers], interface)
    arrays: dict[str, Array] = {}
    images: dict[str, tuple[bytes, ...]] = {}
    offset = 0
    for header in headers:
        size = header.parameters.binary_data_size
        spec = interface.inputs[header.name]
        if takes_bytes(header.name, header.datatype, interface):
            check_tensor(header.name, header.datatype, header.shape, spec)
            arrays[header.name] = _bytes(header, blob[offset:])
        elif header.datatype == "BYTES":
            count = check_images(header.name, header.shape, interface)
            if size is None:
                raise RequestError(400, f"input {header.name!r}: images must be sent as binary data")
            images[header.name] = split_bytes(header.name, count, blob[offset : offset + size])
        else:
            check_tensor(header.name, header.datatype, header.shape, spec)
            array = _from_json(header, spec) if size is None else _from_binary(header, spec, blob[offset:])
            arrays[header.name] = check_numbers(header.name, array, interface)
        offset += size or 0
    check_sizes({header.name: header.shape for header in headers}, interface)
    if offset != len(blob):
        raise RequestError(400, f"{len(blob) - offset} bytes are left over after the inputs' binary data")
    return arrays, images


def _bytes(header: InputHeader, blob: memoryview) -> Array:
    size = header.parameters.binary_data_size
    if size is not None:
        elements: Sequence[bytes] = split_bytes(header.name, math.prod(header.shape), blob[:size])
    else:
        elements = [text.encode() for text in _elements(header, {str}, "an array of texts; send other bytes as binary")]
    return bytes_tensor(elements, header.shape)


def _from_json(header: InputHeader, spec: TensorSpec) -> Array:
    dtype, expected = NUMPY_DTYPES[spec.dtype], f"an array of {spec.dtype} numbers"
    array = _converted(_elements(header, _JSON_TYPES[dtype.kind], expected), dtype)
    if array is None:
        raise RequestError(400, f"input {header.name!r}: its data is not {expected}")
    return array.reshape(header.shape)


def _elements(header: InputHeader, types: Set[type], expected: str) -> Sequence[Any]:
    """The elements of the tensor's data. Raises RequestError (400) unless they are of these types, and as many."""
    if header.data is None:
        raise RequestError(400, f"input {header.name!r} needs data, or parameters.binary_data_size and binary data")
    elements = _flat(header.data)
    if elements is None or not set(map(type, elements)) <= types:
        raise RequestError(400, f"input {header.name!r}: its data is not {expected}")
    if len(elements) != math.prod(header.shape):
        raise RequestError(
            400,
            f"input {header.name!r}: shape {list(header.shape)} has {math.prod(header.shape)} elements, "
            f"but data has {len(elements)}",
        )
    return elements


def _flat(data: Sequence[Any]) -> Sequence[Any] | None:
    """The elements of nested lists; None if they are no rectangle."""
    for _ in range(_MOST_DIMENSIONS):
        if not data or not isinstance(data[0], list):
            break
        if set(map(type, data)) != {list} or len(set(map(len, data))) > 1:
            return None
        data = [*itertools.chain.from_iterable(data)]
    return data


def _converted(numbers: Sequence[int | float], dtype: np.dtype[Any]) -> Array | None:
    """The numbers in this element type; None if it cannot hold one of them."""
    if dtype.kind == "b" and not set(numbers) <= {0, 1}:
        return None
    try:
        with np.errstate(over="ignore"):
            array = np.array(numbers, dtype)
    except OverflowError:
        return None
    return None if dtype.kind == "f" and np.isinf(array).any() else array


def _from_binary(header: InputHeader, spec: TensorSpec, blob: memoryview) -> Array:
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
