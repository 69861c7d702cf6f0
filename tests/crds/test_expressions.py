"""Expressions of `when`: what they say about outputs, which ones are refused, and that they are those of CEL."""

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crds.conftest import ApiServer
from tests.crds.documents import SESSION, changed
from tests.patience import eventually

from partita_api.manifests import ManifestError, parse_resource
from partita_api.session.cel.expression import MAX_CHARACTERS, Expression
from partita_api.session.cel.values import ExpressionError
from partita_api.session.edge import Edge
from partita_api.session.module import DType, TensorSpec
from partita_api.session.when import holds, when_problems

NAMES = ("label", "score", "text", "flag", "table", "")
OUTPUTS = (
    np.array([2, -7, 0]),
    np.array([0.5, -2.25], np.float32),
    np.array([b"yes, please", b"no"], object),
    np.array([True]),
    np.arange(6).reshape(2, 3),
    np.array([1.5], np.float16),
)
SPECS = (
    TensorSpec(shape=(3,), dtype=DType.INT64),
    TensorSpec(shape=(2,)),
    TensorSpec(shape=(2,), dtype=DType.BYTES),
    TensorSpec(shape=(1,), dtype=DType.BOOL),
    TensorSpec(shape=(2, 3), dtype=DType.INT64),
    TensorSpec(shape=(1,), dtype=DType.FP16),
)

IN_CEL = [
    pytest.param("outputs.label[0] == 2", True, id="an integer"),
    pytest.param("outputs.score[1] > -2.0", False, id="a number"),
    pytest.param("outputs.label[0] > 1.5 && outputs.score[0] < 1", True, id="integers and numbers are compared"),
    pytest.param("outputs.label[1] != -7", False, id="inequality"),
    pytest.param("outputs.text[0].startsWith('yes') && !outputs.text[1].contains(\"es\")", True, id="texts"),
    pytest.param("outputs.text[1].endsWith('o') ? outputs.label[2] == 1 : true", False, id="a choice"),
    pytest.param("outputs.label[1] in [1, -7, 3]", True, id="in constants"),
    pytest.param("5 in outputs.label || 'no' in outputs.text", True, id="in an output"),
    pytest.param("size(outputs.label) == 3 && outputs.table[1].size() == 3", True, id="sizes"),
    pytest.param("outputs.table[1][2] == 5", True, id="two dimensions"),
    pytest.param("outputs.table[0][outputs.label[0]] == 2", True, id="an index that is an output"),
    pytest.param("outputs.label[1] / 2 == -3 && outputs.label[1] % 2 == -1", True, id="division rounds towards 0"),
    pytest.param("double(outputs.label[0]) / 4.0 == outputs.score[0]", True, id="conversion"),
    pytest.param("int(outputs.score[1]) == -2 && -outputs.label[1] == 7", True, id="conversion rounds towards 0"),
    pytest.param("1 + 2 * 3 - 4 == 3 && (1 + 2) * 3 == 9 && 0x10 == 16", True, id="precedence"),
    pytest.param("false && true || true", True, id="&& before ||"),
    pytest.param("1 / outputs.label[2] == 1 || true", True, id="|| is true although one side has no value"),
    pytest.param("1 / outputs.label[2] == 1 && false", False, id="&& is false although one side has no value"),
    pytest.param("1.0 / 0.0 > 1e300", True, id="division of numbers by 0"),
    pytest.param("outputs.label[0] == 2 // two", True, id="a comment"),
]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        *IN_CEL,
        pytest.param("outputs['label'][1] != -7", False, id="a name in quotes"),
        pytest.param("outputs.flag[0]", True, id="a truth value"),
        pytest.param("outputs[1][0] == 0.5 && outputs['0'][0] == 2", True, id="outputs by number"),
        pytest.param("outputs[5][0] == 1.5", True, id="an output without a name"),
        pytest.param("1 in [true] || outputs.flag[0] in [1]", False, id="truth values are no numbers"),
    ],
)
def test_an_expression_says_whether_an_answer_is_sent(text: str, want: bool) -> None:
    assert holds(Expression.parse(text), NAMES, OUTPUTS) is want
    assert list(when_problems(edge(text), NAMES, SPECS)) == []


@pytest.mark.apiserver
def test_cel_says_the_same(server: ApiServer) -> None:
    """The API server evaluates the expressions, as rules of a kind of objects that are such outputs."""
    cases = {f"case {number}": (str(case.values[0]), bool(case.values[1])) for number, case in enumerate(IN_CEL)}
    rules = [{"rule": re.sub(r"\boutputs\b", "self", text), "message": name} for name, (text, _) in cases.items()]
    lists = {"label": "integer", "score": "number", "text": "string"}
    fields = {name: {"type": "array", "maxItems": 4, "items": {"type": type}} for name, type in lists.items()}
    fields["text"]["items"]["maxLength"] = 32
    fields["table"] = {"type": "array", "maxItems": 4, "items": {**fields["label"]}}
    spec = {"type": "object", "properties": fields, "x-kubernetes-validations": rules}
    names = {"plural": "answers", "singular": "answer", "kind": "Answer"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    kind = {"group": "when.test", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "answers.when.test"},
        "spec": kind,
    }
    made = server.http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=definition)
    assert made.is_success, made.text
    outputs = {name: found.tolist() for name, found in zip(NAMES, OUTPUTS, strict=True) if name in fields}
    outputs["text"] = [text.decode() for text in outputs["text"]]
    answer = {"apiVersion": "when.test/v1", "kind": "Answer", "metadata": {"name": "a"}, "spec": outputs}
    address = "/apis/when.test/v1/namespaces/default/answers"
    try:
        eventually(lambda: server.http.get(address).is_success)
        causes = server.http.post(address, json=answer).json()["details"]["causes"]
    finally:
        server.http.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}")
    said = {cause["message"].rpartition(": ")[2] for cause in causes}
    assert said == {name for name, (_, want) in cases.items() if not want}


