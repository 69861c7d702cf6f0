"""What functions return becomes arrays of numbers or of bytes, before it leaves their processes."""

from typing import Any

import numpy as np
import pytest

from partita_runtime.function_server.messages import answer_arrays


@pytest.mark.parametrize(
    ("returned", "want"),
    [
        pytest.param("one", b"one", id="a text"),
        pytest.param(["one", "\u00fc", ""], [b"one", b"\xc3\xbc", b""], id="texts"),
        pytest.param([b"nul\0\0", b"\xff"], [b"nul\0\0", b"\xff"], id="bytes with zeros at their end"),
        pytest.param([["a", "b"], ["c", "d"]], [[b"a", b"b"], [b"c", b"d"]], id="a table of texts"),
        pytest.param(["one", b"two"], [b"one", b"two"], id="texts and bytes"),
        pytest.param(np.array(["one", "three"]), [b"one", b"three"], id="numpy's text"),
        pytest.param(np.array([b"one"]), [b"one"], id="numpy's bytes"),
        pytest.param(np.array(["one", b"\0"], np.object_), [b"one", b"\0"], id="objects"),
        pytest.param(np.array(["one"], np.dtypes.StringDType()), [b"one"], id="numpy's long text"),
    ],
)
def test_texts_become_bytes(returned: Any, want: Any) -> None:
    array = answer_arrays({"answer": returned})["answer"]
    assert (array.dtype, array.tolist()) == (np.object_, want)
    assert {type(element) for element in array.flat} == {bytes}


def test_numbers_stay_as_they_are() -> None:
    given = np.arange(3, dtype=np.int16)
    arrays = answer_arrays({"same": given, "list": [True, False], "number": 1.5})
    assert arrays["same"] is given
    assert (arrays["list"].dtype, arrays["number"].dtype) == (np.bool_, np.float64)


@pytest.mark.parametrize(
    "returned",
    [
        pytest.param([object()], id="an object"),
        pytest.param(None, id="nothing"),
        pytest.param(["one", 2], id="a text and a number"),
        pytest.param(np.array([1, 2], np.object_), id="numbers as objects"),
    ],
)
def test_other_objects_are_refused(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"'answer' has an element of type .*; return numbers, str or bytes"):
        answer_arrays({"answer": returned})
