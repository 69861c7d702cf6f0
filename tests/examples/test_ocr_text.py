"""The whole example `ocr` in this process reads the same text as the package's own pipeline."""

import functools

import numpy as np
import pytest
from ocr.pictures import LAYOUTS, rendered
from rapidocr import RapidOCR
from tests.examples.test_manifests import read

from partita_runtime.load.reference import WholeModels


@functools.cache
def session() -> WholeModels:
    (session,) = read("ocr").sessions
    return WholeModels(session.spec)


@functools.cache
def package() -> RapidOCR:
    return RapidOCR(params={"Global.log_level": "critical"})


def read_lines(answer: dict[str, np.ndarray]) -> list[str]:
    return [line.decode() for line in answer["text.lines"][0]]


@pytest.mark.parametrize("name", ["note", "upside-down", "receipt", "line", "strip", "tilted", "sideways", "empty"])
def test_text_boxes_and_scores_are_those_of_the_package(name: str) -> None:
    picture = rendered(LAYOUTS[name]).png
    want = package()(picture)

    found = session().answer({"input": np.array([picture], np.object_)})

    assert read_lines(found) == [*(want.txts or ())]
    if want.txts:
        np.testing.assert_allclose(found["text.boxes"][0], want.boxes, atol=1)
        np.testing.assert_allclose(found["text.scores"][0], want.scores, atol=1e-3)
    assert found["text.left_out"] == [0]


def test_known_text_is_read() -> None:
    """So the comparison is not one of two empty texts."""
    note = rendered(LAYOUTS["note"])

    found = session().answer({"input": np.array([note.png], np.object_)})

    assert read_lines(found) == [*note.lines]
