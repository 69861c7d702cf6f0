"""Requests, errors and checks that HTTP and gRPC have in common. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from pydantic import ValidationError

from partita_api.session.module import DType, TensorSpec
from partita_runtime.execution.executor import NUMPY_DTYPES, Array
from partita_runtime.serving.protocol.interface import MAX_SAMPLES, Interface
from partita_runtime.serving.protocol.variable_size import described, dimensions, takes, varying_sizes

Body = bytes | memoryview
"""The body of a request."""

RETRY_AFTER_SECONDS: Final = 1
MODEL_VERSION: Final = "1"
PLATFORM: Final = "partita"
"""What clients see as the platform of the session's model."""
EXTENSIONS: Final = ("binary_tensor_data", "model_configuration", "statistics")
"""The extensions of Triton that are supported."""
MAX_ID: Final = 1024
"""Most characters in a request's id."""
MAX_MESSAGE: Final = 1000
"""Most characters of an error's message: it may repeat what the client has sent."""
TOKENIZE: Final = "use the tokenizer of this model"
"""What to do about numbers outside of a vocabulary."""
_MAX_DIGITS: Final = 20
"""Digits of the largest number of 64 bits. Python takes quadratic time for long ones, and refuses more than 4300."""
_MAX_NUMBER: Final = 2**63 - 1

_DATATYPES: Final[Mapping[np.dtype[Any], str]] = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
_OBJECT: Final = np.dtype(np.object_)
_BYTES_LENGTH: Final = 4
"""Bytes of the length in front of an element of type BYTES, little-endian."""


class RequestError(Exception):
    """The request is answered with an error: an HTTP status, and a message for the one who sent it."""

    def __init__(self, status: int, message: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}...")
        self.status = status
        self.retry_after_seconds = retry_after_seconds


Samples = Array | list[Array]
"""The samples of one input: [samples, *spec.shape], or one array for each if they differ in size."""


class InferRequest(NamedTuple):
    """A checked inference request."""

    id: str | None
    samples: int
    inputs: Mapping[str, Samples]
    """By name; views of the request's body. Only images make samples that differ in size."""
    outputs: Mapping[str, bool] | None
    """Names of the requested outputs, and whether each is requested in binary; None for all outputs."""
    binary: bool
    """Whether outputs are binary by default."""
    timeout_micros: int | None
    """How long the client waits, if it has said so."""
    images: Mapping[str, tuple[bytes, ...]] = MappingProxyType({})
    """Inputs that are JPEG or PNG images, one for each sample; `session.image_decoder` makes tensors of them."""

    def within(self, micros: int | None) -> Self:
        """The same request with this timeout, if it is shorter; None changes nothing."""
        if micros is None or (self.timeout_micros is not None and self.timeout_micros <= micros):
            return self
        return self._replace(timeout_micros=micros)


def digits(text: str) -> int | None:
    """The number of ASCII digits; None for any other text, and for more digits than a number of 64 bits has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def whole_number(name: str, value: object) -> int:
    """A request's parameter of this name; 0 for None. Raises RequestError (400) unless it is a whole number from 0.

    It may be text, since some clients have no numbers for parameters.
    """
    if value is None:
        return 0
    number = digits(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_NUMBER:
        raise RequestError(400, f"parameter {name!r} must be a whole number from 0 to {_MAX_NUMBER}, not {value!r:.80}")
    return number


def server_metadata() -> dict[str, Any]:
    """The metadata of the server: name, version, extensions of the protocol."""
    try:
        own = version("partita")
    except PackageNotFoundError:
        own = "unknown"
    return {"name": "partita", "version": own, "extensions": [*EXTENSIONS]}


def model_metadata(interface: Interface, versions: Sequence[str] = ()) -> dict[str, Any]:
    """The metadata of the session as a model: its input and output tensors, and its other versions."""
    return {
        "name": interface.model_name,
        "versions": [MODEL_VERSION, *versions],
        "platform": PLATFORM,
        "inputs": [
            {"name": name, "datatype": spec.dtype.value, "shape": [-1, *described(spec)]}
            for name, spec in interface.inputs.items()
        ],
        "outputs": [{"name": o.name, "datatype": o.datatype, "shape": list(o.shape)} for o in interface.outputs],
    }


def check_model(interface: Interface, name: str, asked: str | None) -> None:
    """Raise RequestError (404) unless the session serves this model and version."""
    if name != interface.model_name:
        raise RequestError(404, f"no model {name!r} is served here; the model is {interface.model_name!r}")
    if asked not in (None, MODEL_VERSION):
        raise RequestError(404, f"model {name!r} has no version {asked!r}; its version is {MODEL_VERSION!r}")


def check_inputs(names: Sequence[str], interface: Interface) -> None:
    """Raise RequestError (400) unless these are the names of the session's inputs."""
    if len(set(names)) < len(names):
        raise RequestError(400, "two inputs have the same name")
    if set(names) != interface.inputs.keys():
        raise RequestError(400, f"the inputs must be {listed(interface.inputs)}, not {listed(names)}")


