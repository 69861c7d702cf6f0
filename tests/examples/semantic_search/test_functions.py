"""The CPU steps of the example `semantic_search`: parts of texts, refusals, scores, and the files of a corpus."""

from pathlib import Path

import numpy as np
import pytest
from semantic_search.corpus import FOLDER, CorpusError, read_corpus, write_vectors
from semantic_search.functions import CORPUS, MOST_BYTES, TextError, neighbours, tokens
from semantic_search.questions import QUESTIONS, write_requests
from semantic_search.texts import END, LONGEST, START, late_interaction, text_vector, windows

PADDING = 0


def given(text: bytes) -> dict[str, list[np.ndarray]]:
    return tokens({"input": np.array([text], np.object_)}, {})


def words(count: int) -> str:
    """A text of as many word pieces."""
    return " ".join(["tea"] * count)


def unit(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32) / np.linalg.norm(numbers)


@pytest.mark.parametrize(
    ("count", "lengths"),
    [
        pytest.param(1, [3], id="a word"),
        pytest.param(254, [256], id="the longest part"),
        pytest.param(255, [256, 3], id="one piece more"),
        pytest.param(254 * 3, [256] * 3, id="three full parts"),
    ],
)
def test_texts_are_cut_into_parts(count: int, lengths: list[int]) -> None:
    parts = given(words(count).encode())

    assert [len(part) for part in parts["encoder"]] == lengths
    assert all(part[0] == START and part[-1] == END and len(part) <= LONGEST for part in parts["encoder"])
    assert [*parts["neighbours"]] == [*parts["ranking"]] == lengths


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"", "there is no word in the text", id="nothing"),
        pytest.param(b" \n\t", "there is no word in the text", id="space"),
        pytest.param(b"\xff\xfe\x00", "this is not a text; send UTF-8", id="no text"),
        pytest.param(b"a" * (MOST_BYTES + 1), "has 100,001 bytes; send at most 100,000", id="too many bytes"),
        pytest.param(words(254 * 16 + 1).encode(), "the text is 17 times as long .* at most 16", id="too many parts"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(TextError, match=says):
        given(text)


@pytest.mark.parametrize("text", ["[PAD]", "[CLS] a [SEP] b", "[MASK][UNK]"])
def test_names_of_special_pieces_are_text(text: str) -> None:
    """Else a client could write padding, which the encoder leaves out."""
    (part,) = windows(text)

    assert not {PADDING, START, END} & {*part[1:-1].tolist()}


def test_the_vector_of_a_long_text_is_the_mean_of_its_parts_by_length() -> None:
    np.testing.assert_allclose(text_vector([unit(1, 0)], [7]), [1, 0])
    np.testing.assert_allclose(text_vector([unit(1, 0), unit(0, 1)], [3, 1]), unit(3, 1), atol=1e-7)


def test_late_interaction_takes_the_best_piece_of_the_passage_for_each_piece_of_the_text() -> None:
    start, end, padding = unit(1, 1), unit(-1, 1), np.zeros(2, np.float32)
    text = np.stack([start, unit(1, 0), end, padding])
    more = np.stack([start, unit(0, 1), unit(0, -1), end])
    passage = np.stack([start, unit(3, 4), unit(-1, 0), end, padding, padding])

    assert late_interaction([text], passage) == pytest.approx(3 / 5)
    assert late_interaction([text, more], passage) == pytest.approx((3 / 5 + 4 / 5 + 0) / 3)


def test_neighbours_are_the_passages_of_the_nearest_vectors() -> None:
    upstream = {"tokens": [np.array([[9]])], "encoder": [CORPUS.vectors[[20]], [np.zeros((32, 384))]]}

    found = neighbours({}, upstream, count=5)

    assert found["ranking"][0] == 20
    similarities = CORPUS.vectors[found["ranking"]] @ CORPUS.vectors[20]
    assert [*similarities] == sorted(similarities, reverse=True)
    np.testing.assert_array_equal(found["reader"][0], windows(CORPUS.passages[20])[0])


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with a copy of the corpus, which may be changed."""
    for name in ("corpus.txt", "corpus.npz"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("another\n", "is of another corpus.txt; run python -m semantic_search.corpus", id="edited"),
        pytest.param("one\n\ntwo\n", "line 2 of corpus.txt has no word pieces, .*; remove it", id="an empty line"),
        pytest.param(words(255), "line 1 of corpus.txt has too many word pieces, .* 1 to 254; split it", id="long"),
    ],
)
def test_a_corpus_must_fit_its_vectors(corpus: Path, text: str, says: str) -> None:
    (corpus / "corpus.txt").write_text(text)

    with pytest.raises(CorpusError, match=says):
        read_corpus(corpus)


def test_missing_vectors_are_written(corpus: Path) -> None:
    (corpus / "corpus.txt").write_text("green tea\nblack holes\n")
    (corpus / "corpus.npz").unlink()
    with pytest.raises(CorpusError, match=r"there is no .*corpus.npz; run python -m semantic_search.corpus"):
        read_corpus(corpus)

    write_vectors(corpus)

    found = read_corpus(corpus)
    assert found.passages == ("green tea", "black holes")
    assert found.vectors.shape == (2, 384)


def test_questions_are_requests_for_load(tmp_path: Path) -> None:
    write_requests(tmp_path / "questions.npz")

    with np.load(tmp_path / "questions.npz") as stored:
        requests = stored["input"]
    assert [text.item().decode() for text in requests] == [*QUESTIONS]
    assert all(given(text.item())["encoder"] for text in requests)
