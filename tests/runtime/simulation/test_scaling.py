"""The autoscaler in the loop: replicas follow the load, after their start-up, within their bounds."""

from typing import Any

import pytest
from tests.builders import session
from tests.runtime.autoscaling.load_model import plan_of as pipeline_plan
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess
from partita_api.session.autoscaling import Autoscaling
from partita_runtime.load.arrivals import RateSchedule
from partita_runtime.simulation.arrivals import arrivals_at
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.scaling import Scaling
from partita_runtime.simulation.simulator import simulate_scheduling
from partita_runtime.simulation.streams import RequestStream, simulate_streams

SETTINGS = {"windowSeconds": 1, "coolDownSeconds": 2, "idleFractionThreshold": "20%"}
LATENCY = {"alpha": 10_000, "beta": 40_000}
"""8 requests in 120 ms: 67 requests/s per replica."""


def scaling(replicas: int = 2, free: int = 10, start_up: float = 1.0, **settings: object) -> Scaling:
    plan = pipeline_plan({"m": {"a": [("gpu", 1, replicas, 120_000)]}}, batch_size=8).spec
    return Scaling(plan, Autoscaling.model_validate(SETTINGS | settings), {"gpu": replicas + free}, start_up)


def run(load: str, desired: Scaling | None, seconds: float = 16, **conditions: Any) -> SimulationReport:
    replicas = desired.plan.modules[0].pipelines[0].stages[0].replicas if desired else 2
    scheduled = plan_of(module("m").pipeline(8, stage("gpu", replicas=replicas, **LATENCY)))
    arrivals = arrivals_at(ArrivalProcess.POISSON, RateSchedule.parse(load))
    spec = session("s").slo(400).model("m").build().spec
    return simulate_scheduling(spec, scheduled, arrivals, seconds, 1, scaling=desired, **conditions)


def held(report: SimulationReport) -> list[int]:
    return [step.gpus["gpu"] for step in report.scaling]


def test_replicas_follow_a_load_that_rises_and_falls() -> None:
    report = run("0:70,4:300,10:30", scaling())

    assert held(report)[0] == 2
    assert 5 <= max(held(report)) <= 8, "300 requests/s take 4.5 replicas, or 5.6 with a fifth of them idle"
    assert held(report)[-1] == 1
    assert report.in_time + report.late + sum(report.dropped.values()) == report.offered
    assert report.attainment > run("0:70,4:300,10:30", None).attainment + 0.2


def test_removed_replicas_lose_no_requests() -> None:
    report = run("20", scaling(replicas=8))

    assert held(report)[0] == 8
    assert held(report)[-1] == 1
    assert report.attainment == 1
    assert report.mean_gpus["gpu"] == pytest.approx(sum(held(report)[:-1]) / 16)


def test_replicas_start_before_a_rising_load_needs_them() -> None:
    rises = ",".join(f"{at}:{120 + 8 * max(0, at - 20)}" for at in range(60))
    ahead, behind = (
        run(rises, scaling(replicas=3, free=20, windowSeconds=5, coolDownSeconds=5, lookAheadSeconds=look), seconds=60)
        for look in (20, 0)
    )
    assert 1 - ahead.attainment < 0.5 * (1 - behind.attainment)
    assert ahead.mean_gpus["gpu"] < 1.3 * behind.mean_gpus["gpu"]


def test_looking_ahead_costs_nothing_while_the_load_is_steady() -> None:
    ahead, behind = (
        run("480", scaling(replicas=8, windowSeconds=5, coolDownSeconds=5, lookAheadSeconds=look), seconds=60)
        for look in (20, 0)
    )
    assert ahead.mean_gpus == behind.mean_gpus


def test_a_session_without_requests_scales_to_zero_and_holds_the_next_ones() -> None:
    zero = {"afterSeconds": 5, "holdSeconds": 60}
    report = run("0:20,4:0,20:60", scaling(replicas=3, start_up=4.0, scaleToZero=zero), seconds=40)

    steps = {step.at_seconds: step for step in report.scaling}
    at_zero = [at for at, step in steps.items() if not step.gpus["gpu"]]
    assert 9 <= min(at_zero) <= 11, "five seconds after the last request"
    assert 20 <= max(at_zero) <= 22, "one check after the next request"
    assert all(steps[at].ready == 0 for at in at_zero[1:])
    assert any("held: the session scales from zero" in step.reason for step in report.scaling)
    assert report.held >= 60 * 4, "until its replicas have started, four seconds later"
    assert 1 < report.held_seconds / report.held < 6
    assert report.offered == report.in_time + report.late + sum(report.dropped.values())
    assert report.attainment > 0.98
    assert report.p99_ms <= 400, "the held time does not count in the latency"
    assert run("0:20,4:0,20:60", scaling(replicas=3, start_up=4.0, scaleToZero=zero), seconds=40) == report


def test_requests_without_a_replica_in_time_are_refused() -> None:
    zero = {"afterSeconds": 5, "holdSeconds": 1}
    report = run("0:20,4:0,20:60", scaling(replicas=3, start_up=6.0, scaleToZero=zero), seconds=30)

    assert report.dropped["NoWorkers"] >= 60 * 4
    assert report.offered == report.in_time + report.late + sum(report.dropped.values())


def test_a_replica_takes_no_batch_before_it_has_started() -> None:
    report = run("200", scaling(start_up=3.0), seconds=8)

    assert held(report)[:3] == [2, 3, 3], "the overload requests more at once, and these hold their GPUs"
    assert [step.ready for step in report.scaling[:5]] == [2, 2, 2, 2, 3]
    assert "still starting" in report.scaling[3].reason


@pytest.mark.parametrize(
    ("load", "desired", "want_held"),
    [
        pytest.param("600", scaling(free=1), {2, 3}, id="at most the free GPUs"),
        pytest.param("600", scaling(maxReplicas=4), {2, 4}, id="at most maxReplicas"),
        pytest.param("600", scaling(mode="Advisory"), {2}, id="advisory mode"),
        pytest.param("1", scaling(replicas=4), {4, 1}, id="at least one"),
    ],
)
def test_replicas_stay_within_bounds(load: str, desired: Scaling, want_held: set[int]) -> None:
    assert set(held(run(load, desired, seconds=8))) == want_held


def test_streams_share_the_accelerators_that_are_free() -> None:
    shapes = {name: {"a": [("gpu", 1, 1, 120_000)]} for name in ("m", "n")}
    scheduled = plan_of(*(module(name).pipeline(8, stage("gpu", **LATENCY)) for name in shapes))
    desired = Scaling(
        pipeline_plan(shapes, batch_size=8).spec, Autoscaling.model_validate(SETTINGS), {"gpu": 5}, start_up_seconds=1
    )
    loads = {"m": 30, "n": 150}
    streams = [RequestStream(name, arrivals_at(ArrivalProcess.POISSON, rate), 400) for name, rate in loads.items()]
    reports = simulate_streams(scheduled, streams, 12, 1, scaling=desired)

    assert reports["m"].scaling == reports["n"].scaling
    assert 4 <= max(held(reports["n"])) <= 5
    assert reports["m"].attainment > 0.99


def test_same_seed_gives_the_same_steps() -> None:
    assert run("0:70,4:300", scaling(), seconds=8) == run("0:70,4:300", scaling(), seconds=8)


@pytest.mark.parametrize(
    ("make", "want_message"),
    [
        pytest.param(lambda: scaling(start_up=-1), "0 s or more to start", id="start-up"),
        pytest.param(lambda: scaling(free=-1), "may use only", id="fewer accelerators than the plan has"),
    ],
)
def test_invalid_scaling(make: Any, want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        make()
