"""Every reason that a condition may give is explained to users."""

from pathlib import Path

import pytest

from partita_api.conditions import ConditionType
from partita_operator.reconcile.reasons import Reason, Severity, severity_of
from partita_planner.problem import NoPlanReason

REFERENCE = (Path(__file__).resolve().parents[3] / "docs/reference/conditions.md").read_text()


@pytest.mark.parametrize("word", [*Reason, *NoPlanReason, *ConditionType])
def test_the_reference_page_explains_the_word(word: str) -> None:
    assert f"`{word}`" in REFERENCE


def test_the_reference_page_has_no_unknown_words() -> None:
    rows = [line for line in REFERENCE.splitlines() if line.startswith("| `")]
    words = {word.strip("` ") for row in rows for word in row.split("|")[1].split(",")}
    assert words == {*Reason, *NoPlanReason, *ConditionType}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_severity_and_a_meaning(reason: Reason) -> None:
    assert severity_of(str(reason)) is reason.severity
    assert len(reason.meaning) > 10


@pytest.mark.parametrize("reason", NoPlanReason)
def test_reasons_for_no_plan_are_warnings(reason: NoPlanReason) -> None:
    assert severity_of(str(reason)) is Severity.WARNING
