"""The worth of more GPUs, more time and fewer pools, compared with planning with them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import linear_profiles, pool, problem, profile, session
from tests.planner.problems.small_problems import small_problems

from partita_api.pipelineplan import Constraint, ConstraintType, Evidence, PipelinePlanSpec
from partita_planner.planning import BASELINE, plan
from partita_planner.problem import NoPlan, Planned, PlanningProblem

FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
AMPLE = 60.0


def planned(asked: PlanningProblem, explain_seconds: float = AMPLE) -> PipelinePlanSpec:
    outcome = plan(asked, explain_seconds=explain_seconds)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan


def of_pool(found: PipelinePlanSpec, name: str) -> Constraint:
    return next(c for c in found.solution.constraints if c.pool == name)


def latency(found: PipelinePlanSpec) -> Constraint:
    return next(c for c in found.solution.constraints if c.type is ConstraintType.LATENCY)


def cheap_and_dear(cheap: int = 2) -> PlanningProblem:
    """Two models at 150 requests/s need four GPUs, whichever; `cheap` of them cost 1, the others 5."""
    pools = [pool("cheap").gpus(cheap).price("1"), pool("dear").gpus(8).price("5")]
    profiles = [profile(m).on(p.name).linear(10_000, 0).batches(1) for m in ("a", "b") for p in pools]
    return problem(session("s").slo(100).rate(150).chain("a", "b").planner(max_stages=1), pools, profiles)


@pytest.mark.parametrize(
    ("cheap", "explain_seconds", "want_cheap", "want_evidence"),
    [
        pytest.param(2, AMPLE, 4.0, Evidence.RESOLVED, id="one more saves a dear one"),
        pytest.param(4, AMPLE, 0.0, Evidence.RESOLVED, id="enough: one more saves nothing"),
        pytest.param(0, AMPLE, 4.0, Evidence.RESOLVED, id="a pool without GPUs has a worth too"),
        pytest.param(2, 0.0, 4.0, Evidence.RELAXED, id="out of time, the relaxation's dual"),
    ],
)
def test_worth_of_one_more_gpu(cheap: int, explain_seconds: float, want_cheap: float, want_evidence: Evidence) -> None:
    found = planned(cheap_and_dear(cheap), explain_seconds)

    constraint = of_pool(found, "cheap")
    assert constraint.worth is not None
    assert float(constraint.worth) == pytest.approx(want_cheap)
    assert constraint.evidence is want_evidence
    assert constraint.binding == (want_cheap > 0)
    assert float(of_pool(found, "dear").worth or 0) == 0


@FEW
@given(problem=small_problems())
def test_worth_is_what_planning_with_one_more_gpu_saves(problem: PlanningProblem) -> None:
    assert_worths_are_gains(problem, sign=-1)


@FEW
@given(problem=small_problems(objective="Throughput"))
def test_worth_is_what_planning_with_one_more_gpu_gains(problem: PlanningProblem) -> None:
    assert_worths_are_gains(problem, sign=1)


def assert_worths_are_gains(asked: PlanningProblem, sign: int) -> None:
    outcome = plan(asked, explain_seconds=AMPLE)
    if isinstance(outcome, NoPlan):
        return
    value = float(outcome.plan.solution.value)
    resolved = [c for c in outcome.plan.solution.constraints if c.evidence is Evidence.RESOLVED and c.pool]
    assert resolved
    for constraint in resolved:
        pools = tuple(replace(p, gpus=p.gpus + (p.name == constraint.pool)) for p in asked.pools)
        more = planned(replace(asked, pools=pools), explain_seconds=0)
        gain = sign * (float(more.solution.value) - value)
        assert float(constraint.worth or 0) == pytest.approx(gain, abs=5e-4 * value)


def test_a_tight_slo_is_worth_what_a_tenth_more_saves() -> None:
    """At 150 requests/s, batches of 2 take 6.7 ms to collect and 11 ms to run, and need one GPU in place of two."""
    asked = problem(
        session("s").slo(17).rate(150).model("m"), [pool("fast")], [profile("m").linear(1000, 9000).batches(1, 2)]
    )

    found = planned(asked)

    assert (float(latency(found).worth or 0), latency(found).binding) == (1.0, True)
    assert latency(found).modules == ("m",)
    assert "A tenth more SLO would save 1 an hour, in m." in found.solution.explanation


@pytest.mark.parametrize(
    ("asked", "want_without", "want_strategy", "want_value"),
    [
        pytest.param(cheap_and_dear(), "cheap", "partita", 20.0, id="without a pool that it uses"),
        pytest.param(
            problem(
                session("s").slo(10).rate(400).model("m"),
                [pool("fast").price("10"), pool("slow").price("1")],
                [
                    profile("m").on("fast").batches(1).measured({1: [[2000.0], [2000.0]]}),
                    profile("m").on("slow").batches(1).measured({1: [[2000.0], [20_000.0]]}),
                ],
            ),
            None,
            "no-partitioning",
            20.0,
            id="the baseline",
        ),
    ],
)
def test_runner_up(asked: PlanningProblem, want_without: str | None, want_strategy: str, want_value: float) -> None:
    runner_up = planned(asked).solution.runner_up

    assert runner_up is not None
    assert (runner_up.without_pool, runner_up.strategy) == (want_without, want_strategy)
    assert float(runner_up.value or 0) == want_value


def test_runner_up_without_a_pool_is_what_planning_without_it_gives() -> None:
    asked = cheap_and_dear()
    without = replace(asked, pools=tuple(p for p in asked.pools if p.name != "cheap"))

    runner_up = planned(asked).solution.runner_up

    assert runner_up is not None
    assert runner_up.value == planned(without).solution.value


def test_no_runner_up_where_nothing_else_can_be_done() -> None:
    asked = problem(session("s").slo(100).rate(50).model("m"), [pool("fast")], [profile("m").blocks(1)])

    assert planned(asked).solution.runner_up is None


def test_every_pool_that_may_serve_is_weighed() -> None:
    models = ("a", "b")
    asked = problem(
        session("s").slo(100).rate(50).chain(*models),
        [pool("fast"), pool("slow"), pool("unprofiled")],
        linear_profiles(models, {"fast": 1.0, "slow": 2.0}),
    )

    assert [c.pool for c in planned(asked).solution.constraints] == ["fast", "slow", None]


def test_baseline_explains_itself() -> None:
    asked = cheap_and_dear()
    spec = asked.spec.model_copy(update={"planner": asked.spec.planner.model_copy(update={"strategy": BASELINE.name})})

    found = planned(replace(asked, spec=spec))

    assert float(of_pool(found, "cheap").worth or 0) == 4
    assert found.solution.runner_up is not None
    assert found.alternatives == ()
