"""Simulated sessions: attainment, work of the workers, and complete accounting."""

import json
from typing import Any

import numpy as np
import pytest
from tests.builders import SessionBuilder, linear_profiles, pool, problem, profile, session
from tests.runtime.scheduling.plans import module, plan_of, stage

from partita_api.inferencesession import ArrivalProcess, Rate
from partita_planner.planning import plan
from partita_planner.problem import Planned
from partita_runtime.load.arrivals import RateSchedule
from partita_runtime.scheduling.events import DropReason, StageRef
from partita_runtime.simulation.arrivals import arrivals_at, arrivals_from_trace, arrivals_of
from partita_runtime.simulation.emulation.failures import WorkerFailure
from partita_runtime.simulation.emulation.noise import Delays, Noise
from partita_runtime.simulation.emulation.placement import WorkerPlacement, placements
from partita_runtime.simulation.report import SimulationReport
from partita_runtime.simulation.simulator import simulate, simulate_scheduling

POISSON = ArrivalProcess.POISSON


def traffic() -> SessionBuilder:
    """A detector, a crop, two classifiers and a join."""
    return (
        session("traffic")
        .slo(150)
        .rate(100)
        .model("detect")
        .function("crop", max_millis=2)
        .model("car")
        .model("person")
        .function("merge", max_millis=1)
        .edge("detect", "crop")
        .edge("crop", "car", mean="1.5", most=4)
        .edge("crop", "person", mean="0.5", most=2)
        .edge("car", "merge")
        .edge("person", "merge")
        .planner(margin_percent=20, headroom_percent=20)
    )


def planned(builder: SessionBuilder, **conditions: Any) -> SimulationReport:
    """Plan a session for two pools, and simulate it at its own rate."""
    models = [m.name for m in builder.modules if m.model]
    profiles = linear_profiles(models, {"fast": 1.0, "slow": 2.5})
    asked = problem(builder, [pool("fast").gpus(8), pool("slow").gpus(8).price("0.2")], profiles)
    outcome = plan(asked)
    assert isinstance(outcome, Planned)
    built = builder.build()
    settings: dict[str, Any] = {"arrivals": arrivals_of(built.spec.rate), "seconds": 5, "seed": 1, **conditions}
    bandwidth = {"fast": 1e10, "slow": 1e10}
    return simulate(built, outcome.plan, asked.profiles, bandwidth, **settings)


def test_samples_are_of_size_classes_by_their_shares() -> None:
    """The detector is called 500 times a second, and each of its answers has three samples."""
    built = session("s").slo(400).rate(500).model("find").sized("read", {16: "70%", 32: "30%"})
    built = built.edge("find", "read", mean="3", most=3)
    sizes = {"find": 16, "read-s16": 16, "read-s32": 32}
    profiles = [profile(name).linear(100 * size / 16, 1000) for name, size in sizes.items()]
    asked = problem(built, [pool("fast").gpus(8)], profiles)
    outcome = plan(asked)
    assert isinstance(outcome, Planned), outcome
    spec = built.build()
    arrivals = arrivals_of(spec.spec.rate)
    report = simulate(spec, outcome.plan, asked.profiles, {"fast": 1e10}, arrivals=arrivals, seconds=10, seed=1)

    assert report.attainment > 0.99
    samples = {
        name.partition("/")[0]: sum(size * count for size, count in sizes.items())
        for name, sizes in report.batch_sizes.items()
    }
    read = samples["read-s16"] + samples["read-s32"]
    assert read == pytest.approx(3 * samples["find"], rel=0.01)
    assert samples["read-s16"] / read == pytest.approx(0.7, abs=0.02)


def test_samples_of_a_padded_class_run_in_batches_of_the_larger_one() -> None:
    built = session("s").slo(100).rate(100).sized("read", {16: "70%", 32: "30%"})
    built = built.with_spec(objective={"type": "Throughput"})
    profiles = [profile(f"read-s{size}").linear(100 * size / 16, 1000) for size in (16, 32)]
    asked = problem(built, [pool("fast").gpus(1)], profiles)
    outcome = plan(asked)
    assert isinstance(outcome, Planned), outcome
    spec = built.build()
    arrivals = arrivals_of(spec.spec.rate)
    report = simulate(spec, outcome.plan, asked.profiles, {"fast": 1e10}, arrivals=arrivals, seconds=5, seed=1)

    assert report.attainment == 1
    assert report.offered > 400
    assert {name.partition("/")[0] for name in report.batch_sizes} == {"read-s32"}


