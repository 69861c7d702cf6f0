"""Compares the pipelines' answers with those of the whole models."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import httpx
import numpy as np
from numpy.typing import NDArray

from partita_api.execution import CutDType
from partita_api.inferencesession import InferenceSessionSpec
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


async def verify(endpoint: SessionEndpoint, example: Example, inputs: Tensors) -> Verification:
    """Send each sample of `inputs` (`[count, ...]` each) and compare its answer with that of the whole models.

    Raises DemoError for a request that is not answered.
    """
    expected = await asyncio.to_thread(_whole_answers, example, inputs)
    async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
        given = [
            await _ask(http, endpoint, {name: tensor[i : i + 1] for name, tensor in inputs.items()})
            for i in range(len(expected))
        ]
    return compare(given, expected, TOLERANCE[example.session.spec.execution.cut_dtype])


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


def _whole_answers(example: Example, inputs: Tensors) -> list[dict[str, NDArray[Any]]]:
    from partita_runtime.load.reference import WholeModels  # torch only where answers are compared

    spec: InferenceSessionSpec = example.session.spec
    with importable(example):
        models = WholeModels(spec)
        count = len(next(iter(inputs.values())))
        return [models.answer({name: tensor[i] for name, tensor in inputs.items()}) for i in range(count)]


async def _ask(http: httpx.AsyncClient, endpoint: SessionEndpoint, inputs: Tensors) -> dict[str, NDArray[Any]]:
    payload = encode_request(inputs)
    try:
        answer = await http.post(endpoint.infer_url, content=payload.body, headers=dict(payload.headers))
        if answer.status_code != 200:
            raise DemoError(f"{endpoint.infer_url} answers {answer.status_code}: {answer.text[:500]}")
        return decode_answer(answer.headers, answer.content)
    except (httpx.HTTPError, AnswerError) as error:
        raise DemoError(f"no answer from {endpoint.infer_url}: {error!r}") from error
