"""The metrics: scores of answers that were computed by hand."""

from math import inf, nan

import numpy as np
import pytest

from partita_api.quality import QualityMetric
from partita_runtime.quality.metrics import (
    MAX_CHARACTERS,
    ComparisonError,
    SampleScore,
    Tensor,
    distance,
    sample_score,
    total_score,
)


def numbers(*rows: object) -> Tensor:
    return np.array(rows, np.float32)


def texts(*elements: str) -> Tensor:
    return np.array([element.encode() for element in elements], np.object_)


def ids(*rows: list[int]) -> Tensor:
    return np.array(rows, np.int64)


@pytest.mark.parametrize(
    ("metric", "expected", "answered", "value"),
    [
        pytest.param("Top1", numbers([0, 1], [1, 0]), numbers([0.1, 7], [0, 9]), 0.5, id="scores"),
        pytest.param("Top1", ids([1], [0]), numbers([0.1, 7], [5, 4]), 1.0, id="labels"),
        pytest.param("ExactText", texts("a", "b"), texts("a", "c"), 0.5, id="texts"),
        pytest.param("CharacterErrorRate", texts("kitten"), texts("sitting"), 0.5, id="edits"),
        pytest.param("CharacterErrorRate", texts("ab", "cd"), texts("ab"), 0.6, id="a line is missing"),
        pytest.param("CharacterErrorRate", texts("ab"), texts("x" * 5000), 2500.0, id="a very long answer"),
        pytest.param("Recall", ids([1, 2]), ids([9, 2, 8, 1]), 0.5, id="only the first two count"),
        pytest.param("Recall", texts("a", "b").reshape(1, 2), texts("b", "a").reshape(1, 2), 1.0, id="any order"),
        pytest.param("MeanAbsoluteError", numbers([1, 2]), numbers([2, 2]), 0.5, id="mean"),
        pytest.param("MaxAbsoluteError", numbers([1, 2]), numbers([4, 1]), 3.0, id="largest"),
        pytest.param("MaxAbsoluteError", numbers([nan, inf]), numbers([nan, inf]), 0.0, id="NaN equals NaN"),
        pytest.param("MaxAbsoluteError", numbers([1, inf]), numbers([nan, inf]), inf, id="NaN differs from 1"),
    ],
)
def test_a_metric_of_one_sample(metric: str, expected: Tensor, answered: Tensor, value: float) -> None:
    assert sample_score(QualityMetric(metric), 2, expected, answered).value == pytest.approx(value)


@pytest.mark.parametrize(
    ("metric", "expected", "answered", "why"),
    [
        pytest.param("Top1", numbers([0, 1, 2]), numbers([0, 1]), "has shape", id="other shape"),
        pytest.param("Top1", texts("a"), texts("a"), "compares numbers", id="texts have no largest element"),
        pytest.param("CharacterErrorRate", numbers(1), numbers(1), "compares BYTES", id="numbers are no text"),
        pytest.param(
            "CharacterErrorRate", texts("a" * (MAX_CHARACTERS + 1)), texts("a"), "several samples", id="a long text"
        ),
        pytest.param("Recall", ids([1], [2]), ids([1]), "1 rows, and 2 are expected", id="rows are missing"),
        pytest.param("Recall", np.int64(1) * np.ones(()), ids([1]), "has none", id="a number has no rows"),
    ],
)
def test_answers_that_cannot_be_compared(metric: str, expected: Tensor, answered: Tensor, why: str) -> None:
    with pytest.raises(ComparisonError, match=why):
        sample_score(QualityMetric(metric), 10, expected, answered)


def test_large_samples_weigh_more_in_a_mean_and_the_largest_error_is_one_sample() -> None:
    scores = [SampleScore(1, 1), SampleScore(0, 3)]

    assert total_score(QualityMetric.TOP1, scores) == 0.25
    assert total_score(QualityMetric.MAX_ABSOLUTE_ERROR, scores) == 1.0


@pytest.mark.parametrize(
    ("metric", "score", "met"),
    [
        pytest.param("Top1", 0.9, True, id="a share reaches its limit"),
        pytest.param("Top1", 0.89, False, id="a share is too small"),
        pytest.param("CharacterErrorRate", 0.9, True, id="an error is at its limit"),
        pytest.param("CharacterErrorRate", 0.91, False, id="an error is too large"),
    ],
)
def test_shares_have_a_lower_limit_and_errors_an_upper_one(metric: str, score: float, met: bool) -> None:
    assert QualityMetric(metric).meets(score, 0.9) is met


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        pytest.param("", "", 0, id="nothing"),
        pytest.param("abc", "", 3, id="all missing"),
        pytest.param("", "abc", 3, id="all added"),
        pytest.param("kitten", "sitting", 3, id="replaced and added"),
        pytest.param("line\nnext", "line next", 1, id="a new line is a character"),
        pytest.param("ab\ncd", "abcd", 1, id="a line less"),
        pytest.param("Saturday", "Sunday", 3, id="missing and replaced"),
    ],
)
def test_distance_of_texts(one: str, other: str, want: int) -> None:
    assert distance(one, other) == distance(other, one) == want