def edge(when: str) -> Edge:
    return Edge.model_validate({"from": "a", "to": "b", "when": when})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("outputs.label[0] = 2", "at character 18: '=' has no meaning", id="="),
        pytest.param("outputs.label[0] == ", "at character 21: a value is missing before the end", id="no operand"),
        pytest.param("(outputs.flag", "at character 14: ) is missing before the end", id="a parenthesis"),
        pytest.param("outputs.flag true", "an operator or the end is missing before true", id="two values"),
        pytest.param("outputs.text[0] == 'yes", "has no meaning", id="a text without end"),
        pytest.param("outputs.label[0] + 1", "neither true nor false, but of type int", id="a number"),
        pytest.param("1 == 'a'", "== does not take int and string", id="types"),
        pytest.param("1 + 1.5 > 2.0", "convert one of them with int() or double()", id="integers and numbers"),
        pytest.param("label[0] == 2", "label is unknown", id="an output without outputs"),
        pytest.param("outputs == 2", "[ is missing before ==", id="all outputs"),
        pytest.param("outputs[outputs.label[0]] == 2", 'such as outputs.label, outputs["label"]', id="a computed name"),
        pytest.param("outputs.label.all(x, x > 0)", "all is unknown, or a part of CEL", id="a macro"),
        pytest.param("outputs.text[0].matches('a*b')", "matches is unknown", id="a regular expression"),
        pytest.param("9223372036854775808 > 0", "larger than 64 bits", id="a large number"),
        pytest.param("[outputs.flag] == 1", "a list in brackets has constants only", id="a list of outputs"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_field(text: str, want: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_resource(changed(SESSION, "spec.edges.0.when", text), "test")
    assert "spec.edges.0.when: " in str(refused.value)
    assert want in str(refused.value)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("outputs.label[3] == 1", "at character 14: index 3 is out of range: there are 3", id="an index"),
        pytest.param("outputs.labels[0] == 1", "no output labels: the outputs are label, score, text", id="a name"),
        pytest.param("outputs[6][0] == 1", "there is no output 6", id="a number of an output"),
        pytest.param("outputs.label == 1", "== does not take list of int [3] and int", id="a list"),
        pytest.param("outputs.flag[0][0]", "not int of bool", id="an index of a single value"),
        pytest.param("outputs.text[0] > 1", "> does not take string and int", id="a text"),
        pytest.param("outputs.label[0]", "neither true nor false", id="a number"),
        pytest.param("1.5 in outputs.text", "in does not take double and list of string", id="in texts"),
    ],
)
def test_what_does_not_fit_the_outputs_is_found_before_and_at_an_answer(text: str, want: str) -> None:
    (said,) = when_problems(edge(text), NAMES, SPECS)
    assert said.startswith("when of the edge from a to b does not fit the outputs of a: ")
    assert want in said
    parsed = Expression.parse(text)
    with contextlib.suppress(ExpressionError):
        assert holds(parsed, NAMES, OUTPUTS) is False, "`in` finds nothing of another type"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(np.zeros(1025), id="many elements"),
        pytest.param(np.array([b"a" * 65_537], object), id="a long text"),
        pytest.param(np.array([2**64 - 1], np.uint64), id="an integer of 64 bits without sign"),
        pytest.param(np.array([None], object), id="no value"),
        pytest.param(np.array([1 + 2j]), id="a complex number"),
    ],
)
def test_outputs_that_are_too_large_or_of_other_types_have_no_value(output: np.ndarray) -> None:
    with pytest.raises(ExpressionError):
        holds(Expression.parse("outputs[0][0] == 1"), (), [output])


WORDS = (
    "outputs . label score [ ] ( ) 0 1 -7 1.5 2e9 'a' \"b\" true false ! - + * / % == != < <= > >= in && || ? : , size "
    "double int contains 9223372036854775807 outputs.label[0] outputs.score[1] outputs.text[0] null"
)
SENTENCES = st.lists(st.sampled_from(WORDS.split()), max_size=40).map(" ".join)


@given(st.one_of(SENTENCES, st.text(max_size=40)))
def test_whatever_is_written_is_refused_or_has_a_value_or_an_explanation(text: str) -> None:
    try:
        parsed = Expression.parse(text)
    except ExpressionError:
        return
    with contextlib.suppress(ExpressionError):
        assert isinstance(holds(parsed, NAMES, OUTPUTS), bool)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(" * 200 + "true" + ")" * 200, id="parentheses"),
        pytest.param("!" * (MAX_CHARACTERS - 4) + "true", id="!"),
        pytest.param("-" * (MAX_CHARACTERS - 4) + "1 == 1", id="-"),
        pytest.param("1" + "+1" * 200 + " > 0", id="sums"),
        pytest.param("outputs.a" + "[0]" * 150 + " == 0", id="indexes"),
        pytest.param("true?" * 60 + "true" + ":true" * 60, id="choices"),
        pytest.param("true || " * 60 + "true", id="alternatives"),
        pytest.param("[" * 250 + "]" * 250 + " == 1", id="lists"),
        pytest.param(" " * MAX_CHARACTERS + "true", id="spaces"),
    ],
)
def test_an_expression_is_short_and_flat(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"more than 32 levels|at most 512 characters"):
        Expression.parse(text)
