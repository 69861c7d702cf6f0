"""The Open Inference Protocol v2 over gRPC: messages to tensors and back, raw and typed contents. Pure."""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.grpc_messages import MESSAGES
from partita_runtime.serving.protocol.inference import (
    MAX_ID,
    MODEL_VERSION,
    InferRequest,
    RequestError,
    bytes_tensor,
    check_images,
    check_inputs,
    check_numbers,
    check_output,
    check_sizes,
    check_tensor,
    model_metadata,
    output_of,
    samples_of,
    split_bytes,
    takes_bytes,
    whole_number,
)
from partita_runtime.serving.protocol.interface import Interface

TYPED_CONTENTS: Final[Mapping[DType, str]] = {
    DType.FP32: "fp32_contents",
    DType.FP64: "fp64_contents",
    DType.INT64: "int64_contents",
    DType.INT32: "int_contents",
    DType.INT16: "int_contents",
    DType.INT8: "int_contents",
    DType.UINT64: "uint64_contents",
    DType.UINT32: "uint_contents",
    DType.UINT16: "uint_contents",
    DType.UINT8: "uint_contents",
    DType.BOOL: "bool_contents",
}
"""The field with the elements of a tensor with typed contents. FP16 has none and must be raw."""


_RAW_TENSOR: Final = 7 << 3 | 2
"""The tag of a field of `raw_input_contents`."""
_MOST_FIELDS: Final = 1024
"""Fields of a message that are searched for raw tensors."""


def parse_request(data: bytes, max_json_bytes: int) -> Any:
    """The ModelInferRequest in these bytes. A parsed message takes many times its memory, except for raw tensors.

    Raises RequestError (413) if it has more than `max_json_bytes` besides them, and DecodeError if it is no message.
    """
    if len(data) > max_json_bytes:
        parsed = len(data) - _raw_tensor_bytes(data)
        if parsed > max_json_bytes:
            raise RequestError(
                413,
                f"the message has {parsed} bytes besides raw_input_contents, of at most {max_json_bytes}; "
                "send its tensors there",
            )
    return MESSAGES["ModelInferRequest"].FromString(data)


