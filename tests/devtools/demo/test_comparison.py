"""Comparing answers with those of the whole models, and with those of the models that plans cut."""

from collections.abc import Iterable

import numpy as np
import pytest

from partita_devtools.demo.comparison import compare
from partita_runtime.load.rounded_models import ModuleAnswer, RoundedAnswer

Tensors = dict[str, np.ndarray]

WANT: Tensors = {"vehicle": np.array([[1.0, -4.0], [2.0, 0.5]], np.float32), "person": np.array([[3.0]], np.float32)}


def person(value: float) -> Tensors:
    return {**WANT, "person": np.array([[value]], np.float32)}


def vehicles(*rows: tuple[float, float]) -> Tensors:
    return {**WANT, "vehicle": np.array(rows, np.float32)}


def rounded(tensors: Tensors, detection: float = 1.0) -> RoundedAnswer:
    """An answer behind a cut detector, which answers `detection` where the whole one answers 1."""
    detector = ModuleAnswer("detector", (9,), [np.array([detection])], [np.array([1.0])])
    return RoundedAnswer(tensors, (detector,))


def no_cuts(_: int) -> Iterable[RoundedAnswer]:
    return [RoundedAnswer(WANT, ())]


@pytest.mark.parametrize(
    ("given", "want_difference"),
    [
        pytest.param(WANT, None, id="the same"),
        pytest.param({**WANT, "vehicle.index": np.array([0, 0])}, None, id="the same, with row numbers"),
        pytest.param(person(3.02), None, id="rounded"),
        pytest.param(person(3.5), "person is off by 16.67%", id="wrong number"),
        pytest.param(person(np.nan), "person is off by nan", id="no number"),
        pytest.param({**WANT, "vehicle": WANT["vehicle"][:1]}, "vehicle is [1, 2], but", id="row missing"),
        pytest.param({"vehicle": WANT["vehicle"]}, "person is nothing, but", id="tensor missing"),
        pytest.param({**WANT, "extra": np.ones((2, 1))}, "extra has 2 rows, but", id="tensor too many"),
    ],
)
def test_answers_agree_within_what_rounding_explains(given: Tensors, want_difference: str | None) -> None:
    found = compare([WANT, given], [WANT, WANT], tolerance=0.01, rounded=no_cuts)

    assert found.agrees == (want_difference is None)
    assert found.explained == ()
    if want_difference is not None:
        assert len(found.differences) == 1
        assert found.differences[0].startswith(f"request 1: {want_difference}")


def test_texts_are_the_same_or_not() -> None:
    texts = {"words": np.array([[b"one"], [b"two"]], np.object_)}

    assert compare([texts], [texts], tolerance=0.01, rounded=no_cuts).agrees
    others = {"words": np.array([[b"one"], [b"too"]], np.object_)}
    found = compare([others], [texts], tolerance=0.01, rounded=lambda _: [RoundedAnswer(texts, ())])
    assert found.differences[0].startswith("request 0: words is off by 100.00%")


def test_comparison_counts_what_it_compared() -> None:
    found = compare([WANT], [WANT], tolerance=0.01, rounded=no_cuts)

    assert (found.requests, found.values, found.largest_error) == (1, 5, 0.0)


@pytest.mark.parametrize(
    ("given", "candidates", "want_explained"),
    [
        pytest.param(person(3.5), [rounded(person(3.5))], True, id="the cut models answer the same"),
        pytest.param(person(3.5), [rounded(person(3.51))], True, id="the cut models' answer, rounded"),
        pytest.param(person(3.5), [rounded(WANT), rounded(person(3.5))], True, id="one of the pipelines answers it"),
        pytest.param(
            vehicles((1, -5), (3, 0.5)),
            [rounded(vehicles((1, -5), (2, 0.5))), rounded(vehicles((1, -4), (3, 0.5)))],
            True,
            id="each row came through another pipeline",
        ),
        pytest.param(vehicles((1, -4)), [rounded(vehicles((1, -4)))], True, id="a row less, also by the cut models"),
        pytest.param(person(3.5), [rounded(person(3.2)), rounded(person(3.8))], False, id="between two answers"),
        pytest.param(
            vehicles((1, -5), (3, 0.5)),
            [rounded({**vehicles((1, -5), (3, 0.5)), "person": np.array([[4.0]])})],
            False,
            id="another tensor differs from the cut models' answer",
        ),
        pytest.param(person(np.nan), [rounded(person(3.5))], False, id="no number"),
        pytest.param(person(np.nan), [rounded(person(np.nan))], False, id="the cut models answer no number either"),
        pytest.param(person(3.5), [rounded(vehicles((1, -4)))], False, id="the cut models answer other rows"),
        pytest.param(person(3.5), [], False, id="no answer of cut models"),
        pytest.param({**WANT, "extra": np.ones((2, 1))}, [rounded(WANT)], False, id="a tensor that no model answers"),
    ],
)
def test_answer_of_the_cut_models_explains_a_difference(
    given: Tensors, candidates: list[RoundedAnswer], want_explained: bool
) -> None:
    found = compare([given], [WANT], tolerance=0.01, rounded=lambda _: candidates)

    assert found.agrees == want_explained
    assert bool(found.explained) == want_explained


def test_explanation_says_how_far_the_answer_is_off() -> None:
    found = compare([WANT, person(3.5)], [WANT, WANT], tolerance=0.01, rounded=lambda _: [rounded(person(3.5))])

    assert found.explained == (
        "request 1: person is off by 16.67% of its largest value, and by 0.00% from that of the models with the plan's "
        "cuts",
    )


def test_cut_model_that_is_no_rounded_whole_model_explains_nothing() -> None:
    """Both the session and the cut model in this process have the same fault."""
    found = compare([person(3.5)], [WANT], tolerance=0.01, rounded=lambda _: [rounded(person(3.5), detection=1.1)])

    assert found.explained == ()
    assert found.differences == (
        "request 0: person is off by 16.67% of its largest value",
        "request 0: detector with cuts before block 9 is off by 10.00% from the whole model on the same input",
    )


def test_cut_models_run_only_for_answers_that_differ() -> None:
    asked: list[int] = []

    def candidates(number: int) -> Iterable[RoundedAnswer]:
        asked.append(number)
        return []

    compare([WANT, person(3.5), WANT], [WANT, WANT, WANT], tolerance=0.01, rounded=candidates)

    assert asked == [1]
