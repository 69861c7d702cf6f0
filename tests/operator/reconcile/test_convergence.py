"""After a kill of the operator in any state, and after damage by hand, the cluster reaches the same final state."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import pool, session
from tests.operator.reconcile.simulated import OperatorKilledError, SimulatedCluster

from partita_api.inferencesession import InferenceSessionStatus
from partita_api.meta import FINALIZER
from partita_operator.ports import RunPhase

TWO_MODELS = session("traffic").chain("detector", "classifier").rate(150)
KEY = "default/traffic"

Story = Callable[[SimulatedCluster], None]


def two_pools() -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.add(pool("fast").gpus(4).build(), pool("slow").gpus(8).build(), TWO_MODELS.build())
    return cluster


def settled() -> SimulatedCluster:
    cluster = two_pools()
    cluster.run(20)
    return cluster


def first_roll_out(cluster: SimulatedCluster) -> None:
    cluster.run(20)


def failing_run(cluster: SimulatedCluster) -> None:
    cluster.runner.script["slow"] = (RunPhase.FAILED, RunPhase.SUCCEEDED)
    cluster.run(40)


def change_of_rate(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.add(TWO_MODELS.rate(250).build())
    cluster.run(20)


def deletion(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.delete(KEY)
    cluster.run(10)


def second_session(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.add(session("other").model("detector").rate(200).build())
    cluster.run(20)


def higher_priority(cluster: SimulatedCluster) -> None:
    cluster.run(20)
    cluster.add(session("urgent").model("detector").rate(1100).with_spec(priority=10, pools=("slow", "fast")).build())
    cluster.add(session("other").model("detector").rate(300).with_spec(pools=("slow",)).build())
    cluster.run(20)
    cluster.delete("default/urgent")
    cluster.run(20)


def catch_up(cluster: SimulatedCluster, undisturbed: SimulatedCluster) -> None:
    """The manifests at the end of the story."""
    cluster.run(20)
    for key in cluster.sessions:
        if key not in undisturbed.sessions:
            cluster.delete(key)
    cluster.add(*undisturbed.sessions.values())


@pytest.mark.parametrize(
    "story",
    [first_roll_out, failing_run, change_of_rate, deletion, second_session, higher_priority],
    ids=lambda story: story.__name__.replace("_", " "),
)
def test_a_kill_before_any_write_does_not_change_the_final_state(story: Story) -> None:
    undisturbed = two_pools()
    story(undisturbed)
    undisturbed.run(10)
    want = undisturbed.outcome()
    assert undisturbed.writes > 10

    for writes in range(undisturbed.writes):
        cluster = two_pools()
        cluster.writes_before_death = writes
        try:
            story(cluster)
            cluster.run(10)
        except OperatorKilledError:
            cluster.restart()
            catch_up(cluster, undisturbed)
            cluster.run(50)

        assert cluster.outcome() == want, f"killed before write {writes}"
        assert sorted(cluster.runner.started) == sorted(undisturbed.runner.started), "no run is missing or made twice"
        assert len(cluster.made_plans) <= len(undisturbed.made_plans), "no plan is made twice"


def plan_deleted(cluster: SimulatedCluster) -> None:
    cluster.plans.clear()


def profile_deleted(cluster: SimulatedCluster) -> None:
    del cluster.profiles[min(cluster.profiles)]


def application_lost(cluster: SimulatedCluster) -> None:
    cluster.engine.applied.clear()


def status_lost(cluster: SimulatedCluster) -> None:
    cluster.sessions[KEY] = cluster.sessions[KEY].model_copy(update={"status": InferenceSessionStatus()})


def finalizer_removed(cluster: SimulatedCluster) -> None:
    found = cluster.sessions[KEY]
    assert found.metadata.finalizers == (FINALIZER,)
    meta = found.metadata.model_copy(update={"finalizers": ()})
    cluster.sessions[KEY] = found.model_copy(update={"metadata": meta})


def replicas_changed(cluster: SimulatedCluster) -> None:
    applied = cluster.engine.applied[KEY]
    object.__setattr__(applied, "targets", applied.targets[:1])


def stale_plan_left_over(cluster: SimulatedCluster) -> None:
    (plan,) = cluster.plans.values()
    stale = plan.metadata.model_copy(update={"name": "traffic-00000000"})
    spec = plan.spec.model_copy(update={"inputs_digest": "0" * 16})
    cluster.plans["traffic-00000000"] = plan.model_copy(update={"metadata": stale, "spec": spec})


def stale_run_left_over(cluster: SimulatedCluster) -> None:
    """A run in the status whose profile already exists."""
    cluster.runner.script["fast"] = (RunPhase.RUNNING,)
    profile_deleted(cluster)
    profile_key = next(p for p in [*cluster.profiles])
    del cluster.profiles[profile_key]
    cluster.run(3)
    cluster.profiles |= {("default", k): settled().profiles["default", k] for _, k in settled().profiles}


@pytest.mark.parametrize("restarted", [False, True], ids=["operator running", "operator restarted"])
@pytest.mark.parametrize(
    "damage",
    [
        plan_deleted,
        profile_deleted,
        application_lost,
        status_lost,
        finalizer_removed,
        replicas_changed,
        stale_plan_left_over,
        stale_run_left_over,
    ],
    ids=lambda damage: damage.__name__.replace("_", " "),
)
def test_damage_is_repaired(damage: Story, restarted: bool) -> None:
    cluster = settled()
    want = cluster.outcome()

    damage(cluster)
    assert cluster.outcome() != want or damage is finalizer_removed
    if restarted:
        cluster.restart()
    cluster.run(60)

    assert cluster.outcome() == want
    assert cluster.sessions[KEY].metadata.finalizers == (FINALIZER,)


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365], ids=["back", "ahead", "a year ahead"])
@pytest.mark.parametrize("seconds", [1, 3, 6, 30], ids=lambda s: f"after {s} s")
def test_a_clock_that_jumps_does_not_change_the_final_state(hours: int, seconds: int) -> None:
    undisturbed, cluster = settled(), two_pools()
    cluster.run(seconds)
    cluster.now += timedelta(hours=hours)
    cluster.run(40)
    assert cluster.outcome() == undisturbed.outcome()
    assert sorted(cluster.runner.started) == sorted(undisturbed.runner.started), "no run is given up because of it"


USERS_AND_FAULTS = st.lists(
    st.one_of(
        st.tuples(st.just("rate"), st.sampled_from([50, 150, 250, 350])),
        st.tuples(st.just("slo"), st.sampled_from([5, 100, 200])),
        st.tuples(st.just("fast pool"), st.sampled_from([4, 6, 8])),
        st.tuples(st.just("engine away"), st.integers(1, 20)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("damage"), st.sampled_from([profile_deleted, application_lost])),
        st.tuples(st.just("wait"), st.integers(1, 15)),
    ),
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(USERS_AND_FAULTS)
def test_after_any_events_serving_continues_and_the_manifests_determine_the_final_state(
    steps: list[tuple[str, object]],
) -> None:
    cluster = settled()
    desired = TWO_MODELS
    fast = pool("fast").gpus(4)
    for what, value in steps:
        match what, value:
            case "rate", int(rate):
                desired = desired.rate(rate)
            case "slo", int(millis):
                desired = desired.slo(millis)
            case "fast pool", int(count):
                fast = fast.gpus(count)
            case "engine away", int(seconds):
                cluster.engine.away = "The Ray dashboard does not answer."
                cluster.run(seconds)
                cluster.engine.away = ""
            case "restart", _:
                cluster.restart()
            case "damage", damage if callable(damage):
                if cluster.profiles:
                    damage(cluster)
            case "wait", int(seconds):
                cluster.run(seconds)
        cluster.add(desired.build(), fast.build())
        cluster.look_once()
    cluster.run(50)

    assert cluster.engine.applied, "the current plan keeps serving"
    if desired.slo_ms >= 10:
        fresh = SimulatedCluster()
        fresh.add(fast.build(), pool("slow").gpus(8).build(), desired.build())
        fresh.run(15)
        active, want = (c.engine.applied[KEY].plan.spec.modules for c in (cluster, fresh))
        assert active == want
        assert cluster.condition("traffic", "Ready") == ("True", "Serving")
    else:
        assert cluster.condition("traffic", "Ready") == ("False", "SLOTooTight")
