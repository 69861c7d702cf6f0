"""Sessions without requests: when they scale to zero, what they hold then, when from zero, and the messages."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import signals
from tests.operator.reconcile.simulated import OperatorKilledError, SimulatedCluster

from partita_api.inferencesession import Rate, RateSource
from partita_api.meta import PAUSED_ANNOTATION
from partita_api.session.autoscaling import Autoscaling, AutoscalingMode, ScaleToZero
from partita_operator.reconcile.capacity.accounting import users

AFTER = 60
TO_ZERO = Autoscaling(scale_to_zero=ScaleToZero(after_seconds=AFTER))


def unused(name: str = "traffic", gpus: int = 2, **spec: Any) -> SessionBuilder:
    """A session that needs this number of accelerators while it has replicas."""
    return session(name).model("detector").rate(100 * gpus).with_spec(**{"autoscaling": TO_ZERO, **spec})


def settled(*sessions: SessionBuilder, gpus: int = 4) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build())
    for built in sessions or (unused(),):
        made.add(built.build())
        made.run(15)
    return made


def report(made: SimulatedCluster, name: str = "traffic", held: int = 0, idle: float = 1000, rate: float = 0) -> None:
    """The report of the frontends, by default for the current plan."""
    key = f"default/{name}"
    plan = made.engine.applied[key].plan.metadata.name
    made.engine.reported[key] = replace(signals(plan, rate), held=held, idle_seconds=idle)


def at_zero(*sessions: SessionBuilder, gpus: int = 4) -> SimulatedCluster:
    """Scale the session `traffic` to zero."""
    made = settled(*sessions, gpus=gpus)
    report(made)
    made.run(AFTER + 2)
    assert replicas(made) == 0
    return made


def replicas(made: SimulatedCluster, name: str = "traffic") -> int:
    return sum(target.replicas for target in made.engine.applied[f"default/{name}"].targets)


def said(made: SimulatedCluster, reason: str) -> list[str]:
    return [event.message for _, event in made.events if event.reason == reason]


def test_without_requests_its_replicas_are_removed_and_its_accelerators_are_free() -> None:
    made = settled()
    assert made.pools["fast"].status.free.value == 2
    report(made, idle=20)
    made.run(AFTER + 2)
    assert replicas(made) == 2, "a request arrived recently"

    report(made)
    made.run(2)

    assert replicas(made) == 0
    found = made.session("traffic").status
    assert found.scale_to_zero_time is not None
    assert made.condition("traffic", "Ready") == ("True", "ScaledToZero")
    assert made.condition("traffic", "RolledOut") == ("True", "ScaledToZero")
    assert made.condition("traffic", "Reconciling") == ("False", "Settled")
    assert "No request arrived for 60 s: all replicas are removed" in said(made, "Scaled")[0]
    assert "has scaled to zero" in said(made, "ScaledToZero")[0]
    assert made.pools["fast"].status.free.value == 4
    assert users("fast", made.cluster()) == {}
    (plan,) = made.plans.values()
    assert {c.type: c.reason for c in plan.status.conditions}["Ready"] == "ScaledToZero"


def test_it_stays_at_zero_during_repairs_and_a_restart_of_the_operator() -> None:
    made = at_zero()
    since = made.session("traffic").status.scale_to_zero_time
    made.restart()
    made.engine.reported.clear()
    made.run(30)
    report(made, idle=3)
    made.run(30)
    assert replicas(made) == 0
    assert made.session("traffic").status.scale_to_zero_time == since
    assert made.requeues["default/traffic"] == 1.0, "a held request does not wait for the next resync"


def test_it_scales_from_zero_for_a_held_request() -> None:
    made = at_zero()
    report(made, held=1, idle=0)
    made.engine.most_ready = 0
    made.look_once()

    assert replicas(made) == 2, "as planned, because its rate is declared"
    assert made.session("traffic").status.scale_to_zero_time is None
    assert made.condition("traffic", "Ready") == ("False", "ScalingFromZero")
    assert "1 request is held: the session scales from zero to 2 replicas." in said(made, "Scaled")[-1]
    assert users("fast", made.cluster()) == {"default/traffic": 2}

    made.engine.most_ready = 1000
    report(made, idle=0)
    made.run(2)
    assert made.condition("traffic", "Ready") == ("True", "Serving")
    report(made, idle=AFTER - 5)
    made.run(AFTER - 5)
    assert replicas(made) == 2
    report(made, idle=AFTER + 5)
    made.run(10)
    assert replicas(made) == 0, "it may scale to zero again"


def test_with_an_observed_rate_it_scales_from_zero_to_replicas_for_the_held_requests() -> None:
    rate = Rate(requests_per_second=400, source=RateSource.OBSERVED)
    made = at_zero(unused(gpus=4, rate=rate).slo(100))
    made.run(400)
    assert len(made.made_plans) == 1, "a time without requests does not count as a rate"
    report(made, held=20, idle=0)
    made.look_once()
    assert replicas(made) == 2, "half of the 40 requests that all replicas answer within 100 ms"


def test_other_sessions_may_use_its_accelerators_and_then_it_stays_at_zero() -> None:
    made = at_zero(gpus=3)
    made.add(session("other").model("detector").rate(300).build())
    made.run(10)
    assert replicas(made, "other") == 3
    assert made.condition("traffic", "Ready") == ("False", "CannotScaleFromZero")
    report(made, held=1, idle=0)
    made.run(10)
    assert replicas(made) == 0
    assert "needs 2 accelerators of pool fast, of which 0 are free" in said(made, "CannotScaleFromZero")[0]

    made.delete("default/other")
    made.run(10)
    assert replicas(made) == 2
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_sessions_of_lower_priority_release_its_planned_accelerators() -> None:
    made = at_zero(unused(priority=10), gpus=4)
    made.add(session("other").model("detector").rate(200).build())
    made.run(10)
    made.add(pool("fast").gpus(3).build())
    made.run(10)
    assert (replicas(made), replicas(made, "other")) == (0, 2)
    report(made, held=1, idle=0)
    made.run(10)
    assert (replicas(made), replicas(made, "other")) == (2, 1)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"autoscaling": Autoscaling(mode=AutoscalingMode.DISABLED)}, id="autoscaling is disabled"),
        pytest.param({"autoscaling": Autoscaling()}, id="it may not scale to zero any more"),
        pytest.param(
            {"autoscaling": Autoscaling(mode=AutoscalingMode.ADVISORY, scale_to_zero=TO_ZERO.scale_to_zero)},
            id="advisory mode",
        ),
    ],
)
def test_it_scales_from_zero_after_a_change_of_its_spec(changed: dict[str, Any]) -> None:
    made = at_zero()
    made.add(unused(**changed).build())
    made.run(5)
    assert replicas(made) == 2
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_another_plan_scales_it_from_zero_and_without_requests_to_zero_again() -> None:
    made = at_zero()
    made.add(unused(gpus=3).build())
    made.run(5)
    assert replicas(made) == 3
    report(made)
    made.run(AFTER - 10)
    assert replicas(made) == 3, "its replicas have just started"
    made.run(20)
    assert replicas(made) == 0


def test_a_paused_session_scales_from_zero_but_does_not_scale_to_zero() -> None:
    made = at_zero()
    paused = unused().build()
    meta = paused.metadata.model_copy(update={"annotations": {PAUSED_ANNOTATION: "for an audit"}})
    made.add(paused.model_copy(update={"metadata": meta}))
    made.run(3)
    assert replicas(made) == 0
    report(made, held=1, idle=0)
    made.run(3)
    assert replicas(made) == 2
    report(made)
    made.run(AFTER + 10)
    assert replicas(made) == 2


def test_an_operator_killed_before_any_write_still_scales_to_zero_and_from_zero() -> None:
    for writes in range(6):
        made = settled()
        made.run(AFTER)
        report(made)
        made.writes_before_death = made.writes + writes
        with suppress(OperatorKilledError):
            made.run(3)
        made.restart()
        made.run(3)
        assert replicas(made) == 0
        report(made, held=1)
        made.run(3)
        assert (replicas(made), made.session("traffic").status.scale_to_zero_time) == (2, None)