def _raw_tensor_bytes(data: bytes) -> int:
    """The bytes of the raw tensors among the first fields; the fields after something invalid are not searched."""
    found = position = 0
    for _ in range(_MOST_FIELDS):
        tag, position = _varint(data, position)
        if tag & 7 != 2:
            break  # all fields of the message have a length
        length, position = _varint(data, position)
        if tag == _RAW_TENSOR:
            found += min(length, len(data) - position)
        position += length
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the position after it; 0 at the end of the data."""
    number = 0
    for count, byte in enumerate(data[position : position + 10]):
        number |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number, position + count + 1
    return 0, len(data)


def decode_request(message: Any, interface: Interface) -> InferRequest:
    """The request in a ModelInferRequest. Raises RequestError (400) with what is wrong and what is expected."""
    if len(message.id) > MAX_ID:
        raise RequestError(400, f"the request's id must not be longer than {MAX_ID} characters")
    for output in message.outputs:
        check_output(output.name, interface, output.parameters)
    inputs, images = _inputs(message, interface)
    whole_number("priority", parameter("priority", message.parameters))
    return InferRequest(
        id=message.id or None,
        samples=samples_of(inputs, images),
        inputs=inputs,
        outputs={output.name: True for output in message.outputs} or None,
        binary=True,
        timeout_micros=whole_number("timeout", parameter("timeout", message.parameters)) or None,
        images=images,
    )


def encode_answer(request: InferRequest, interface: Interface, tensors: Mapping[str, Array]) -> Any:
    """The ModelInferResponse that answers `request` with `tensors`, in raw contents.

    Raises RequestError (500) if a requested tensor is missing or cannot be encoded.
    """
    message = MESSAGES["ModelInferResponse"](
        model_name=interface.model_name, model_version=MODEL_VERSION, id=request.id or ""
    )
    for name in tensors if request.outputs is None else request.outputs:
        tensor = output_of(name, tensors)
        message.outputs.add(name=name, datatype=tensor.datatype, shape=tensor.array.shape)
        message.raw_output_contents.append(bytes(tensor.raw))
    return message


def metadata_message(interface: Interface) -> Any:
    """The session as a ModelMetadataResponse."""
    return MESSAGES["ModelMetadataResponse"](**model_metadata(interface))


def parameter(name: str, parameters: Any) -> Any:
    """The parameter of this name; None if it is not set."""
    kind = parameters[name].WhichOneof("parameter_choice") if name in parameters else None
    return None if kind is None else getattr(parameters[name], kind)


def _inputs(message: Any, interface: Interface) -> tuple[dict[str, Array], dict[str, tuple[bytes, ...]]]:
    check_inputs([tensor.name for tensor in message.inputs], interface)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise RequestError(
            400, f"raw_input_contents must have one element for each of {len(message.inputs)} inputs, not {len(raw)}"
        )
    arrays: dict[str, Array] = {}
    images: dict[str, tuple[bytes, ...]] = {}
    for number, tensor in enumerate(message.inputs):
        if raw and tensor.HasField("contents"):
            raise RequestError(400, f"input {tensor.name!r} has both contents and raw_input_contents; send one of them")
        spec = interface.inputs[tensor.name]
        if takes_bytes(tensor.name, tensor.datatype, interface):
            check_tensor(tensor.name, tensor.datatype, tensor.shape, spec)
            elements = _bytes(tensor, math.prod(tensor.shape), raw[number] if raw else None)
            arrays[tensor.name] = bytes_tensor(elements, tensor.shape)
        elif tensor.datatype == "BYTES":
            count = check_images(tensor.name, tensor.shape, interface)
            images[tensor.name] = _bytes(tensor, count, raw[number] if raw else None)
        else:
            check_tensor(tensor.name, tensor.datatype, tensor.shape, spec)
            array = _from_raw(tensor, spec, raw[number]) if raw else _from_contents(tensor, spec)
            arrays[tensor.name] = check_numbers(tensor.name, array, interface)
    check_sizes({tensor.name: tensor.shape for tensor in message.inputs}, interface)
    return arrays, images


def _bytes(tensor: Any, count: int, raw: bytes | None) -> tuple[bytes, ...]:
    """The elements of a BYTES tensor."""
    if raw is not None:
        return split_bytes(tensor.name, count, memoryview(raw))
    given = tuple(tensor.contents.bytes_contents)
    if len(given) != count:
        raise RequestError(400, f"input {tensor.name!r} needs {count} elements in bytes_contents, not {len(given)}")
    return given


def _from_raw(tensor: Any, spec: TensorSpec, raw: bytes) -> Array:
    dtype = NUMPY_DTYPES[spec.dtype]
    size = int(np.prod(tensor.shape)) * dtype.itemsize
    if len(raw) != size:
        raise RequestError(
            400, f"input {tensor.name!r}: {spec.dtype} {list(tensor.shape)} is {size} bytes, but {len(raw)} are there"
        )
    return np.frombuffer(raw, dtype).reshape(tensor.shape)


def _from_contents(tensor: Any, spec: TensorSpec) -> Array:
    kind = TYPED_CONTENTS.get(spec.dtype)
    if kind is None:
        raise RequestError(400, f"input {tensor.name!r}: {spec.dtype} has no typed contents; send raw_input_contents")
    elements = getattr(tensor.contents, kind)
    if len(elements) != np.prod(tensor.shape):
        raise RequestError(
            400, f"input {tensor.name!r}: {list(tensor.shape)} needs as many elements in {kind}, not {len(elements)}"
        )
    try:
        return np.array([*elements], NUMPY_DTYPES[spec.dtype]).reshape(tensor.shape)
    except OverflowError:
        raise RequestError(400, f"input {tensor.name!r} has elements that {spec.dtype} cannot hold") from None
