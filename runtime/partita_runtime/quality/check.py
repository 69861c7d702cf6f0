"""The quality check: every sample's answer against the expected one, and the score of all of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Final

from partita_api.quality import QualityMetric
from partita_runtime.quality.metrics import ComparisonError, SampleScore, sample_score, total_score
from partita_runtime.quality.samples import Sample
from partita_runtime.serving.protocol.inference_client import AnswerError, decode_answer

_LISTED: Final = 3


@dataclass(frozen=True)
class Measure:
    """What is compared, and how."""

    metric: QualityMetric
    limit: float
    output: str | None = None
    """None for the first output that each sample expects."""
    k: int = 10
    """Elements of a row that count for Recall."""


@dataclass(frozen=True)
class SampleResult:
    """One sample: its score, or why its answer cannot be compared."""

    score: SampleScore | None
    problem: str = ""


@dataclass(frozen=True)
class QualityScore:
    """The results of all samples, in their order."""

    measure: Measure
    results: Sequence[SampleResult]

    @property
    def value(self) -> float | None:
        """The metric over all samples; None if it is infinite or a sample has no usable answer."""
        if any(result.score is None for result in self.results):
            return None
        found = total_score(self.measure.metric, [result.score for result in self.results if result.score is not None])
        return found if isfinite(found) else None

    @property
    def met(self) -> bool:
        """Whether the check is passed."""
        return self.value is not None and self.measure.metric.meets(self.value, self.measure.limit)

    @property
    def problems(self) -> str:
        """Samples without a usable answer, numbered from 1, and why; empty if there are none."""
        found = [f"sample {i}: {r.problem}" for i, r in enumerate(self.results, start=1) if r.score is None]
        more = f"; and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        return "; ".join(found[:_LISTED]) + more

    def worst(self, most: int) -> tuple[tuple[int, SampleResult], ...]:
        """The worst samples, numbered from 1: those without a usable answer first."""
        sign = 1 if self.measure.metric.is_share else -1
        numbered = enumerate(self.results, start=1)
        order = sorted(numbered, key=lambda item: (1, sign * item[1].score.value) if item[1].score else (0, 0.0))
        return tuple(order[:most])


def result_of(sample: Sample, measure: Measure, status: int, body: bytes) -> SampleResult:
    """How a JSON answer with this status of HTTP compares with the expected one."""
    if status != 200:
        return SampleResult(None, f"the session answers {status}")
    try:
        answered = decode_answer({}, body)
    except AnswerError:
        return SampleResult(None, "the answer is not of the Open Inference Protocol")
    name = measure.output if measure.output is not None else next(iter(sample.expected))
    if name not in sample.expected:
        return SampleResult(None, f"the sample expects no output {name}")
    if name not in answered:
        return SampleResult(None, f"the answer has no output {name}")
    try:
        return SampleResult(sample_score(measure.metric, measure.k, sample.expected[name], answered[name]))
    except ComparisonError as error:
        return SampleResult(None, str(error))
