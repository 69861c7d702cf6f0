"""The bounds of keyword arguments, which no schema can express."""

from typing import Any

import pytest
from pydantic import ValidationError

from partita_api.fields.arguments import MAX_CHARACTERS, MAX_DEPTH
from partita_api.session.module import FunctionSource, ModelSource


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def with_aliases(levels: int) -> Any:
    """10 ** levels texts in a few lists, as YAML with aliases makes them."""
    value: Any = "x"
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize("source", [ModelSource, FunctionSource])
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="none"),
        pytest.param({"a": nested(MAX_DEPTH)}, id="as deep as allowed"),
        pytest.param({"a": "x" * (MAX_CHARACTERS - 10)}, id="as long as allowed"),
        pytest.param({"a": None, "b": True, "c": 1.5, "d": 10**18, "e": "\x00\u2028🙂"}, id="every kind of value"),
    ],
)
def test_arguments_within_the_bounds_stay_as_they_are(source: Any, arguments: dict[str, Any]) -> None:
    assert source(entrypoint="a:b", kwargs=arguments).kwargs == arguments


@pytest.mark.parametrize("source", [ModelSource, FunctionSource])
@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param({"a": nested(MAX_DEPTH + 1)}, "at most 16 levels", id="one level too deep"),
        pytest.param({"a": nested(50_000)}, "at most 16 levels", id="deeper than Python's stack"),
        pytest.param({"a": "x" * MAX_CHARACTERS}, "at most 32768 characters", id="a long text"),
        pytest.param({"x" * 254: 1}, "at most 253 characters of a key", id="a long key"),
        pytest.param({"a": [{"x" * 254: 1}]}, "at most 253 characters of a key", id="a long key further down"),
        pytest.param({"a": [[]] * MAX_CHARACTERS}, "at most 32768 characters", id="many empty lists"),
        pytest.param({"a": with_aliases(15)}, "at most 32768 characters", id="exponentially many by aliases"),
        pytest.param({"a": b"x"}, "of type bytes is not JSON", id="bytes"),
        pytest.param({str(number): 1 for number in range(65)}, "at most 64 items", id="too many"),
    ],
)
def test_arguments_beyond_a_bound_are_refused(source: Any, arguments: dict[str, Any], want: str) -> None:
    with pytest.raises(ValidationError) as refused:
        source(entrypoint="a:b", kwargs=arguments)
    assert want in refused.value.errors(include_input=False)[0]["msg"]
