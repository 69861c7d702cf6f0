"""The whole example `semantic_search` in this process finds the same as transformers, which knows no padding."""

import functools

import numpy as np
import pytest
from semantic_search.comparison import LEAST_COSINE, Comparison, Result, passages, reference_result
from semantic_search.corpus import read_corpus
from semantic_search.questions import QUESTIONS
from tests.examples.test_manifests import read

from partita_runtime.load.reference import WholeModels


@functools.cache
def session() -> WholeModels:
    (session,) = read("semantic_search").sessions
    return WholeModels(session.spec)


def served(text: str) -> Result:
    answer = session().answer({"input": np.array([text.encode()], np.object_)})
    numbers = answer["ranking.numbers"][0].tolist()
    assert [passage.decode() for passage in answer["ranking.passages"][0]] == [passages()[n] for n in numbers]
    return Result(numbers, answer["ranking.scores"][0].tolist(), answer["ranking.vector"][0])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("tea", id="one word"),
        pytest.param("why do stars flicker", id="a question"),
        pytest.param("How do I mend a flat tyre? I am on the road, it is raining, and I have only glue. " * 3, id="80"),
        pytest.param(" ".join(QUESTIONS) * 2, id="two parts"),
        pytest.param("Wie heiß darf das Wasser für grünen Tee sein? 茶 ☕", id="not English"),
        pytest.param("a [PAD] b [SEP] c [MASK] [CLS]", id="names of special pieces"),
    ],
)
def test_passages_and_vectors_are_those_of_transformers(text: str) -> None:
    found = served(text)

    comparison = Comparison(found, reference_result(text, len(found.numbers)))

    assert len(found.numbers) == 8
    assert comparison.is_equal, comparison
    np.testing.assert_allclose(found.scores, comparison.reference.scores, atol=1e-4)


def test_stored_vectors_are_those_of_transformers() -> None:
    for passage, vector in zip(passages(), read_corpus().vectors, strict=True):
        assert vector @ reference_result(passage, 1).vector > LEAST_COSINE


def test_how_many_questions_get_their_passage_first() -> None:
    """So that the comparison is not one of two senseless rankings; the numbers are in README.md."""
    results = [(line, reference_result(question, 8)) for question, line in QUESTIONS.items()]
    vectors = read_corpus().vectors

    by_vector = sum(int((vectors @ result.vector).argmax()) == line - 1 for line, result in results)
    by_pieces = sum(result.numbers[0] == line - 1 for line, result in results)

    assert (by_vector, by_pieces, len(results)) == (29, 30, 30)
