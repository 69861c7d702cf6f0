"""Requests and answers of the Open Inference Protocol v2 with its binary tensor extension, for clients."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from partita_runtime.execution.executor import NUMPY_DTYPES

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_NAMES: Final = {dtype.name: name for name, dtype in NUMPY_DTYPES.items()}


class AnswerError(ValueError):
    """An answer that violates the Open Inference Protocol; the message says how."""


@dataclass(frozen=True)
class Payload:
    """A request's body, encoded once and sent many times."""

    headers: Mapping[str, str]
    body: bytes


def encode_request(inputs: Mapping[str, NDArray[Any]]) -> Payload:
    """The body of an infer request with tensors by name, each with a leading batch dimension.

    Raises ValueError for an element type that Partita does not support.
    """
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in inputs.items()}
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _NAMES:
            raise ValueError(f"input {name!r} has elements of {tensor.dtype.name}; use one of {', '.join(_NAMES)}")
    header = {
        "inputs": [
            {
                "name": name,
                "shape": list(tensor.shape),
                "datatype": _NAMES[tensor.dtype.name],
                "parameters": {"binary_data_size": tensor.nbytes},
            }
            for name, tensor in tensors.items()
        ],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    return Payload(
        headers={"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(head))},
        body=b"".join((head, *(tensor.tobytes() for tensor in tensors.values()))),
    )


def decode_answer(headers: Mapping[str, str], body: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of an infer answer by name, from binary data or JSON. Raises AnswerError."""
    length = next((value for name, value in headers.items() if name.lower() == HEADER_LENGTH.lower()), None)
    try:
        header_end = len(body) if length is None else int(length)
        described = json.loads(body[:header_end])["outputs"]
        tensors = {}
        offset = header_end
        for output in described:
            dtype, shape = NUMPY_DTYPES[output["datatype"]], output["shape"]
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                tensors[output["name"]] = np.asarray(output["data"], dtype=dtype).reshape(shape)
            else:
                tensors[output["name"]] = np.frombuffer(body[offset : offset + size], dtype=dtype).reshape(shape)
                offset += size
    except (KeyError, TypeError, ValueError) as error:
        raise AnswerError(f"answer of {len(body)} bytes is not of the Open Inference Protocol: {error!r}") from error
    return tensors
