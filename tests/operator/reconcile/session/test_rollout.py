"""The target of the engine, replicas that follow the load, and the deletion of a session."""

import pytest
from tests.builders import SessionBuilder, pool, session
from tests.operator.doubles import signals, with_stages
from tests.operator.reconcile.simulated import SimulatedCluster

from partita_api.inferencesession import Rate, RateSource
from partita_api.meta import FINALIZER
from partita_api.session.autoscaling import Autoscaling, AutoscalingMode
from partita_api.session.frontend import Frontend

DETECTOR = session("traffic").model("detector").rate(150)
KEY = "default/traffic"
STAGE = ("detector", "p0", 0)


def settled(built: SessionBuilder = DETECTOR, gpus: int = 8) -> SimulatedCluster:
    made = SimulatedCluster()
    made.add(pool("fast").gpus(gpus).build(), built.build())
    made.run(15)
    return made


def replicas(made: SimulatedCluster) -> int:
    (target,) = made.engine.applied[KEY].targets
    return target.replicas


def measure(made: SimulatedCluster, bad: float, idle: float) -> None:
    plan = made.engine.applied[KEY].plan.metadata.name
    made.engine.reported[KEY] = with_stages(signals(plan, 100, bad, idle), {STAGE: (replicas(made), idle, bad)})


def test_the_engine_gets_everything_that_the_plan_needs() -> None:
    made = settled()
    spec = made.engine.applied[KEY]
    assert set(spec.profiles) == {("detector", "fast")}
    assert set(spec.pools) == {"fast"}
    assert replicas(made) == 2
    assert spec.session.spec == made.session("traffic").spec


def test_the_current_plan_is_maintained_with_its_own_spec() -> None:
    made = settled()
    first = made.engine.applied[KEY]
    made.add(DETECTOR.rate(5000).function("crop").edge("detector", "crop").build())
    made.run(15)
    made.engine.applied.clear()
    made.run(5)
    assert made.engine.applied[KEY].plan.metadata.name == first.plan.metadata.name
    assert made.engine.applied[KEY].session.spec == first.session.spec


def test_a_plan_without_its_spec_does_not_change() -> None:
    made = settled()
    (plan,) = made.plans.values()
    meta = plan.metadata.model_copy(update={"annotations": {}})
    made.plans[plan.metadata.name] = plan.model_copy(update={"metadata": meta})
    before = made.engine.applied[KEY]
    made.add(DETECTOR.slo(5).build())
    made.run(15)
    assert made.engine.applied[KEY] is before


def test_replicas_follow_the_load_and_survive_a_restart_of_the_operator() -> None:
    made = settled()
    made.run(40)
    measure(made, bad=0.5, idle=0.0)
    made.run(1)
    assert replicas(made) == 4
    (plan,) = made.plans.values()
    assert [stage.desired for stage in plan.status.stages] == [4]
    (said,) = [event.message for _, event in made.events if event.reason == "Scaled"]
    assert "50.0% of its requests were dropped or late" in said

    made.restart()
    made.engine.reported.clear()
    made.run(20)
    assert replicas(made) == 4
    assert made.condition("traffic", "Ready") == ("True", "Serving")


def test_between_two_steps_the_autoscaler_cools_down() -> None:
    made = settled()
    made.run(40)
    measure(made, bad=0.5, idle=0.0)
    counts = []
    for _ in range(60):
        made.run(1)
        measure(made, bad=0.5, idle=0.0)
        counts.append(replicas(made))
    assert counts[0] == 4
    assert counts.index(8) >= 29


def test_replicas_are_added_on_free_gpus_only() -> None:
    made = settled(gpus=8)
    made.add(session("other").model("detector").rate(500).build())
    made.run(40)
    measure(made, bad=0.6, idle=0.0)
    made.run(3)
    assert replicas(made) == 3, "2 planned, 5 held by the other"


def test_replicas_for_losses_are_not_released() -> None:
    observed = Rate(requests_per_second=400, source=RateSource.OBSERVED)
    made = settled(DETECTOR.with_spec(rate=observed, availability={"survive_loss": "Replica"}))
    made.run(40)
    measure(made, bad=0.0, idle=0.9)
    made.run(3)
    assert replicas(made) == 4


