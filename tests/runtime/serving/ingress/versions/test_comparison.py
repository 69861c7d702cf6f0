"""When two answers count as equal, and how their difference is said."""

from typing import Any

import numpy as np
import pytest

from partita_runtime.serving.deploy.version_routes import ShadowRoute
from partita_runtime.serving.ingress.versions.comparison import difference

TOLERANCE = ShadowRoute(share=1, absolute=0.01, relative=0.1)
INF, NAN = np.inf, np.nan


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def texts(*values: bytes) -> np.ndarray:
    return np.array(values, np.object_)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(floats(1, 2), floats(1, 2), id="equal"),
        pytest.param(floats(0, 1), floats(0.009, 1.09), id="within the tolerance"),
        pytest.param(floats(NAN, INF, -INF), floats(NAN, INF, -INF), id="no numbers"),
        pytest.param(np.array([3, 4]), np.array([3, 4]), id="integers"),
        pytest.param(texts(b"a", b"\xff"), texts(b"a", b"\xff"), id="texts"),
        pytest.param(floats(), floats(), id="no rows"),
    ],
)
def test_answers_that_are_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert difference({"x": ours}, {"x": theirs}, TOLERANCE) == ""


SMALL = "differs in 1 of 2 elements, at most by"


@pytest.mark.parametrize(
    ("ours", "theirs", "want"),
    [
        pytest.param(floats(2, 1), floats(3, 1), f"output 'x' {SMALL} 1, or 0.5 of the value", id="one element"),
        pytest.param(floats(0, 1), floats(0.02, 1), f"output 'x' {SMALL} 0.02, or inf of the value", id="from zero"),
        pytest.param(floats(1, 1), floats(NAN, 1), f"output 'x' {SMALL} inf, or inf of the value", id="NaN"),
        pytest.param(floats(INF, 1), floats(-INF, 1), f"output 'x' {SMALL} inf, or inf of the value", id="infinity"),
        pytest.param(
            np.array([3, 4]), np.array([3, 5]), "output 'x' differs in 1 of 2 elements", id="integers have no tolerance"
        ),
        pytest.param(texts(b"a"), texts(b"b"), "output 'x' differs in 1 of 1 elements", id="texts"),
        pytest.param(floats(1, 2), floats(1), "output 'x' is float32 [1], not float32 [2]", id="another shape"),
        pytest.param(
            floats(1), np.array([1.0]), "output 'x' is float64 [1], not float32 [1]", id="another element type"
        ),
    ],
)
def test_answers_that_differ(ours: np.ndarray, theirs: np.ndarray, want: str) -> None:
    assert difference({"x": ours}, {"x": theirs}, TOLERANCE) == want


@pytest.mark.parametrize(
    ("theirs", "want"),
    [
        pytest.param({"y": floats(1)}, "its outputs are y, not x", id="another name"),
        pytest.param({}, "its outputs are none, not x", id="none"),
        pytest.param({"x": floats(1), "y": floats(1)}, "its outputs are x, y, not x", id="one more"),
    ],
)
def test_other_outputs(theirs: dict[str, Any], want: str) -> None:
    assert difference({"x": floats(1)}, theirs, TOLERANCE) == want
