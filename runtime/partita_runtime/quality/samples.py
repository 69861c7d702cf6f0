"""Samples: lines of JSON, each a request of the Open Inference Protocol with the outputs that are expected. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from partita_runtime.quality.metrics import Tensor
from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer

MAX_SAMPLES: Final = 1000


class SamplesError(ValueError):
    """Samples that cannot be used; the message says which line and why, without what is in it."""


@dataclass(frozen=True)
class Sample:
    """A request, and the answer that is expected."""

    request: bytes
    """Its body in JSON."""
    expected: Mapping[str, Tensor]
    """Outputs by name."""


def parse_samples(text: str) -> tuple[Sample, ...]:
    """The samples in lines of JSON; empty lines count for nothing. Raises SamplesError."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise SamplesError("there is no sample; write one JSON object in each line")
    if len(lines) > MAX_SAMPLES:
        raise SamplesError(f"there are {len(lines)} samples; use at most {MAX_SAMPLES}")
    return tuple(_sample(number, line) for number, line in lines)


def _sample(number: int, line: str) -> Sample:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise SamplesError(f"line {number} is not JSON") from None
    if not isinstance(content, dict) or not (isinstance(content.get("inputs"), list) and content["inputs"]):
        raise SamplesError(f"line {number} has no `inputs`; write them as in a request of the Open Inference Protocol")
    try:
        expected = decode_answer({}, json.dumps({"outputs": content["outputs"]}).encode())
    except (AnswerError, KeyError):
        expected = {}
    if not expected:
        raise SamplesError(f"line {number} has no usable `outputs`; write them as in an answer, with `data`")
    request = {name: value for name, value in content.items() if name != "outputs"}
    return Sample(json.dumps(request, separators=(",", ":")).encode(), expected)
