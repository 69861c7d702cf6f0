"""JSON of the API server that Python's own decoder refuses, or that is no JSON."""

import json

import pytest

from partita_operator.kube.bodies.decoding import MAX_DEPTH, decoded, shallow


def document(levels: int) -> bytes:
    """Deep maps and lists, between values that look like them."""
    deep = '{"a":[' * levels + "1" + "]}" * levels
    return f'{{"before": "}}]\\"[{{", "items": [{{"deep": {deep}}}, 2], "after": "\\\\"}}'.encode()


def depth(value: object) -> int:
    levels = 0
    while isinstance(value, list | dict) and value:
        levels += 1
        (value,) = value if isinstance(value, list) else value.values()
    return levels


@pytest.mark.parametrize("levels", [pytest.param(n, id=str(n)) for n in (120, 600, 5_000, 100_000)])
def test_what_is_nested_too_deeply_is_left_out_alone(levels: int) -> None:
    found = decoded(document(levels))
    assert (found["before"], found["items"][1], found["after"]) == ('}]"[{', 2, "\\")
    assert depth(found["items"][0]["deep"]) <= MAX_DEPTH
    assert json.loads(shallow(document(levels))) == found


def test_ordinary_documents_stay_as_they_are() -> None:
    assert decoded(document(40)) == json.loads(document(40))
    assert shallow(document(40)) == document(40)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"<html>", id="a page"),
        pytest.param(b"[" * 1_000_000, id="lists without an end"),
        pytest.param(b"]" * 1_000_000, id="ends without a beginning"),
        pytest.param(b'"' + b'\\"' * 500_000, id="a text without an end"),
        pytest.param(document(5_000)[:20_000], id="cut off"),
        pytest.param(b'{"a": "\xff"}', id="not UTF-8"),
    ],
)
def test_what_is_not_json_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(text)
