"""Compares the pipelines' answers with those of the whole models."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import httpx

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.pipelineplan import PipelinePlanSpec
from partita_api.session.execution import CutDType
from partita_devtools.demo.comparison import Tensors, compare
from partita_devtools.demo.errors import DemoError
from partita_devtools.demo.example import Example, importable
from partita_devtools.demo.result import Verification
from partita_devtools.demo.traffic import SessionEndpoint
from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer, encode_request

if TYPE_CHECKING:
    # Needs torch, which is imported only where answers are compared.
    from partita_runtime.load.rounded_models import RoundedAnswer, RoundedModels

TOLERANCE: Final = {CutDType.FP32: 1e-4, CutDType.FP16: 2e-2}
"""Largest difference by rounding, as a share of the largest magnitude in the tensor. FP16 has 11 bits."""

_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Reference:
    """What the whole models answer, and their CPU time."""

    inputs: Tensors
    """`[count, ...]` by input name."""
    answers: Sequence[Tensors]
    """For each sample, the tensors of its answer by name."""
    seconds: float
    """CPU time of the models for one sample: the median."""


def reference(example: Example, inputs: Tensors) -> Reference:
    """Run the whole models, with one thread, in this process. Raises ModelError."""
    import torch  # only where answers are compared

    from partita_runtime.load.reference import WholeModels

    spec: InferenceSessionSpec = example.session.spec
    torch.set_num_threads(1)
    answers: list[Tensors] = []
    seconds = []
    with importable(example):
        models = WholeModels(spec)
        for i in range(len(next(iter(inputs.values())))):
            started = time.thread_time()
            answers.append(models.answer({name: tensor[i] for name, tensor in inputs.items()}))
            seconds.append(time.thread_time() - started)
    return Reference(inputs, answers, statistics.median(seconds))


async def ask(endpoint: SessionEndpoint, expected: Reference) -> list[Tensors]:
    """The session's answer for each sample of the reference. Raises DemoError for a request that is not answered."""
    return [
        await answer(endpoint, {name: tensor[i : i + 1] for name, tensor in expected.inputs.items()})
        for i in range(len(expected.answers))
    ]


async def answer(endpoint: SessionEndpoint, inputs: Tensors) -> Tensors:
    """The session's answer for one sample. Raises DemoError if there is none."""
    payload = encode_request(inputs)
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT_S) as http:
            given = await http.post(endpoint.infer_url, content=payload.body, headers=dict(payload.headers))
        if given.status_code != 200:
            raise DemoError(f"{endpoint.infer_url} answers {given.status_code}: {given.text[:500]}")
        return decode_answer(given.headers, given.content)
    except (httpx.HTTPError, AnswerError) as error:
        raise DemoError(f"no answer from {endpoint.infer_url}: {error!r}") from error


def verify(
    example: Example, given: Sequence[Tensors], expected: Reference, plans: Sequence[PipelinePlanSpec]
) -> Verification:
    """Compare the answers of a session, which pipelines of these plans gave. Raises ModelError."""
    session: InferenceSessionSpec = example.session.spec

    @cache
    def models() -> "RoundedModels":
        from partita_runtime.load.rounded_models import RoundedModels

        return RoundedModels(session, plans)

    def rounded(number: int) -> Iterator["RoundedAnswer"]:
        with importable(example):
            yield from models().answers({name: tensor[number] for name, tensor in expected.inputs.items()})

    return compare(given, expected.answers, TOLERANCE[session.execution.cut_dtype], rounded)
