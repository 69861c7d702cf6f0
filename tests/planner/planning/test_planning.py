"""From a problem to a plan, or to the reason why there is none."""

from dataclasses import replace

import pytest
from tests.builders import SessionBuilder, linear_profiles, pool, problem, profile, session
from tests.planner.problems.planned import planned, refused

from partita_api.pipelineplan import PipelinePlanSpec, PooledPipeline
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem

TRAFFIC = (
    session("traffic")
    .slo(200)
    .rate(100)
    .model("detector")
    .function("crop", 5)
    .model("car")
    .model("person")
    .edge("detector", "crop")
    .edge("crop", "car", mean="1.5")
    .edge("crop", "person", mean="0.5")
    .planner(margin_percent=20, headroom_percent=10)
)
MODELS = ("detector", "car", "person")
ONE = session("one").slo(50).rate(100).model("m")


def traffic(built: SessionBuilder = TRAFFIC, gpus: int = 4) -> PlanningProblem:
    pools = [pool("fast").gpus(gpus).price("2"), pool("slow").gpus(gpus).price("0.7")]
    return problem(built, pools, linear_profiles(MODELS, {"fast": 1.0, "slow": 2.5}))


def test_plan_of_a_dag() -> None:
    found = planned(traffic())

    modules = {m.name: m for m in found.modules}
    assert [float(modules[name].rate) for name in ("detector", "crop", "car", "person")] == [100, 100, 150, 50]
    assert modules["crop"].budget_micros == 5000
    assert modules["crop"].pipelines == ()
    rounded_down = 2
    assert modules["detector"].budget_micros + 5000 + modules["car"].budget_micros >= 160_000 - rounded_down
    assert float(found.throughput) * 0.9 >= 100
    assert found.solution.gap.value == 0
    assert {(ref.module, ref.pool) for ref in found.profiles} <= {(m, p) for m in MODELS for p in ("fast", "slow")}
    assert "slowest path, detector -> crop ->" in found.solution.explanation


def test_endpoint_keeps_its_time_of_the_slo_and_has_no_pipeline() -> None:
    built = session("s").slo(200).rate(100).model("detector").endpoint("plates", 60).edge("detector", "plates")
    pools = [pool("fast").gpus(4).price("2")]
    made = problem(built.planner(margin_percent=20), pools, linear_profiles(("detector",), {"fast": 1.0}))
    detector, plates = planned(made).modules

    assert (detector.budget_micros, plates.budget_micros, plates.pipelines) == (100_000, 60_000, ())


def test_same_problem_gives_the_same_plan() -> None:
    first, second = planned(traffic()), planned(traffic())

    assert first.modules == second.modules
    assert first.inputs_digest == second.inputs_digest


def test_baseline_is_there_to_compare_with() -> None:
    (baseline,) = planned(traffic()).alternatives

    assert (baseline.strategy, baseline.feasible) == ("no-partitioning", True)


def pipelines(found: PipelinePlanSpec) -> list[PooledPipeline]:
    return [pipeline for module in found.modules for pipeline in module.pipelines]


def test_spread_needs_no_residual_machine() -> None:
    """Harpagon, Table II: M3 at 198 req/s within 1 s costs 4.95 when batches of 32 go to all machines in turn.

    The paper's best, with 2 dummy requests a second, is 5.0.
    """
    m3 = profile("m").blocks(1).batches(2, 8, 32).measured({1: [[100_000.0, 250_000.0, 800_000.0]]})
    desired = session("s").slo(1000).rate(198).model("m").planner(max_batch_size=32)
    desired = desired.with_spec(objective={"type": "Cost", "cost_model": "Occupancy"})

    found = planned(problem(desired, [pool("fast").gpus(10)], [m3]))

    (pipeline,) = pipelines(found)
    assert (pipeline.batch_size, pipeline.stages[0].replicas) == (32, 5)
    assert float(found.cost.occupancy_per_hour) == pytest.approx(4.95)


