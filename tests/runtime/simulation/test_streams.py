"""Several models on shared workers, each with its own report."""

import numpy as np
import pytest
from tests.runtime.scheduling.plans import module, plan_of, refs, stage

from partita_api.inferencesession import ArrivalProcess
from partita_runtime.scheduling.policies.registry import POLICIES
from partita_runtime.simulation.arrivals import arrivals_at, arrivals_from_trace
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.streams import RequestStream, simulate_streams

POISSON = ArrivalProcess.POISSON


def shared(policy: str = "Deferred", replicas: int = 2) -> tuple:
    plan = plan_of(
        module("m").pipeline(8, stage("gpu", replicas=replicas, alpha=500, beta=4000)),
        module("n").pipeline(4, stage("gpu", replicas=replicas, alpha=1000, beta=5000)),
        policy=policy,
    )
    return plan, [WorkerPlacement(ref, f"gpu-{i}", f"node-{i}") for ref, _ in refs(plan) for i in range(replicas)]


@pytest.mark.parametrize("policy", POLICIES)
def test_each_model_has_a_report(policy: str) -> None:
    plan, placed = shared(policy)
    streams = [RequestStream("m", arrivals_at(POISSON, 150), 40), RequestStream("n", arrivals_at(POISSON, 50), 60)]
    reports = simulate_streams(plan, streams, 2, seed=3, placed=placed, timeline=True)

    for name, rate in (("m", 150), ("n", 50)):
        report = reports[name]
        assert report.offered == pytest.approx(2 * rate, rel=0.3)
        assert report.in_time + report.late + sum(report.dropped.values()) == report.offered
        assert set(report.batch_sizes) == {f"{name}/a"}
    ends: dict[str, int] = {}
    for execution in sorted(reports["m"].timeline, key=lambda execution: execution.start_micros):
        assert execution.start_micros >= ends.get(execution.worker, 0), "a vGPU runs one batch at a time"
        ends[execution.worker] = execution.end_micros


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_reports(policy: str) -> None:
    plan, placed = shared(policy)
    streams = [RequestStream("m", arrivals_at(POISSON, 400), 40), RequestStream("n", arrivals_at(POISSON, 150), 60)]

    assert simulate_streams(plan, streams, 1, 3, placed=placed) == simulate_streams(plan, streams, 1, 3, placed=placed)


def test_preempted_executions_end_early_and_count_as_work() -> None:
    plan, placed = shared("Shepherd", replicas=1)
    stream = RequestStream("m", arrivals_at(POISSON, 700), 40)
    report = simulate_streams(plan, [stream], 2, seed=1, placed=placed, timeline=True)["m"]

    assert any(e.end_micros - e.start_micros < 500 * e.batch_size + 4000 for e in report.timeline)
    busy = sum(e.end_micros - e.start_micros for e in report.timeline) / 2e6
    assert report.idle_by_worker["gpu-0"] == pytest.approx(1 - min(1.0, busy), abs=0.001)
    assert report.in_time + report.late + sum(report.dropped.values()) == report.offered


def test_a_query_is_in_time_if_all_its_samples_are() -> None:
    plan = plan_of(module("m").pipeline(4, stage("gpu", alpha=1000, beta=1000)), policy="Fifs")
    sizes = np.array([1, 4, 3])
    stream = RequestStream("m", arrivals_from_trace([0.001, 0.1, 0.1, 10]), 4, lambda count, _: sizes[:count])
    report = simulate_streams(plan, [stream], 1, seed=0)["m"]

    assert (report.offered, report.in_time, report.late) == (3, 2, 1)
    assert report.batch_sizes == {"m/a": {1: 1, 3: 1, 4: 1}}


@pytest.mark.parametrize("policy", ["Elsa", "Fifs"])
def test_queries_that_arrive_at_the_same_time_keep_apart(policy: str) -> None:
    plan = plan_of(module("m").pipeline(4, stage("gpu")), policy=policy)
    stream = RequestStream("m", lambda *_: np.array([0.1, 0.1]), 40, lambda *_: np.array([1, 3]))
    report = simulate_streams(plan, [stream], 1, seed=0)["m"]

    assert report.batch_sizes == {"m/a": {1: 1, 3: 1}}


def test_models_that_share_links_may_be_evaluated_twice_at_one_time() -> None:
    """A batch of one model delays the other on the network, and both are evaluated again before a dispatch."""
    plan = plan_of(
        module("m").pipeline(
            1,
            stage("fast", replicas=2, alpha=1000, beta=1000, output_bytes=100_000),
            stage("slow", replicas=2, alpha=500, beta=2000),
        ),
        module("n").pipeline(
            1,
            stage("fast", replicas=3, alpha=1000, beta=1000, output_bytes=20_000),
            stage("slow", replicas=2, alpha=500, beta=2000),
        ),
        bandwidth={"fast": 1e9, "slow": 1e9},
    )
    streams = [
        RequestStream(name, arrivals_at(ArrivalProcess.GAMMA, rate, 0.25), slo_ms)
        for name, rate, slo_ms in (("m", 600, 30), ("n", 1200, 20))
    ]
    reports = simulate_streams(plan, streams, 0.3, 1, placed=placements(plan, {"fast": 8, "slow": 8}))

    for report in reports.values():
        assert report.in_time + report.late + sum(report.dropped.values()) == report.offered > 100
