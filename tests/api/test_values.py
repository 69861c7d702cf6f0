"""Quantities, percentages, digests and conditions."""

import re
from decimal import Decimal
from typing import Any

import pytest

from partita_api.conditions import MAX_MESSAGE, Condition, ConditionType, set_condition
from partita_api.digests import digest
from partita_api.fields.quantity import PERCENT_PATTERN, QUANTITY_PATTERN, Percent, Quantity

POWERS = {letter: power for power, letter in enumerate("kMGTP", start=1)}
FACTORS = (
    {"m": Decimal("0.001")}
    | {letter: Decimal(1000) ** power for letter, power in POWERS.items()}
    | {f"{letter.upper()}i": Decimal(1024) ** power for letter, power in POWERS.items()}
)
"""Every suffix that the pattern of the CRDs allows."""


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param("0.71", Decimal("0.71"), id="decimal"),
        pytest.param(3, Decimal(3), id="integer"),
        pytest.param(0.25, Decimal("0.25"), id="float"),
        pytest.param("500m", Decimal("0.5"), id="milli"),
        pytest.param("10G", Decimal(10) ** 10, id="giga"),
        pytest.param("24Gi", Decimal(24 * 2**30), id="gibi"),
        *(pytest.param(f"2{suffix}", 2 * factor, id=suffix) for suffix, factor in FACTORS.items()),
    ],
)
def test_quantity_value(raw: int | float | str, want: Decimal) -> None:
    assert Quantity(raw).value == want


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "fast",
        "-1",
        -1,
        "1e400x",
        "10 G B",
        "nan",
        float("nan"),
        1e15,
        1e30,
        "1e3",
        "10i",
        " 1",
        True,
        [1],
        {},
        None,
    ],
)
def test_quantity_refuses_what_the_crd_refuses(raw: Any) -> None:
    assert re.search(QUANTITY_PATTERN, str(raw)) is None
    with pytest.raises(ValueError, match="is not a quantity: write a number of 0 or more"):
        Quantity(raw)


@pytest.mark.parametrize("number", [12 * 0.1, 1 / 3, 1e-12, -0.0, 1e14 / 7])
def test_computed_quantity_keeps_the_pattern_of_the_crd(number: float) -> None:
    quantity = Quantity(number)

    assert re.search(QUANTITY_PATTERN, quantity)
    assert float(quantity) == pytest.approx(number, abs=1e-9)


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param("99.9%", 0.999, id="decimal"),
        pytest.param("0%", 0, id="none"),
        pytest.param("100.0%", 1, id="all"),
    ],
)
def test_percent_fraction(raw: str, want: float) -> None:
    assert re.search(PERCENT_PATTERN, raw)
    assert Percent(raw).fraction == pytest.approx(want)


@pytest.mark.parametrize("raw", ["99", "101%", "100.1%", "-1%", "many%", "1e1%", " 9%"])
def test_percent_refuses_what_the_crd_refuses(raw: str) -> None:
    assert re.search(PERCENT_PATTERN, raw) is None
    with pytest.raises(ValueError, match="is not a percentage: write 0% to 100%"):
        Percent(raw)


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def conditions(*, status: bool, message: str = "all well", now: str, before: tuple[Condition, ...] = ()) -> Condition:
    (only,) = set_condition(before, ConditionType.READY, status, reason="Why", message=message, generation=1, now=now)
    return only


def test_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    first = conditions(status=True, now="2030-01-01T00:00:00Z")
    same = conditions(status=True, message="still well", now="2030-01-02T00:00:00Z", before=(first,))
    turned = conditions(status=False, now="2030-01-03T00:00:00Z", before=(same,))

    assert same.last_transition_time == first.last_transition_time
    assert same.message == "still well"
    assert turned.last_transition_time == "2030-01-03T00:00:00Z"


def test_long_condition_message_is_cut_visibly() -> None:
    condition = conditions(status=False, message="x" * 5000, now="2030-01-01T00:00:00Z")

    assert len(condition.message) == MAX_MESSAGE
    assert condition.message.endswith(" ...")