def test_partitioning_meets_an_slo_that_one_class_alone_serves_dearly() -> None:
    """The first half runs as fast on the cheap pool, the second does not."""
    times = {"fast": [[2000.0], [2000.0]], "slow": [[2000.0], [20_000.0]]}
    profiles = [profile("m").on(name).batches(1).measured({1: rows}) for name, rows in times.items()]
    pools = [pool("fast").price("10"), pool("slow").price("1")]

    found = planned(problem(session("s").slo(10).rate(400).model("m"), pools, profiles))

    (pipeline,) = pipelines(found)
    assert [stage.pool for stage in pipeline.stages] == ["slow", "fast"]
    assert float(found.cost.allocated_per_hour) == 11
    assert "81.8% more than the plan" in found.alternatives[0].summary


def test_throughput_uses_whole_gpus() -> None:
    desired = TRAFFIC.with_spec(objective={"type": "Throughput"})

    found = planned(traffic(desired))

    assert float(found.solution.value) == pytest.approx(float(found.throughput))
    assert float(found.modules[0].rate) == pytest.approx(0.9 * float(found.throughput), rel=1e-5)
    assert sum(found.gpus().values()) <= 8


@pytest.mark.parametrize("objective", ["Cost", "Throughput"])
def test_no_partitioning_has_one_stage_on_whole_gpus(objective: str) -> None:
    desired = ONE.planner(strategy="no-partitioning").with_spec(objective={"type": objective})

    found = planned(problem(desired, [pool("fast").mps(4)], [profile("m").divisors(1, 2, 4)]))

    assert found.solution.strategy == "no-partitioning"
    assert all(len(p.stages) == 1 and p.stages[0].vgpu_divisor == 1 for p in pipelines(found))


@pytest.mark.parametrize(
    ("asked", "want_reason", "want_message"),
    [
        pytest.param(
            problem(ONE.model("m"), [pool("fast")], [profile("m")]),
            NoPlanReason.INVALID_SESSION,
            "module 'm' is defined 2 times",
            id="broken DAG",
        ),
        pytest.param(
            problem(ONE.planner(strategy="magic"), [pool("fast")], [profile("m")]),
            NoPlanReason.INVALID_SESSION,
            "planner.strategy 'magic' is not known: choose one of ",
            id="unknown strategy",
        ),
        pytest.param(
            problem(ONE, [pool("fast")], [profile("m")], rate=0.0),
            NoPlanReason.INVALID_SESSION,
            "rate to plan for is 0 requests/s: give a finite rate above 0",
            id="no rate",
        ),
        pytest.param(
            problem(ONE.planner(max_batch_size=2), [pool("fast")], [profile("m").batches(4, 8)]),
            NoPlanReason.INVALID_SESSION,
            "profiled for batches of 4 and more, but planner.maxBatchSize is 2",
            id="no batch size that was measured",
        ),
        pytest.param(
            problem(ONE, [pool("fast").gpus(0)], [profile("m")]),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            "its pools (fast) have no free accelerator",
            id="no GPU",
        ),
        pytest.param(
            problem(ONE, [pool("fast"), pool("slow").gpus(0)], [profile("m").on("slow")]),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            "'m' has no profile on any pool with a free accelerator (fast)",
            id="no GPU of the only pool with a profile",
        ),
        pytest.param(
            problem(ONE, [pool("fast"), pool("slow").gpus(0)], []),
            NoPlanReason.NO_POOLS,
            "'m' has no profile on any pool with a free accelerator (fast)",
            id="no profile, and no GPU of another pool",
        ),
        pytest.param(problem(ONE, [], []), NoPlanReason.NO_POOLS, "it has no pool", id="no pool"),
        pytest.param(
            problem(ONE, [pool("fast")], [profile("m").on("slow")]),
            NoPlanReason.NO_POOLS,
            "'m' has no profile on any pool with a free accelerator (fast)",
            id="no profile",
        ),
        pytest.param(
            problem(ONE, [pool("fast").memory("1")], [profile("m").memory(8, 8)]),
            NoPlanReason.NO_POOLS,
            "'m' does not fit the memory of any pool (fast) in 2 stages",
            id="no memory",
        ),
    ],
)
def test_no_plan_says_what_to_change(asked: PlanningProblem, want_reason: NoPlanReason, want_message: str) -> None:
    found = refused(asked)

    assert found.reason is want_reason
    assert want_message in found.message


