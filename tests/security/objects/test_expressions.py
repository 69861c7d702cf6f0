"""Expressions of `when` that are made to stop the operator, which parses them, or a frontend, which evaluates them."""

import asyncio
import contextlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Json, Kubectl, condition, eventually, pool, reason, session

from partita_api.session.cel.expression import MAX_CHARACTERS, Expression
from partita_api.session.cel.values import MAX_ELEMENTS, ExpressionError

HOSTILE = {
    "parentheses": "(" * (MAX_CHARACTERS - 1) + "1",
    "negations": "!" * (MAX_CHARACTERS - 4) + "true",
    "choices": "true?" * 100 + "1",
    "sums": "1" + "+1" * 255,
    "loops": "outputs.a.all(x, outputs.a.all(y, outputs.a.all(z, x + y + z > 0)))",
    "regular-expression": "'" + "a" * 400 + "'.matches('(a*)*b')",
    "python": "__import__('os').system('true') == 0",
    "attributes": "outputs.a.__class__.__mro__[1] == 0",
    "controls": "outputs.a[0] \u202e== 1",
    "number": "9" * MAX_CHARACTERS,
}


def hostile(name: str, when: str) -> Json:
    """A session with this expression."""
    (model,) = session(name)["spec"]["modules"]
    edges = [{"from": "detector", "to": "next", "when": when}]
    return session(name, modules=[model, {**model, "name": "next"}], edges=edges)


@pytest.mark.apiserver
async def test_hostile_expressions_are_explained_and_stop_no_other_session(
    namespace: Kubectl, operators: Operators
) -> None:
    """The API server stores them: its rules cannot parse CEL."""
    for name, when in HOSTILE.items():
        await asyncio.to_thread(namespace.apply, hostile(name, when))
    await asyncio.to_thread(namespace.apply, pool("fast"), session("traffic"))
    async with operators.running():
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        for name in HOSTILE:
            found = await eventually(lambda name=name: condition(namespace.get("isess", name), "Ready"), bool)
            assert found["reason"] == "InvalidSpec"
            assert "edges.0.when: " in found["message"], name
        await namespace.wait("delete", "isess", "traffic", *HOSTILE)


WORDS = ("outputs.a[0]", "outputs.b[1]", "7 in outputs.a", "size(outputs.b)", "outputs.a[outputs.b[0]]", "1", "true")
SIGNS = ("&&", "||", "==", "<", "+", "*", "?", ":", "(", ")", "!", "-")


@given(st.lists(st.sampled_from((*WORDS, *SIGNS)), max_size=60))
def test_each_word_of_an_expression_is_evaluated_at_most_once(words: list[str]) -> None:
    text = " ".join(words)
    read: Counter[str] = Counter()

    def output(name: str) -> np.ndarray:
        read[name] += 1
        return np.arange(MAX_ELEMENTS)

    with contextlib.suppress(ExpressionError):
        Expression.parse(text).holds(output)
    assert read["a"] <= text.count("outputs.a")
    assert read["b"] <= text.count("outputs.b")
