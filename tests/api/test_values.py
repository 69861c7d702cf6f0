"""Quantities, percentages, digests and conditions."""

from decimal import Decimal

import pytest

from partita_api.conditions import MAX_MESSAGE, Condition, ConditionType, set_condition
from partita_api.digests import digest
from partita_api.fields.quantity import Percent, Quantity


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param("0.71", Decimal("0.71"), id="decimal"),
        pytest.param(3, Decimal(3), id="integer"),
        pytest.param(0.25, Decimal("0.25"), id="float"),
        pytest.param("500m", Decimal("0.5"), id="milli"),
        pytest.param("10G", Decimal(10) ** 10, id="giga"),
        pytest.param("24Gi", Decimal(24 * 2**30), id="gibi"),
    ],
)
def test_quantity_value(raw: int | float | str, want: Decimal) -> None:
    assert Quantity(raw).value == want


@pytest.mark.parametrize("raw", ["", "fast", "-1", "1e400x", "10 G B"])
def test_quantity_refuses(raw: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        Quantity(raw)


def test_percent_fraction() -> None:
    assert Percent("99.9%").fraction == pytest.approx(0.999)


@pytest.mark.parametrize("raw", ["99", "101%", "-1%", "many%"])
def test_percent_refuses(raw: str) -> None:
    with pytest.raises(ValueError, match="%"):
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