def check_output(name: str, interface: Interface, parameters: Iterable[str]) -> None:
    """Raise RequestError (400) unless an answer can have this output with the parameters that are set."""
    if not interface.may_give(name):
        raise RequestError(400, f"unknown output {name!r}; there is {listed(o.name for o in interface.outputs)}")
    if not {"classification", "shared_memory_region"}.isdisjoint(parameters):
        raise RequestError(400, f"output {name!r}: classification and shared memory are not supported")


def check_tensor(name: str, datatype: str, shape: Sequence[int], spec: TensorSpec) -> None:
    """Raise RequestError (400) unless datatype and shape are those of `spec`, for 1 to 64 samples."""
    if datatype != spec.dtype or not takes(spec, shape[1:]) or not 1 <= shape[0] <= MAX_SAMPLES:
        expected = ", ".join(("n", *dimensions(spec)))
        raise RequestError(
            400,
            f"input {name!r} must be {spec.dtype} [{expected}] with n from 1 to {MAX_SAMPLES}, "
            f"not {datatype} {list(shape)}",
        )


def check_sizes(shapes: Mapping[str, Sequence[int]], interface: Interface) -> None:
    """Raise RequestError (400) unless inputs that vary together have one size; each has a shape that it takes."""
    for specs in interface.varying_together:
        sizes = varying_sizes([*specs.values()], [shapes[name][1:] for name in specs])
        if len(sizes) > 1:
            raise RequestError(
                400, f"inputs {listed(specs)} must have the same size, not {' and '.join(map(str, sorted(sizes)))}"
            )


def check_numbers(name: str, array: Array, interface: Interface) -> Array:
    """The tensor of an input, unchanged.

    Raises RequestError (400) if it has NaN, BOOL other than 0 and 1, or numbers outside of the model's vocabulary.
    """
    if array.dtype.kind == "f" and _has_nan(array):
        raise RequestError(400, f"input {name!r} has elements that are not a number (NaN)")
    if array.dtype.kind == "b" and np.count_nonzero(array.view(np.uint8) > 1):
        raise RequestError(400, f"input {name!r}: the bytes of BOOL must be 0 or 1")
    if (rows := interface.input_vocabularies.get(name)) and (wrong := outside(array, rows)) is not None:
        raise RequestError(400, f"input {name!r} has {wrong}, but the model has rows 0 to {rows - 1} only; {TOKENIZE}")
    return array


def _has_nan(array: Array) -> bool:
    """Whether an array of floating-point numbers has NaN, which is also its minimum then: faster than `np.isnan`."""
    if array.itemsize == 2:  # half precision has no fast minimum; the bits of NaN are above those of infinity
        return bool(np.count_nonzero(array.view(np.uint16) & 0x7FFF > 0x7C00))
    return math.isnan(array.min(initial=0))


def outside(array: Array, rows: int) -> int | None:
    """A number of the array that selects no row of a table; None if there is none."""
    if not array.size:
        return None
    return next((int(number) for number in (array.min(), array.max()) if not 0 <= number < rows), None)


