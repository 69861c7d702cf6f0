"""Edges that say which output of a model is which input of the next one."""

import pytest

from partita_api.session.edge import Edge
from partita_api.session.module import DType, Inputs, NamedInput, TensorSpec
from partita_api.session.output_maps import UnknownOutputError, chosen_outputs, map_problems

HIDDEN, MASK = NamedInput(name="hidden", shape=(8, 4)), NamedInput(name="mask", shape=(8,), dtype=DType.INT64)
BOTH = (HIDDEN, MASK)
OUTPUTS = (TensorSpec(shape=(8,), dtype=DType.INT64), TensorSpec(shape=(8, 4)), TensorSpec(shape=(3, 8, 4)))
NAMES = ("attention", "states", "")


def edge(**mapped: str) -> Edge:
    return Edge.model_validate({"from": "a", "to": "b", **({"map": mapped} if mapped else {})})


@pytest.mark.parametrize(
    ("made", "takes", "want"),
    [
        pytest.param(edge(hidden="states", mask="attention"), BOTH, [1, 0], id="names"),
        pytest.param(edge(mask="0", hidden="1"), BOTH, [1, 0], id="numbers"),
        pytest.param(edge(hidden="2", mask="attention"), BOTH, [2, 0], id="names and numbers"),
        pytest.param(edge(input="states"), TensorSpec(shape=(8, 4)), [1], id="an input without a name"),
        pytest.param(edge(), TensorSpec(shape=(8, 4)), [0], id="no map"),
    ],
)
def test_outputs_are_chosen_by_name_or_number(made: Edge, takes: Inputs, want: list[int]) -> None:
    assert chosen_outputs(made, takes, NAMES, 3) == want


@pytest.mark.parametrize("output", ["other", "3", "-1", "1.0", "9" * 100, "\u0662"])
@pytest.mark.parametrize("names", [NAMES, ()], ids=["names", "no names"])
def test_unknown_outputs_are_explained(output: str, names: tuple[str, ...]) -> None:
    known = "attention, states, 2" if names else "0, 1, 2"
    with pytest.raises(UnknownOutputError, match=f"the edge from a to b maps .*: its outputs are {known}"):
        chosen_outputs(edge(hidden=output, mask="0"), BOTH, names, 3)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        pytest.param(edge(hidden="states", mask="attention"), [], id="they fit"),
        pytest.param(edge(hidden="2", mask="attention"), [], id="samples of one answer"),
        pytest.param(
            edge(hidden="states", mask="states"), ["gives FP32 [8, 4] to mask, which takes INT64 [8]"], id="type"
        ),
        pytest.param(edge(hidden="attention", mask="x"), ["maps output x, which a does not have"], id="none"),
    ],
)
def test_outputs_that_do_not_fit_are_explained(made: Edge, says: list[str]) -> None:
    found = list(map_problems(made, BOTH, NAMES, OUTPUTS))
    assert [text in sentence for text, sentence in zip(says, found, strict=True)] == [True] * len(says)
