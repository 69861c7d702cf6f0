"""JSON as the API server reads it in server-side apply."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from partita_operator.kube.bodies.apply_text import as_yaml

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=10,
)


@given(VALUES)
def test_every_document_is_the_same_in_yaml(document: object) -> None:
    text = as_yaml(json.dumps(document))
    assert json.loads(text) == document
    assert yaml.safe_load(text) == document


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("🙂", "🙂", id="beyond 16 bits"),
        pytest.param("\\ud83d\\ude42", "\\ud83d\\ude42", id="a text of escapes"),
        pytest.param("\\\ud83d", "\\\ufffd", id="a half after a backslash"),
        pytest.param("\ud83d", "\ufffd", id="the first half"),
        pytest.param("\ude42\ud83d", "\ufffd\ufffd", id="halves in the wrong order"),
        pytest.param("\x00\x85\u2028\ufeff\ufffe", "\x00\x85\u2028\ufeff\ufffe", id="only as escapes"),
    ],
)
def test_halves_of_characters_are_replaced_and_nothing_else(text: str, want: str) -> None:
    written = as_yaml(json.dumps({text: text}))
    assert yaml.safe_load(written) == {want: want}
    written.encode()
