"""The cost papers' strategies, chosen by spec.planner.strategy."""

import pytest
from tests.builders import SessionBuilder, linear_profiles, pool, problem, profile, session

from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, Outcome, Planned
from partita_planner.strategies import STRATEGIES
from partita_planner.validation import validate

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
PAPERS = ("harpagon", "piccolo", "nexus", "scrooge", "inferline", "clipper", "optimal")


def traffic(strategy: str, gpus: int = 40, built: SessionBuilder = TRAFFIC, cost_model: str = "Occupancy") -> Outcome:
    """The outcome on a fast and a slow pool, which may be shared by two; every plan is validated once more."""
    pools = [pool("fast").gpus(gpus).price("2").mps(2), pool("slow").gpus(gpus).price("0.7")]
    profiles = [p.divisors(1, 2) for p in linear_profiles(("detector", "car", "person"), {"fast": 1.0, "slow": 2.5})]
    desired = built.planner(strategy=strategy).with_spec(objective={"type": "Cost", "cost_model": cost_model})
    asked = problem(desired, pools, profiles)
    outcome = plan(asked)
    if isinstance(outcome, Planned):
        assert validate(outcome.plan, asked) == ()
    return outcome


@pytest.mark.parametrize("cost_model", ["Occupancy", "Allocated"])
@pytest.mark.parametrize("strategy", PAPERS)
def test_plan_holds_and_is_not_cheaper_than_ours(strategy: str, cost_model: str) -> None:
    ours, theirs = traffic("partita", cost_model=cost_model), traffic(strategy, cost_model=cost_model)

    assert isinstance(ours, Planned)
    assert isinstance(theirs, Planned), theirs
    assert theirs.plan.solution.strategy == strategy
    assert float(theirs.plan.solution.value) >= float(ours.plan.solution.value) * (1 - 1e-6)
    assert all(len(p.stages) == 1 for module in theirs.plan.modules for p in module.pipelines)


@pytest.mark.parametrize("strategy", PAPERS)
def test_pools_that_are_too_small_are_named(strategy: str) -> None:
    outcome = traffic(strategy, gpus=1, built=TRAFFIC.rate(400))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason in (NoPlanReason.INSUFFICIENT_CAPACITY, NoPlanReason.SLO_TOO_TIGHT)
    assert "planner.strategy to partita" in outcome.message


@pytest.mark.parametrize("strategy", PAPERS)
def test_throughput_is_refused_with_the_fix(strategy: str) -> None:
    desired = session("s").model("m").planner(strategy=strategy).with_spec(objective={"type": "Throughput"})

    outcome = plan(problem(desired, [pool("fast")], [profile("m")]))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.INVALID_SESSION
    assert "choose planner.strategy partita, or objective.type Cost" in outcome.message


def test_plan_does_not_rest_on_dummy_requests() -> None:
    """30 req/s need 0.43 s with batches of 8, and 0.4 s with 10 dummies a second; a plan for 0.82 s has none."""
    times = {1: [[50_000.0, 200_000.0]]}
    profiles = [profile(name).blocks(1).batches(1, 8).measured(times) for name in ("a", "b")]
    desired = session("s").slo(820).rate(30).chain("a", "b").planner(strategy="optimal")

    outcome = plan(problem(desired, [pool("fast").gpus(8)], profiles))

    assert isinstance(outcome, Planned)
    assert sorted(p.batch_size for module in outcome.plan.modules for p in module.pipelines) == [1, 8]


def test_every_strategy_has_a_name_of_its_own() -> None:
    assert set(STRATEGIES) >= {"partita", "no-partitioning", *PAPERS}
    assert all(strategy.name == name for name, strategy in STRATEGIES.items())
