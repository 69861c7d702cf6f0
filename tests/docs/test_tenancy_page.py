"""The page on tenancy: each row of its tables names tests that exist, or says that there is none."""

import ast
import re
from functools import cache
from typing import Final

import pytest
from tests.architecture.sources import ROOT

PAGE: Final = ROOT / "docs/concepts/tenancy.md"
NOT_TESTED: Final = "not tested"
NAMED: Final = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[tuple[str, str, str]]:
    """What is tried, whether it succeeds, and the tests."""
    lines = [line.strip("|").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert all(len(cells) == 3 for cells in lines)
    return [
        (cells[0].strip(), cells[1].strip(), cells[2].strip()) for cells in lines if cells[2].strip() != "tested by"
    ]


@cache
def _tests_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(function.name for function in functions if function.name.startswith("test_"))


@pytest.mark.parametrize(("tried", "answer", "tested"), rows(), ids=[f"{n} {row[0]}" for n, row in enumerate(rows())])
def test_a_row_names_tests_that_exist(tried: str, answer: str, tested: str) -> None:
    assert answer, tried
    if tested == NOT_TESTED:
        return
    named = NAMED.findall(tested)
    assert tested == ", ".join(f"`{file}::{test}`" for file, test in named), "name tests as `tests/...py::test_...`"
    assert [f"{file}::{test}" for file, test in named if test not in _tests_in(file)] == []


def test_the_page_admits_that_session_code_can_read_the_token_of_its_ray_cluster() -> None:
    (row,) = [row for row in rows() if row[0] == "read the token of its Ray cluster"]
    assert row[1] == "yes"
    assert len(rows()) > 30
