"""Cases of tests have an order: pytest-xdist stops if its workers collect them in different ones."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def unordered_parameters(source: str) -> Iterator[int]:
    """Lines of `parametrize` whose cases are a set, or a name that the module binds to one."""
    module = ast.parse(source)
    bound = {
        target.id
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Set | ast.SetComp)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parametrize":
            for cases in node.args[1:2]:
                if isinstance(cases, ast.Set | ast.SetComp) or (isinstance(cases, ast.Name) and cases.id in bound):
                    yield node.lineno


@pytest.mark.parametrize(
    ("cases", "unordered"),
    [
        pytest.param("{1, 2}", True, id="set"),
        pytest.param("{n for n in (1, 2)}", True, id="comprehension"),
        pytest.param("NAMES", True, id="name of a set"),
        pytest.param("sorted(NAMES)", False, id="sorted"),
        pytest.param("[1, 2]", False, id="list"),
    ],
)
def test_sets_are_found(cases: str, unordered: bool) -> None:
    source = f"NAMES: Final = {{1, 2}}\n@pytest.mark.parametrize('n', {cases})\ndef test(n): ..."

    assert bool([*unordered_parameters(source)]) is unordered


def test_cases_have_an_order() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}" for file in FILES for line in unordered_parameters(Path(file).read_text())
    ]

    assert found == []