def takes_bytes(name: str, datatype: str, interface: Interface) -> bool:
    """Whether an input of this element type has texts or files for a function; otherwise BYTES has images."""
    return datatype == interface.inputs[name].dtype == DType.BYTES


def check_images(name: str, shape: Sequence[int], interface: Interface) -> int:
    """The number of images in an input of element type BYTES. Raises RequestError (400) if it takes no images."""
    if name not in interface.images:
        raise RequestError(400, f"input {name!r} takes no images, so it cannot be BYTES; see its module's `image`")
    if not shape or not 1 <= shape[0] <= MAX_SAMPLES or any(size != 1 for size in shape[1:]):
        raise RequestError(
            400, f"input {name!r} as BYTES must be [n] images with n from 1 to {MAX_SAMPLES}, not {shape}"
        )
    return shape[0]


def split_bytes(name: str, count: int, blob: memoryview) -> tuple[bytes, ...]:
    """The elements of a BYTES tensor. Each has its length in front, in 4 bytes, little-endian.

    Raises RequestError (400) unless `blob` has exactly `count` elements.
    """
    elements: list[bytes] = []
    offset = 0
    while offset + _BYTES_LENGTH <= len(blob) and len(elements) < count:
        length = int.from_bytes(blob[offset : offset + _BYTES_LENGTH], "little")
        offset += _BYTES_LENGTH
        elements.append(bytes(blob[offset : offset + length]))
        offset += length
    if len(elements) != count or offset != len(blob):
        raise RequestError(400, f"input {name!r}: its {len(blob)} bytes are not {count} elements with their lengths")
    return tuple(elements)


def joined_bytes(elements: Iterable[bytes]) -> bytes:
    """The elements of a BYTES tensor as binary data, as `split_bytes` takes them."""
    return b"".join([part for data in elements for part in (len(data).to_bytes(_BYTES_LENGTH, "little"), data)])


def bytes_tensor(elements: Sequence[bytes], shape: Sequence[int]) -> Array:
    """The tensor of an input of type BYTES, as an array of objects."""
    array = np.empty(len(elements), _OBJECT)
    array[:] = elements
    return array.reshape(shape)


def samples_of(inputs: Mapping[str, Array], images: Mapping[str, Sequence[bytes]]) -> int:
    """The number of samples of a request's tensors and images. Raises RequestError (400) if they differ."""
    samples: set[int] = {len(input) for input in (*inputs.values(), *images.values())} or {1}
    if len(samples) > 1:
        raise RequestError(400, f"all inputs must have the same first dimension, not {sorted(samples)}")
    return samples.pop()


class Output(NamedTuple):
    """A tensor of an answer."""

    name: str
    datatype: str
    """The protocol's name of its element type."""
    array: Array
    """Contiguous; of objects of type bytes for BYTES."""

    @property
    def raw(self) -> bytes | memoryview:
        """Its elements as binary data."""
        if self.datatype != DType.BYTES:
            return self.array.data
        return joined_bytes(self.array.reshape(-1).tolist())


def output_of(name: str, tensors: Mapping[str, Array]) -> Output:
    """The output tensor of this name. Raises RequestError (500) if it is missing or cannot be sent."""
    if name not in tensors:
        raise RequestError(500, f"the answer has no output {name!r}; it has {listed(tensors)}")
    array = np.ascontiguousarray(tensors[name])
    datatype = _DATATYPES.get(array.dtype)
    if array.dtype == _OBJECT and set(map(type, array.flat)) <= {bytes}:
        datatype = DType.BYTES
    if datatype is None:
        raise RequestError(500, f"output {name!r} has element type {array.dtype}, which cannot be sent")
    return Output(name, datatype, array)


def first_problem(error: ValidationError, whole: str) -> str:
    """The first of pydantic's complaints, with its place; `whole` is the name of what was read."""
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


def listed(names: Iterable[str]) -> str:
    """Names in a message."""
    return ", ".join(repr(name) for name in names) or "none"
