"""The metrics that compare an answer with the answer that is expected. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from partita_api.quality import QualityMetric

Tensor = NDArray[Any]
MAX_CHARACTERS: Final = 1024
"""Most characters of an expected text: the time of a comparison grows with their square."""


class ComparisonError(ValueError):
    """An answer cannot be compared with the expected one; the message says why, without what is in them."""


@dataclass(frozen=True)
class SampleScore:
    """What one sample adds to the score: `amount` of `count`."""

    amount: float
    """What is right, for a share; the errors otherwise."""
    count: int

    @property
    def value(self) -> float:
        """The metric of this sample alone."""
        return self.amount / max(self.count, 1)


def sample_score(metric: QualityMetric, k: int, expected: Tensor, answered: Tensor) -> SampleScore:
    """The score of one sample; `k` counts for Recall. Raises ComparisonError."""
    if metric is QualityMetric.RECALL:
        return _recall(expected, answered, k)
    return _METRICS[metric](expected, answered)


def total_score(metric: QualityMetric, scores: Sequence[SampleScore]) -> float:
    """The metric over all samples: the largest error, or the mean over everything that was compared."""
    if metric is QualityMetric.MAX_ABSOLUTE_ERROR:
        return max((score.value for score in scores), default=0.0)
    return SampleScore(sum(score.amount for score in scores), sum(score.count for score in scores)).value


def distance(a: str, b: str) -> int:
    """Levenshtein's distance: the fewest characters to insert, delete or replace to make `b` of `a`.

    >>> distance("kitten", "sitting")
    3
    """
    codes = np.array([ord(character) for character in b])
    positions = np.arange(len(b) + 1)
    row = positions
    for i, character in enumerate(a, start=1):
        best = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(character)))
        row = np.minimum.accumulate(np.concatenate(([i], best)) - positions) + positions
    return int(row[-1])


def _top1(expected: Tensor, answered: Tensor) -> SampleScore:
    scores = _rows(_numbers(answered))
    best = scores.argmax(axis=1)
    if expected.size == len(best):
        labels = _numbers(expected).reshape(-1)
    else:
        _check_shapes(expected, answered)
        labels = _rows(_numbers(expected)).argmax(axis=1)
    return SampleScore(float((labels == best).sum()), len(best))


def _exact_text(expected: Tensor, answered: Tensor) -> SampleScore:
    _check_shapes(expected, answered)
    equal = [a == b for a, b in zip(expected.reshape(-1), answered.reshape(-1), strict=True)]
    return SampleScore(float(sum(equal)), len(equal))


def _character_errors(expected: Tensor, answered: Tensor) -> SampleScore:
    """Elements are lines of one text, so that one line more or less is an error of its characters only."""
    before, after = _text(expected), _text(answered)
    if len(before) > MAX_CHARACTERS:
        raise ComparisonError(f"the expected text has more than {MAX_CHARACTERS} characters; make it several samples")
    # What is longer than twice as many characters counts as inserted.
    shown = after[: 2 * MAX_CHARACTERS]
    return SampleScore(float(distance(shown, before) + len(after) - len(shown)), len(before))


def _recall(expected: Tensor, answered: Tensor, k: int) -> SampleScore:
    sought, found = _rows(expected), _rows(answered)
    if len(sought) != len(found):
        raise ComparisonError(f"the answer has {len(found)} rows, and {len(sought)} are expected")
    hits = sum(len({*ours.tolist()} & {*theirs[:k].tolist()}) for ours, theirs in zip(sought, found, strict=True))
    return SampleScore(float(hits), sum(len({*row.tolist()}) for row in sought))


def _differences(expected: Tensor, answered: Tensor) -> Tensor:
    """Absolute differences; NaN equals NaN, and nothing else is near it or near an infinite number."""
    _check_shapes(expected, answered)
    a, b = _numbers(expected).reshape(-1), _numbers(answered).reshape(-1)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        found = np.abs(np.where(same, 0.0, a - b))
    return np.where(np.isnan(found), np.inf, found)


def _mean_absolute_error(expected: Tensor, answered: Tensor) -> SampleScore:
    found = _differences(expected, answered)
    return SampleScore(float(found.sum()), found.size)


def _max_absolute_error(expected: Tensor, answered: Tensor) -> SampleScore:
    return SampleScore(float(_differences(expected, answered).max(initial=0.0)), 1)


def _check_shapes(expected: Tensor, answered: Tensor) -> None:
    if expected.shape != answered.shape:
        raise ComparisonError(f"the answer has shape {list(answered.shape)}, expected is {list(expected.shape)}")


def _numbers(tensor: Tensor) -> Tensor:
    if tensor.dtype.kind not in "fiub":
        raise ComparisonError("the metric compares numbers, not BYTES")
    return tensor.astype(np.float64)


def _text(tensor: Tensor) -> str:
    if tensor.dtype.kind != "O":
        raise ComparisonError("the metric compares BYTES, not numbers")
    return "\n".join(element.decode(errors="replace") for element in tensor.reshape(-1))


def _rows(tensor: Tensor) -> Tensor:
    """The last axis is a row."""
    if tensor.ndim == 0 or not tensor.shape[-1]:
        raise ComparisonError(f"the metric compares rows, and shape {list(tensor.shape)} has none")
    return tensor.reshape(-1, tensor.shape[-1])


_METRICS: Final[Mapping[QualityMetric, Callable[[Tensor, Tensor], SampleScore]]] = {
    QualityMetric.TOP1: _top1,
    QualityMetric.EXACT_TEXT: _exact_text,
    QualityMetric.CHARACTER_ERROR_RATE: _character_errors,
    QualityMetric.MEAN_ABSOLUTE_ERROR: _mean_absolute_error,
    QualityMetric.MAX_ABSOLUTE_ERROR: _max_absolute_error,
}
