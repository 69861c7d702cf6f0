"""Every reason that a condition may give is explained to users."""

from pathlib import Path

import pytest

from partita_api.conditions import ConditionType
from partita_operator.reconcile.reasons import PROBLEMS, Reason
from partita_planner.problem import NoPlanReason

REFERENCE = (Path(__file__).resolve().parents[3] / "docs/reference/conditions.md").read_text()


@pytest.mark.parametrize("word", [*Reason, *NoPlanReason, *ConditionType])
def test_reference_explains(word: str) -> None:
    assert f"`{word}`" in REFERENCE


def test_reference_explains_nothing_that_is_not_there() -> None:
    rows = [line for line in REFERENCE.splitlines() if line.startswith("| `")]
    words = {word.strip("` ") for row in rows for word in row.split("|")[1].split(",")}
    assert words == {*Reason, *NoPlanReason, *ConditionType}


def test_problems_are_reasons_too() -> None:
    assert set(Reason) > PROBLEMS
