"""What several frontends say of themselves, as the measurements of one session."""

from typing import Any

import pytest
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_runtime.scheduling.core import SchedulingCore
from partita_runtime.serving.central.messages import Part
from partita_runtime.serving.central.metrics_aggregator import Gathering, Scheduled
from partita_runtime.serving.telemetry.signals import Outcome

SECOND = 1_000_000
PLANS = {name: plan_of(module("m").pipeline(1, stage("gpu"))).model_copy(update={"name": name}) for name in ("a", "b")}


def scheduled(seat: str) -> Scheduled | None:
    """Seats are named like the plan that they are at."""
    plan = PLANS.get(seat)
    return None if plan is None else Scheduled(plan, seat, SchedulingCore(plan).signals(0))


def part(plan: str | None, used_seconds: int = 0, **fields: Any) -> Part:
    said = {"next_plan": None, "message": "", "grpc_address": None, "http_address": None, **fields}
    return Part(seat=plan or "none", plan=plan, used_micros=used_seconds * SECOND, window_micros=60 * SECOND, **said)


def test_counts_are_of_all_frontends_also_of_those_that_have_left() -> None:
    gathering = Gathering("default/s", 0)
    gathering.take("one", part("a", arrived=3, ended=((Outcome.IN_TIME, 2000, 2), (Outcome.LATE, 9000, 1))), SECOND)
    gathering.take("other", part("a", arrived=1, ended=((Outcome.OVERLOAD, 0, 1),), cut_off={"m": 4}), SECOND)
    gathering.leave("one")
    measured = gathering.measured(scheduled, 2 * SECOND)
    signals = measured.signals
    assert (signals.offered_rate, signals.goodput, signals.bad_rate, signals.p50_ms) == (2.0, 1.0, 0.5, 2.0)
    assert measured.outcomes == {Outcome.IN_TIME: 2, Outcome.LATE: 1, Outcome.OVERLOAD: 1}
    assert measured.cut_off == {"m": 4}


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param([part("a", 9), part("a", 8)], ("a", None, ""), id="one plan"),
        pytest.param([part("a", 9), part("b", 1)], ("a", "b", ""), id="one has moved on, the other knows nothing yet"),
        pytest.param([part("b", 1), part("a", 9, next_plan="b")], ("a", "b", ""), id="one is about to move"),
        pytest.param([part("b", 9), part("a", 1)], ("b", "a", ""), id="back to an earlier plan"),
        pytest.param([part("a", 9), part(None, 99, next_plan="a", message="why")], ("a", "a", "why"), id="one starts"),
        pytest.param([part(None, next_plan="a", message="why")], (None, "a", "why"), id="nobody serves yet"),
        pytest.param([], (None, None, ""), id="nobody is there"),
    ],
)
def test_the_plan_is_the_one_that_has_been_used_for_longest(
    parts: list[Part], want: tuple[str | None, str | None, str]
) -> None:
    gathering = Gathering("default/s", 0)
    for number, one in enumerate(parts):
        gathering.take(number, one, 100 * SECOND)
    signals = gathering.measured(scheduled, 100 * SECOND).signals
    assert (signals.plan, signals.next_plan, signals.message) == want


def test_addresses_of_all_frontends_are_listed() -> None:
    gathering = Gathering("default/s", 0)
    for number in (2, 1):
        gathering.take(number, part("a", grpc_address=f"10.0.0.{number}:9000"), SECOND)
    signals = gathering.measured(scheduled, SECOND).signals
    assert (signals.grpc_address, signals.http_address) == ("10.0.0.1:9000,10.0.0.2:9000", None)