def one_model(rate: float, seconds: float = 4, replicas: int = 4, **conditions: Any) -> SimulationReport:
    """l(b) = 1 b + 4 ms in batches of up to 8, with an SLO of 30 ms: at most 2666 requests/s on 4 workers."""
    scheduled = plan_of(module("m").pipeline(8, stage("gpu", replicas=replicas, alpha=1000, beta=4000)))
    spec = session("s").slo(30).model("m").build().spec
    return simulate_scheduling(spec, scheduled, arrivals_at(POISSON, rate), seconds, 1, **conditions)


def accounted(report: SimulationReport) -> int:
    return report.in_time + report.late + sum(report.dropped.values())


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(
            session("one").slo(60).rate(500).model("m").planner(margin_percent=20, headroom_percent=20), id="one model"
        ),
        pytest.param(
            session("two").slo(120).rate(200).chain("first", "second").planner(margin_percent=20, headroom_percent=20),
            id="two in a row",
        ),
        pytest.param(traffic(), id="fan-out and join"),
    ],
)
def test_planned_session_meets_its_slo_at_the_planned_rate(builder: SessionBuilder) -> None:
    report = planned(builder)

    assert report.attainment >= 0.99
    assert report.late == 0
    assert accounted(report) == report.offered
    assert report.p50_ms <= report.p99_ms <= builder.slo_ms


def test_partitioned_pipeline_with_a_contended_network_is_never_late() -> None:
    """Executions start and end as reserved: links and workers are shared, and no wait is unreserved."""
    scheduled = plan_of(
        module("m").pipeline(
            4,
            stage("fast", replicas=3, alpha=500, beta=1000, output_bytes=100_000),
            stage("slow", replicas=5, alpha=1000, beta=2000),
        ),
        bandwidth={"fast": 1e9, "slow": 1e9},
    )
    spec = session("s").slo(25).model("m").build().spec
    report = simulate_scheduling(
        spec,
        scheduled,
        arrivals_at(POISSON, 2000),
        4,
        1,
        placed=placements(scheduled, {"fast": 2, "slow": 2}),
        timeline=True,
    )

    assert report.late == 0
    assert report.in_time > 4000
    assert DropReason.OVERLOAD in report.dropped
    assert {execution.stage for execution in report.timeline} == {0, 1}


def test_varying_executions_cost_no_capacity() -> None:
    """At 60 % load, both stages with 30 % of spread:

    GPUs are reserved for the expected time, not for the worst case.
    """
    scheduled = plan_of(
        module("m").pipeline(
            4, stage("fast", replicas=3, alpha=500, beta=1000), stage("slow", replicas=5, alpha=1000, beta=2000)
        )
    )
    spec = session("s").slo(40).model("m").build().spec
    report = simulate_scheduling(spec, scheduled, arrivals_at(POISSON, 2000), 4, 1, noise=Noise(spread=0.3))

    assert report.attainment >= 0.99
    assert report.goodput > 1950


def test_same_seed_gives_the_same_report() -> None:
    noisy = {"noise": Noise(spread=0.1, error_rate=0.01), "timeline": True}

    assert planned(traffic(), **noisy) == planned(traffic(), **noisy)
    assert planned(traffic(), **noisy) != planned(traffic(), seed=2, **noisy)


def test_fan_out_follows_the_edges() -> None:
    report = planned(traffic(), seconds=20)

    cars, persons = (
        sum(size * batches for size, batches in sizes.items())
        for name in ("car", "person")
        for key, sizes in report.batch_sizes.items()
        if key.startswith(f"{name}/")
    )
    assert cars / report.offered == pytest.approx(1.5, rel=0.05)
    assert persons / report.offered == pytest.approx(0.5, rel=0.1)


