"""Compares the pipelines' answers with those of the whole models."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import numpy as np
from numpy.typing import NDArray

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.execution import CutDType
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example, importable
from partita_devtools.demo.result import Verification
from partita_devtools.demo.traffic import SessionEndpoint
from partita_runtime.load.inference_request import AnswerError, decode_answer, encode_request

Tensors = Mapping[str, NDArray[Any]]

TOLERANCE: Final = {CutDType.FP32: 1e-4, CutDType.FP16: 2e-2}
"""Largest difference by rounding, as a share of the largest magnitude in the tensor.

Feature maps in FP16 have 11 bits; detections, and the crops made from them, move a little.
"""

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Reference:
    """What the whole models answer, and their CPU time."""

    inputs: Tensors
    """`[count, ...]` by input name."""
    answers: list[dict[str, NDArray[Any]]]
    """For each sample, the tensors of its answer by name."""
    seconds: float
    """CPU time of the models for one sample: the median."""


def reference(example: Example, inputs: Tensors) -> Reference:
    """Run the whole models, with one thread, in this process. Raises ModelError."""
    import torch  # only where answers are compared

    from partita_runtime.load.reference import WholeModels

    spec: InferenceSessionSpec = example.session.spec
    torch.set_num_threads(1)
    answers, seconds = [], []
    with importable(example):
        models = WholeModels(spec)
        for i in range(len(next(iter(inputs.values())))):
            started = time.thread_time()
            answers.append(models.answer({name: tensor[i] for name, tensor in inputs.items()}))
            seconds.append(time.thread_time() - started)
    return Reference(inputs, answers, statistics.median(seconds))


async def verify(endpoint: SessionEndpoint, example: Example, expected: Reference) -> Verification:
    """Send each sample of the reference and compare its answer.

    Raises DemoError for a request that is not answered.
    """
    async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
        given = [
            await _ask(http, endpoint, {name: tensor[i : i + 1] for name, tensor in expected.inputs.items()})
            for i in range(len(expected.answers))
        ]
    return compare(given, expected.answers, TOLERANCE[example.session.spec.execution.cut_dtype])


def compare(
    given: list[dict[str, NDArray[Any]]], expected: list[dict[str, NDArray[Any]]], tolerance: float
) -> Verification:
    """Compare answers tensor by tensor, without the tensors of `given` that contain only row numbers."""
    differences, errors, values = [], [0.0], 0
    for number, (answer, want) in enumerate(zip(given, expected, strict=True)):
        for name, tensor in want.items():
            rows = answer.get(name)
            if rows is None or rows.shape != tensor.shape:
                found = "nothing" if rows is None else list(rows.shape)
                differences.append(
                    f"request {number}: {name} is {found}, but the whole models give {list(tensor.shape)}"
                )
                continue
            values += tensor.size
            error = _relative_error(rows, tensor)
            errors.append(error)
            if not error <= tolerance:
                differences.append(f"request {number}: {name} is off by {error:.2%} of its largest value")
        differences += [
            f"request {number}: {name} has {len(rows)} rows, but the whole models give none"
            for name, rows in answer.items()
            if name not in want and not name.endswith(".index") and len(rows)
        ]
    return Verification(len(expected), values, max(errors), tolerance, tuple(differences))


def _relative_error(given: NDArray[Any], expected: NDArray[Any]) -> float:
    if not expected.size:
        return 0.0
    largest = float(np.abs(expected).max())
    return float(np.abs(given.astype(np.float64) - expected).max()) / (largest or 1.0)


async def _ask(http: httpx.AsyncClient, endpoint: SessionEndpoint, inputs: Tensors) -> dict[str, NDArray[Any]]:
    payload = encode_request(inputs)
    try:
        answer = await http.post(endpoint.infer_url, content=payload.body, headers=dict(payload.headers))
        if answer.status_code != 200:
            raise DemoError(f"{endpoint.infer_url} answers {answer.status_code}: {answer.text[:500]}")
        return decode_answer(answer.headers, answer.content)
    except (httpx.HTTPError, AnswerError) as error:
        raise DemoError(f"no answer from {endpoint.infer_url}: {error!r}") from error
