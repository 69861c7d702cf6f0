"""KServe's V1 protocol over HTTP, which is TensorFlow Serving's format of rows: JSON to tensors and back. Pure.

Specification: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v1-protocol
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from partita_api.session.module import TensorSpec
from partita_runtime.execution.executor import Array
from partita_runtime.serving.protocol.inference import (
    Body,
    InferRequest,
    Output,
    RequestError,
    check_images,
    listed,
    output_of,
)
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface
from partita_runtime.serving.protocol.oip import (
    MAX_JSON_BYTES,
    InputHeader,
    RequestHeader,
    check_json_size,
    json_elements,
    parsed,
    request_in_json,
)

_ENCODED: Final = "b64"
"""The only key of an instance that is an encoded image."""


class PredictRequest(BaseModel):
    """A request's JSON."""

    model_config = ConfigDict(extra="ignore")

    instances: list[Any]


def decode_request(body: Body, interface: Interface, max_json_bytes: int = MAX_JSON_BYTES) -> InferRequest:
    """The request in an HTTP body.

    Raises RequestError with what is wrong and what is expected: 400, or 413 for too much JSON.
    """
    check_json_size(len(body), max_json_bytes)
    return request_of(parsed(PredictRequest, bytes(body)), interface)


def request_of(request: PredictRequest, interface: Interface) -> InferRequest:
    """The request with one sample for each instance. Raises RequestError (400)."""
    if len(interface.inputs) != 1:
        raise RequestError(
            400, f"V1 needs a session with one input, but this one has {listed(interface.inputs)}; send v2 requests"
        )
    ((name, spec),) = interface.inputs.items()
    instances = request.instances
    if not 1 <= len(instances) <= MAX_SAMPLES:
        raise RequestError(400, f"a request needs 1 to {MAX_SAMPLES} instances, not {len(instances)}")
    if name in interface.images and all(isinstance(instance, dict) for instance in instances):
        check_images(name, (len(instances),), interface)
        images = tuple(_image(number, instance) for number, instance in enumerate(instances))
        return InferRequest(None, len(images), {}, None, False, None, {name: images})
    shape = (len(instances), *_shape(instances[0], spec))
    tensor = InputHeader(name=name, datatype=spec.dtype.value, shape=shape, data=instances)
    return request_in_json(RequestHeader(inputs=(tensor,)), interface)


def encode_answer(interface: Interface, tensors: Mapping[str, Array]) -> tuple[dict[str, str], bytes]:
    """HTTP headers and body: the rows of the only tensor of the only sink, or those of all tensors by name.

    Raises RequestError (500) if a tensor cannot be encoded.
    """
    rows = {name: _rows(output_of(name, tensors)) for name in tensors}
    alone = len(rows) == len(interface.sinks) == 1
    predictions = next(iter(rows.values())) if alone else rows
    text = json.dumps({"predictions": predictions}, separators=(",", ":"))
    return {"content-type": "application/json"}, text.encode()


def _shape(instance: Any, spec: TensorSpec) -> Sequence[int]:
    """The input's shape, with the size of this instance in the dimension that varies, if one does."""
    if spec.variable_dimension is None:
        return spec.shape
    for _ in range(spec.variable_dimension):
        instance = instance[0] if isinstance(instance, list) and instance else None
    sizes = [*spec.shape]
    sizes[spec.variable_dimension] = len(instance) if isinstance(instance, list) else 0
    return sizes


def _image(number: int, instance: Mapping[str, Any]) -> bytes:
    text = instance.get(_ENCODED)
    try:
        if isinstance(text, str) and len(instance) == 1:
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise RequestError(400, f'instance {number} is not an image such as {{"{_ENCODED}": "<the file in base64>"}}')


def _rows(tensor: Output) -> list[Any]:
    """The elements of an output as nested lists."""
    return _nested(json_elements(tensor), tensor.array.shape)


def _nested(elements: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """Elements in row-major order as nested lists of this shape, which has one dimension or more."""
    if len(shape) == 1:
        return list(elements)
    size = math.prod(shape[1:])
    return [_nested(elements[row * size : (row + 1) * size], shape[1:]) for row in range(shape[0])]