@pytest.mark.parametrize(
    ("source", "want_idle"),
    [pytest.param(RateSource.DECLARED, 4, id="declared"), pytest.param(RateSource.OBSERVED, 1, id="observed")],
)
def test_released_gpus_can_be_used_again(source: RateSource, want_idle: int) -> None:
    made = settled(DETECTOR.with_spec(rate=Rate(requests_per_second=400, source=source)))
    made.run(40)
    measure(made, bad=0.0, idle=0.9)
    made.run(3)
    assert replicas(made) == want_idle
    made.add(session("other").model("detector").rate(400).build())
    made.run(40)
    assert made.condition("other", "Ready") == ("True", "Serving")
    measure(made, bad=0.8, idle=0.0)
    made.run(40)
    assert replicas(made) == 4


@pytest.mark.parametrize(
    ("mode", "want_replicas", "want_words"),
    [
        pytest.param(AutoscalingMode.ENABLED, 4, "replicas", id="enabled"),
        pytest.param(AutoscalingMode.ADVISORY, 2, "Advice only", id="advisory"),
        pytest.param(AutoscalingMode.DISABLED, 2, "disabled", id="disabled"),
    ],
)
def test_the_status_has_the_autoscalers_recommendation(
    mode: AutoscalingMode, want_replicas: int, want_words: str
) -> None:
    made = settled(DETECTOR.with_spec(autoscaling=Autoscaling(mode=mode)))
    made.run(40)
    measure(made, bad=0.5, idle=0.0)
    made.run(1)
    assert replicas(made) == want_replicas
    found = made.session("traffic").status.signals
    assert found is not None
    assert want_words in found.recommendation


def test_the_status_of_plans_shows_which_one_serves() -> None:
    made = settled()
    made.add(DETECTOR.rate(350).build())
    made.run(15)
    ready = {
        name: next(c for c in plan.status.conditions if c.type == "Ready").reason for name, plan in made.plans.items()
    }
    assert sorted(ready.values()) == ["Serving", "Superseded"]
    assert ready[made.engine.applied[KEY].plan.metadata.name] == "Serving"


def test_clients_find_the_frontends_own_ports_in_the_status() -> None:
    made = settled()
    assert made.session("traffic").status.grpc_address is None
    assert made.session("traffic").status.http_address is None
    plan = made.engine.applied[KEY].plan.metadata.name
    made.add(DETECTOR.with_spec(frontend=Frontend(grpc_port=9000, http_port=9001)).build())
    made.run(15)
    assert made.session("traffic").status.grpc_address == "node:9000"
    assert made.session("traffic").status.http_address == "node:9001"
    assert made.engine.applied[KEY].plan.metadata.name == plan


def test_while_the_engine_is_away_nothing_is_lost() -> None:
    made = settled()
    before = made.outcome()
    made.engine.away = "gone"
    made.run(100)
    assert made.session("traffic").status.current_plan is not None
    assert made.session("traffic").status.url == "http://engine/default/traffic"
    made.engine.away = ""
    made.run(5)
    assert made.outcome() == before


def test_a_session_is_deleted_only_after_its_applications() -> None:
    made = settled()
    made.engine.removals_needed = 3
    made.delete(KEY)
    made.run(2)
    assert made.session("traffic").metadata.finalizers == (FINALIZER,)
    made.run(5)
    assert made.sessions == {}
    assert made.engine.applied == {}
    assert made.plans == {}
    assert made.profiles, "profiles stay for others"


def test_while_the_engine_is_away_a_deleted_session_waits_and_proposes_a_command() -> None:
    made = settled()
    made.engine.away = "http://ray:8265 does not answer."
    made.delete(KEY)
    made.run(30)
    ready = next(c for c in made.session("traffic").status.conditions if c.type == "Ready")
    assert ready.reason == "Deleting"
    assert "http://ray:8265 does not answer." in ready.message
    assert "finalizers" in ready.message
    made.engine.away = ""
    made.run(5)
    assert made.sessions == {}
