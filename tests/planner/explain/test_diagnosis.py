"""Every figure of a refusal is tried: with it there is a plan, and with one less there is none."""

from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import linear_profiles, pool, problem, profile, session
from tests.planner.problems.planned import refused
from tests.planner.problems.small_problems import small_problems

from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem

FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WIDE = session("s").slo(200).chain("a", "b").planner(max_stages=1)
SLOWER_IS_CHEAPER = [profile("m").linear(1000, 9000)]
"""A batch of one takes 10 ms, one of eight 17 ms."""


@pytest.mark.parametrize(
    ("asked", "want_reason", "want_slo", "want_rate", "want_missing"),
    [
        pytest.param(
            problem(session("s").slo(5).rate(10).model("m"), [pool("fast")], SLOWER_IS_CHEAPER),
            NoPlanReason.SLO_TOO_TIGHT,
            10,
            None,
            {},
            id="the fastest batch alone decides",
        ),
        pytest.param(
            problem(session("s").slo(5).rate(150).model("m"), [pool("fast").gpus(1)], SLOWER_IS_CHEAPER),
            NoPlanReason.SLO_TOO_TIGHT,
            18,
            None,
            {},
            id="too tight, and the GPUs need larger batches",
        ),
        pytest.param(
            problem(session("s").slo(10).rate(150).model("m"), [pool("fast").gpus(1)], SLOWER_IS_CHEAPER),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            18,
            100,
            {"fast": 1},
            id="a larger SLO admits larger batches",
        ),
        pytest.param(
            problem(session("s").slo(15).rate(500).model("m"), [pool("fast").gpus(2)], [profile("m").linear(10000, 0)]),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            None,
            200,
            {"fast": 3},
            id="no SLO would help",
        ),
        pytest.param(
            problem(WIDE.rate(300), [pool("fast").gpus(2)], linear_profiles(("a", "b"), {"fast": 1}, 10_000, 0)),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            None,
            100,
            {"fast": 4},
            id="two models",
        ),
        pytest.param(
            problem(WIDE.rate(1), [pool("fast").gpus(1)], linear_profiles(("a", "b"), {"fast": 1})),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            None,
            None,
            {"fast": 1},
            id="more models than GPUs: no rate would help",
        ),
        pytest.param(
            problem(
                WIDE.rate(500).with_spec(objective={"type": "Throughput"}),
                [pool("fast").gpus(0), pool("slow").gpus(1).price("3")],
                linear_profiles(("a", "b"), {"fast": 1, "slow": 2}),
            ),
            NoPlanReason.INSUFFICIENT_CAPACITY,
            None,
            None,
            {"slow": 1},
            id="most throughput needs one GPU for each model, whatever the rate",
        ),
    ],
)
def test_figures_of_a_refusal(
    asked: PlanningProblem,
    want_reason: NoPlanReason,
    want_slo: int | None,
    want_rate: int | None,
    want_missing: dict[str, int],
) -> None:
    found = refused(asked)

    assert (found.reason, found.smallest_slo_ms, found.largest_rate) == (want_reason, want_slo, want_rate)
    assert found.gpus_missing == want_missing
    for figure in (want_slo, want_rate, *want_missing.values()):
        assert figure is None or str(figure) in found.message
    said, what_to_do = found.message.removesuffix(".").split(". ")
    assert said[0].isupper()
    assert what_to_do[0].isupper()
    assert_figures_are_tight(asked, found)


@FEW
@given(problem=small_problems())
def test_figures_are_tight(problem: PlanningProblem) -> None:
    outcome = plan(problem)
    if isinstance(outcome, NoPlan):
        assert_figures_are_tight(problem, outcome)


@FEW
@given(problem=small_problems(objective="Throughput"))
def test_figures_are_tight_where_throughput_is_the_objective(problem: PlanningProblem) -> None:
    outcome = plan(problem)
    if isinstance(outcome, NoPlan):
        assert_figures_are_tight(problem, outcome)


def assert_figures_are_tight(asked: PlanningProblem, found: NoPlan) -> None:
    if found.smallest_slo_ms is not None:
        assert feasible(with_slo(asked, found.smallest_slo_ms)), found.message
        assert not feasible(with_slo(asked, found.smallest_slo_ms - 1)), found.message
    if found.largest_rate is not None:
        assert feasible(replace(asked, rate=float(found.largest_rate))), found.message
        assert not feasible(replace(asked, rate=found.largest_rate + 1.0)), found.message
    if found.gpus_missing:
        assert feasible(with_gpus(asked, found.gpus_missing)), found.message
    for name, count in found.gpus_missing.items():
        assert not feasible(with_gpus(asked, {**found.gpus_missing, name: count - 1})), found.message


def feasible(asked: PlanningProblem) -> bool:
    return isinstance(plan(asked, explain_seconds=0), Planned)


def with_slo(asked: PlanningProblem, millis: int) -> PlanningProblem:
    if millis < 1:
        return asked
    spec = asked.spec.model_copy(update={"slo": asked.spec.slo.model_copy(update={"latency_ms": millis})})
    return replace(asked, spec=spec)


def with_gpus(asked: PlanningProblem, more: dict[str, int]) -> PlanningProblem:
    return replace(asked, pools=tuple(replace(p, gpus=p.gpus + more.get(p.name, 0)) for p in asked.pools))


ONE = session("s").slo(15).rate(100).model("m")
TEN_MS = [profile("m").linear(10_000, 0).batches(1)]


@pytest.mark.parametrize(
    ("asked", "want_reason"),
    [
        pytest.param(problem(ONE, [pool("fast")], TEN_MS, rate=nan), NoPlanReason.INVALID_SESSION, id="rate NaN"),
        pytest.param(problem(ONE, [pool("fast")], TEN_MS, rate=inf), NoPlanReason.INVALID_SESSION, id="rate infinite"),
        pytest.param(problem(ONE, [pool("fast")], TEN_MS, rate=-1), NoPlanReason.INVALID_SESSION, id="negative rate"),
        pytest.param(problem(ONE, [pool("fast")], TEN_MS, rate=1e9), NoPlanReason.INSUFFICIENT_CAPACITY, id="rate 1e9"),
        pytest.param(problem(ONE.slo(1), [pool("fast")], TEN_MS), NoPlanReason.SLO_TOO_TIGHT, id="SLO of 1 ms"),
        pytest.param(problem(ONE, [pool("fast").gpus(0)], TEN_MS), NoPlanReason.INSUFFICIENT_CAPACITY, id="no GPUs"),
        pytest.param(problem(ONE, [pool("fast")], []), NoPlanReason.NO_POOLS, id="no profiles"),
        pytest.param(problem(ONE.model("m"), [pool("fast")], TEN_MS), NoPlanReason.INVALID_SESSION, id="name twice"),
        pytest.param(
            problem(ONE.with_spec(pools=("fast", "fast")), [pool("fast")], TEN_MS),
            NoPlanReason.INVALID_SESSION,
            id="pool named twice",
        ),
        pytest.param(
            problem(ONE, [pool("fast"), pool("fast")], TEN_MS), NoPlanReason.INVALID_SESSION, id="pool given twice"
        ),
    ],
)
def test_bad_input_is_refused_with_a_type(asked: PlanningProblem, want_reason: NoPlanReason) -> None:
    found = refused(asked)

    assert found.reason is want_reason
    assert found.message
