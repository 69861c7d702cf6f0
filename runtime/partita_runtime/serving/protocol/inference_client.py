"""Requests and answers of the Open Inference Protocol v2 with its binary tensor extension, for clients."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from partita_runtime.execution.executor import NUMPY_DTYPES

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_BYTES: Final = "BYTES"
_LENGTH: Final = 4
"""Bytes of the length in front of an element of type BYTES, little-endian."""
_NAMES: Final = {dtype.name: name for name, dtype in NUMPY_DTYPES.items()}


class AnswerError(ValueError):
    """An answer that violates the Open Inference Protocol; the message says how."""


@dataclass(frozen=True)
class Payload:
    """A request's body, encoded once and sent many times."""

    headers: Mapping[str, str]
    body: bytes
    url: str | None = None
    """Where to send it; None for the URL of the load."""


def model_url(url: str) -> str:
    """The URL of a session's model, from the session's. Raises ValueError if `url` cannot be that of a session."""
    base = url.rstrip("/")
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and base.isascii() and base.isprintable() and " " not in base
    except ValueError:  # the port is no number, or the address is no IPv6 address
        usable = False
    model = parts.path.rpartition("/")[2] if usable else ""
    if not model or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not the URL of a session; give one such as http://127.0.0.1:8000/default/traffic")
    return f"{base}/v2/models/{model}"


def client_headers(credentials: str) -> dict[str, str]:
    """The header with a client's API key or token. Raises ValueError, which does not repeat them."""
    key = credentials.strip()
    if not key or not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("credentials are an API key or a token alone, in visible ASCII characters")
    return {"Authorization": f"Bearer {key}"}


def encode_request(
    inputs: Mapping[str, NDArray[Any]],
    outputs: Sequence[str] = (),
    parameters: Mapping[str, Any] = {},
    binary_outputs: bool = True,
) -> Payload:
    """The body of an infer request with tensors by name, each with a leading batch dimension.

    Texts and bytes become BYTES. `outputs` are the tensors that are asked for; all if empty. `parameters` are those of
    the request. Without `binary_outputs` the answer is JSON. Raises ValueError for an element type that Partita does
    not support.
    """
    blobs = {name: _raw(name, tensor) for name, tensor in inputs.items()}
    header = {
        "inputs": [
            {
                "name": name,
                "shape": list(tensor.shape),
                "datatype": _NAMES.get(tensor.dtype.name, _BYTES),
                "parameters": {"binary_data_size": len(blobs[name])},
            }
            for name, tensor in inputs.items()
        ],
        "parameters": {**parameters, "binary_data_output": binary_outputs},
    }
    if outputs:
        header["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(header, separators=(",", ":")).encode()
    return Payload(
        headers={"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))},
        body=b"".join((head, *blobs.values())),
    )


def _raw(name: str, tensor: NDArray[Any]) -> bytes:
    if tensor.dtype.name in _NAMES:
        return tensor.tobytes()
    elements = [text.encode() if isinstance(text, str) else text for text in tensor.flat]
    if set(map(type, elements)) <= {bytes, np.bytes_}:
        return b"".join(part for data in elements for part in (len(data).to_bytes(_LENGTH, "little"), data))
    known = ", ".join((*_NAMES, "texts"))
    raise ValueError(f"input {name!r} has elements of {tensor.dtype.name}; use one of {known}")


def _encoded(data: list[Any]) -> NDArray[Any]:
    texts: NDArray[Any] = np.array(data, np.object_)
    return np.array([text.encode() for text in texts.flat], np.object_)


def _tensor(datatype: str, raw: bytes) -> NDArray[Any]:
    if datatype != _BYTES:
        return np.frombuffer(raw, NUMPY_DTYPES[datatype])
    elements, offset = [], 0
    while offset < len(raw):
        start = offset + _LENGTH
        offset = start + int.from_bytes(raw[offset:start], "little")
        elements.append(raw[start:offset])
    return np.array(elements, np.object_)


def decode_answer(headers: Mapping[str, str], body: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of an infer answer by name, from binary data or JSON. Raises AnswerError."""
    length = next((value for name, value in headers.items() if name.lower() == HEADER_LENGTH.lower()), None)
    try:
        header_end = len(body) if length is None else int(length)
        described = json.loads(body[:header_end])["outputs"]
        tensors = {}
        offset = header_end
        for output in described:
            datatype, shape = output["datatype"], output["shape"]
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                data = output["data"]
                tensor = _encoded(data) if datatype == _BYTES else np.asarray(data, NUMPY_DTYPES[datatype])
            else:
                tensor = _tensor(datatype, body[offset : offset + size])
                offset += size
            tensors[output["name"]] = tensor.reshape(shape)
    except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise AnswerError(f"answer of {len(body)} bytes is not of the Open Inference Protocol: {error!r}") from error
    return tensors


def decode_output(text: bytes) -> tuple[str, NDArray[Any]]:
    """The name and the tensor of one output in JSON, as an event stream has it. Raises AnswerError."""
    ((name, tensor),) = decode_answer({}, b'{"outputs":[%b]}' % text).items()
    return name, tensor