def test_calls_that_were_one_batch_are_queries_of_their_own_behind_it() -> None:
    built = session("s").slo(100).model("detect").model("crop").edge("detect", "crop", mean="2", most=2)
    plan = plan_of(
        module("detect", budget_micros=40_000).pipeline(4, stage("gpu")),
        module("crop", budget_micros=40_000).pipeline(8, stage("gpu", replicas=4)),
    )
    queries = plan.modules[1].model_copy(update={"policy": "Elsa"})
    plan = plan.model_copy(update={"modules": (plan.modules[0], queries)})
    report = simulate_scheduling(built.build().spec, plan, lambda *_: np.array([0.1] * 3), 1, seed=1)

    assert report.batch_sizes == {"detect/a": {3: 1}, "crop/a": {2: 3}}


def test_conditions_send_their_share_of_the_answers() -> None:
    built = session("s").slo(120).rate(200).planner(margin_percent=20, headroom_percent=20)
    built = built.chain("classifier").model("expert").function("join", max_millis=2)
    when = "outputs.label[0] == 1"
    built = built.edge("classifier", "expert", when=when, share="25%")
    built = built.edge("classifier", "join").edge("expert", "join", when=when, share="50%")
    report = planned(built, seconds=20)

    experts = sum(size * batches for size, batches in report.batch_sizes["expert/p0"].items())
    assert experts / report.offered == pytest.approx(0.25, rel=0.1)
    assert report.attainment >= 0.99


@pytest.mark.parametrize(
    ("conditions", "want_attainment"),
    [
        pytest.param({"noise": Noise(spread=0.05)}, 0.99, id="noise"),
        pytest.param({"noise": Noise(bias=1.3)}, 0.97, id="profile too optimistic"),
        pytest.param({"noise": Noise(bias=0.7)}, 1.0, id="profile too pessimistic"),
        pytest.param({"delays": Delays(2000, 50)}, 0.99, id="slow control plane"),
        pytest.param({"noise": Noise(error_rate=0.01)}, 0.99, id="failing executions"),
        pytest.param({"failures": [WorkerFailure("m/a/0/0", 1.0, 0.5)]}, 0.99, id="worker lost and restored"),
    ],
)
def test_requests_are_answered_under_these_conditions(conditions: dict[str, Any], want_attainment: float) -> None:
    report = one_model(1200, **conditions)

    assert report.attainment >= want_attainment
    assert accounted(report) == report.offered


def test_all_requests_are_dropped_while_all_workers_are_lost() -> None:
    failures = [WorkerFailure(f"m/a/0/{replica}", 1.0, 1.0) for replica in range(4)]
    report = one_model(400, failures=failures)

    assert report.dropped[DropReason.NO_WORKERS] == pytest.approx(400, rel=0.15)
    assert report.attainment == pytest.approx(0.75, abs=0.03)


def test_low_load_leaves_the_highest_workers_idle() -> None:
    report = one_model(600)

    idle = [report.idle_by_worker[f"m/a/0/{replica}"] for replica in range(4)]
    assert idle[3] > 0.95
    assert idle[0] < 0.5
    assert report.idle_by_pool["gpu"] == pytest.approx(sum(idle) / 4)


def test_changing_rate_and_trace() -> None:
    scheduled = plan_of(module("m").pipeline(8, stage("gpu", replicas=4)))
    spec = session("s").slo(30).model("m").build().spec
    steps = simulate_scheduling(spec, scheduled, arrivals_at(POISSON, RateSchedule.parse("0:100,2:1000")), 4, 1)
    trace = simulate_scheduling(spec, scheduled, arrivals_from_trace([0.01, 0.03]), 4, 1)

    assert steps.offered == pytest.approx(2200, rel=0.1)
    assert trace.offered == pytest.approx(200, abs=2)
    assert trace.attainment == 1