def test_slo_too_tight_says_the_smallest() -> None:
    desired = session("s").slo(20).rate(10).chain("a", "b").planner(margin_percent=20)
    fixed = [profile(m).linear(5000, 5000) for m in ("a", "b")]

    found = refused(problem(desired, [pool("fast")], fixed))

    assert (found.reason, found.smallest_slo_ms) == (NoPlanReason.SLO_TOO_TIGHT, 25)
    assert "a -> b takes at least 20.0 ms" in found.message


@pytest.mark.parametrize("objective", ["Cost", "Throughput"])
def test_more_models_than_gpus(objective: str) -> None:
    desired = session("s").slo(200).rate(1).chain("a", "b").with_spec(objective={"type": objective})

    found = refused(problem(desired, [pool("fast").gpus(1)], [profile("a"), profile("b")]))

    assert found.reason is NoPlanReason.INSUFFICIENT_CAPACITY
    assert found.gpus_missing == {"fast": 1}


def test_limited_pools_are_shared_out_jointly() -> None:
    """Each model alone would take the two cheap GPUs."""
    desired = session("s").slo(100).rate(150).chain("a", "b")
    pools = [pool("cheap").gpus(2).price("1"), pool("dear").gpus(8).price("5")]
    profiles = [profile(m).on(p.name).linear(10_000, 0).batches(1) for m in ("a", "b") for p in pools]

    found = planned(problem(desired, pools, profiles))

    assert found.gpus() == {"cheap": 2, "dear": 2}
    assert "Pools without a free accelerator: cheap (2)" in found.solution.explanation


class TestPlanInForce:
    """Stability: the current plan is kept unless another is clearly better or it is no longer valid."""

    def asked(self, current_plan: PipelinePlanSpec | None = None, **changes: float) -> PlanningProblem:
        profiles = [profile("m").linear(10_000, 0).batches(1)]
        base = problem(
            session("s").slo(15).rate(250).model("m"), [pool("fast").gpus(9)], profiles, current_plan=current_plan
        )
        return replace(base, **changes)  # type: ignore[arg-type]

    def test_kept_when_a_new_one_is_no_better(self) -> None:
        current_plan = planned(self.asked())

        assert planned(self.asked(current_plan, rate=270.0)) == current_plan

    def test_replaced_when_it_cannot_serve_the_rate(self) -> None:
        current_plan = planned(self.asked())

        found = planned(self.asked(current_plan, rate=350.0))

        assert found.gpus() == {"fast": 4}

    def test_replaced_when_another_is_clearly_cheaper(self) -> None:
        current_plan = planned(self.asked())

        found = planned(self.asked(current_plan, rate=100.0))

        assert found.gpus() == {"fast": 1}

    def test_of_another_strategy_is_not_kept(self) -> None:
        current_plan = planned(self.asked())
        other = current_plan.model_copy(
            update={"solution": current_plan.solution.model_copy(update={"strategy": "no-partitioning"})}
        )

        assert planned(self.asked(other)).solution.strategy == "partita"


def test_out_of_time_the_plan_in_force_stays() -> None:
    """The clock jumps far beyond the time limit whenever it is read."""
    current_plan = planned(traffic())
    moments = iter(range(0, 10**9, 1000))

    outcome = plan(replace(traffic(), current_plan=current_plan), clock=lambda: float(next(moments)))

    assert outcome == Planned(current_plan)


def test_out_of_time_without_a_plan_in_force() -> None:
    moments = iter(range(0, 10**9, 1000))

    outcome = plan(traffic(), clock=lambda: float(next(moments)))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.TIME_LIMIT
    assert "Raise planner.timeLimitSeconds" in outcome.message