def test_gamma_arrivals_of_a_session_are_burstier() -> None:
    declared = Rate(requests_per_second=2300, arrival=ArrivalProcess.GAMMA, gamma_shape="0.1")
    scheduled = plan_of(module("m").pipeline(8, stage("gpu", replicas=4, alpha=1000, beta=4000)))
    spec = session("s").slo(30).model("m").build().spec
    bursty = simulate_scheduling(spec, scheduled, arrivals_of(declared), 4, 1)

    assert bursty.attainment < one_model(2300).attainment


@pytest.mark.parametrize(
    ("per_node", "want_nodes"),
    [
        pytest.param({}, ["gpu-0", "gpu-0", "gpu-1", "big-0", "big-1"], id="one accelerator in a node"),
        pytest.param({"gpu": 2, "big": 8}, ["gpu-0", "gpu-0", "gpu-0", "big-0", "big-0"], id="several"),
    ],
)
def test_placement(per_node: dict[str, int], want_nodes: list[str]) -> None:
    scheduled = plan_of(module("m").pipeline(1, stage("gpu", replicas=3), stage("big", replicas=2)))
    shared = scheduled.modules[0].pipelines[0].stages[0].model_copy(update={"vgpu_divisor": 2})
    stages = (shared, scheduled.modules[0].pipelines[0].stages[1])
    pipeline = scheduled.modules[0].pipelines[0].model_copy(update={"stages": stages})
    halves = scheduled.model_copy(
        update={"modules": (scheduled.modules[0].model_copy(update={"pipelines": (pipeline,)}),)}
    )

    assert [placement.node for placement in placements(halves, per_node)] == want_nodes


def test_shared_workers_serve_several_models() -> None:
    """Two models of one session on the same two workers."""
    scheduled = plan_of(
        module("m").pipeline(4, stage("gpu", alpha=500, beta=2000)),
        module("n").pipeline(4, stage("gpu", alpha=500, beta=2000)),
    )
    both = [WorkerPlacement(StageRef(name, "a", 0), f"w{i}", f"n{i}") for name in ("m", "n") for i in range(2)]
    spec = session("s").slo(30).model("m").model("n").build().spec
    report = simulate_scheduling(spec, scheduled, arrivals_at(POISSON, 400), 3, 1, placed=both)

    assert report.attainment >= 0.99
    assert set(report.idle_by_worker) == {"w0", "w1"}


def test_progress_is_reported() -> None:
    told: list[float] = []
    one_model(500, progress=told.append)

    assert told == sorted(told)
    assert len(told) > 50
    assert 0 < told[0] <= told[-1] <= 1


def test_report_as_json_and_rows() -> None:
    report = one_model(3500, timeline=True)
    document = json.loads(json.dumps(report.to_json()))

    assert document["attainment"] == report.attainment
    assert document["goodput"] == pytest.approx(2666, rel=0.05)
    assert document["timeline"][0]["worker"] == "m/a/0/0"
    rows = dict(report.rows())
    assert rows["attainment"] == f"{report.attainment:.2%}"
    assert rows["dropped: Overload"] == str(report.dropped[DropReason.OVERLOAD])


@pytest.mark.parametrize(
    ("conditions", "want_message"),
    [
        pytest.param({"seconds": 0}, "more than 0 s", id="no time"),
        pytest.param({"failures": [WorkerFailure("m/a/0/9", 1.0)]}, "no workers", id="unknown worker"),
    ],
)
def test_invalid_arguments(conditions: dict[str, Any], want_message: str) -> None:
    with pytest.raises(ValueError, match=want_message):
        one_model(100, **conditions)


@pytest.mark.parametrize("fields", [{"spread": -1}, {"bias": 0}, {"error_rate": 2}], ids=str)
def test_invalid_noise(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="needs spread"):
        Noise(**fields)


def test_missing_profile_is_named() -> None:
    builder = session("one").slo(60).rate(50).model("m")
    profiles = [profile("m").on("fast")]
    outcome = plan(problem(builder, [pool("fast")], profiles))
    assert isinstance(outcome, Planned)

    with pytest.raises(KeyError, match="fast"):
        simulate(builder.build(), outcome.plan, {}, {}, arrivals_at(POISSON, 50), 1, 1)
