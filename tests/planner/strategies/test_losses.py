"""Plans that survive losses: against brute force on random small problems, and by example."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.builders import SessionBuilder, linear_profiles, pool, problem, profile, session
from tests.planner.problems import loss_oracle
from tests.planner.problems.planned import planned, refused
from tests.planner.problems.small_problems import small_problems

from partita_api.session.autoscaling import AvailabilityGoal
from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.template_search import Found
from partita_planner.allocation.throughput import most_throughput
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, PlanningProblem
from partita_planner.solver.deadline import Deadline
from partita_planner.task.optimum import demands_at_level
from partita_planner.task.task import Task
from partita_planner.validation import validate

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SHARES = ("100%", "70%", "30%", "0%")
UNHURRIED = Deadline(lambda: 0.0, 60.0)


@st.composite
def protected(draw: Any, **limits: Any) -> PlanningProblem:
    """A small problem whose plans survive the loss of a replica or of a pool."""
    asked = draw(small_problems(**limits))
    loss = draw(st.sampled_from(("Replica", "Pool")))
    availability = AvailabilityGoal.model_validate(
        {"surviveLoss": loss, "servedShare": draw(st.sampled_from(SHARES)), "minReplicas": draw(st.integers(1, 2))}
    )
    pools = tuple(replace(each, gpus=each.gpus + 1) for each in asked.pools)
    return replace(asked, spec=asked.spec.model_copy(update={"availability": availability}), pools=pools)


@FEW
@given(asked=protected(most_blocks=2))
def test_cost_is_least_among_the_plans_that_survive(asked: PlanningProblem) -> None:
    want = loss_oracle.least_cost(asked)

    outcome = plan(asked)

    if isinstance(outcome, NoPlan):
        assert want == inf, outcome.message
        assert outcome.reason is not NoPlanReason.INVALID_PLAN, outcome.message
    else:
        assert float(outcome.plan.cost.allocated_per_hour) == pytest.approx(want, rel=1e-4, abs=1e-5)
        assert float(outcome.plan.solution.bound) <= want * (1 + 1e-6) + 1e-6


@FEW
@given(asked=protected(most_models=1, most_blocks=2, objective="Throughput"))
def test_throughput_is_most_among_the_deployments_that_survive(asked: PlanningProblem) -> None:
    """One module, at a given collection time."""
    task = replace(Task.of(asked), pooled=True)
    assert task.objective is AllocationObjective.THROUGHPUT
    demands = demands_at_level(task, asked.rate, UNHURRIED)
    assume(all(demand.templates for demand in demands))
    options = loss_oracle.every_option(asked, "m0", asked.rate, task.graph.slo_micros)
    assert asked.spec.availability is not None
    want = max(option.guaranteed(asked.spec.availability) for option in options)

    found = most_throughput(demands, task.resources, UNHURRIED, margin=task.margin)

    assert (found.value if isinstance(found, Found) else 0.0) == pytest.approx(want, rel=2e-4)


@FEW
@given(asked=protected(objective="Throughput"))
def test_throughput_plans_survive(asked: PlanningProblem) -> None:
    """The validator takes each replica and each pool from the plan."""
    outcome = plan(asked)

    if isinstance(outcome, NoPlan):
        assert outcome.reason is not NoPlanReason.INVALID_PLAN, outcome.message
        return
    assert validate(outcome.plan, asked) == ()
    free = plan(replace(asked, spec=asked.spec.model_copy(update={"availability": None})))
    assert not isinstance(free, NoPlan)
    assert float(outcome.plan.solution.value) <= float(free.plan.solution.value) * (1 + 1e-3)


def one_model(rate: int = 90, **availability: Any) -> SessionBuilder:
    """A model that a replica serves at 100 requests/s."""
    described = session("s").slo(20).rate(rate).model("m").planner(max_stages=1)
    return described.with_spec(availability=availability) if availability else described


TEN_MILLIS = profile("m").linear(10_000, 0).batches(1)


@pytest.mark.parametrize(
    ("rate", "availability", "want"),
    [
        pytest.param(90, {}, 1, id="no loss"),
        pytest.param(90, {"survive_loss": "Replica"}, 2, id="a replica in reserve"),
        pytest.param(190, {"survive_loss": "Replica"}, 3, id="one replica in reserve for two"),
        pytest.param(190, {"survive_loss": "Replica", "served_share": "50%"}, 2, id="half of the rate after a loss"),
        pytest.param(90, {"survive_loss": "Replica", "served_share": "0%"}, 1, id="nothing after a loss"),
        pytest.param(90, {"survive_loss": "Replica", "min_replicas": 4}, 4, id="four replicas"),
        pytest.param(90, {"survive_loss": "Pool", "served_share": "0%", "min_replicas": 2}, 2, id="only two replicas"),
    ],
)
def test_replicas_in_reserve(rate: int, availability: dict[str, Any], want: int) -> None:
    found = planned(problem(one_model(rate, **availability), [pool("fast")], [TEN_MILLIS]))

    assert found.gpus() == {"fast": want}
    assert float(found.solution.gap) == 0


def test_small_replicas_need_less_in_reserve_than_a_large_one() -> None:
    """At 90 requests/s two accelerators, or three halves of one."""
    halves = profile("m").linear(10_000, 0).batches(1).divisors(1, 2)
    asked = problem(one_model(90, survive_loss="Replica"), [pool("fast").mps(2)], [halves])

    found = planned(asked)

    assert [stage.vgpu_divisor for _, _, _, stage in found.stages()] == [2]
    assert float(found.cost.allocated_per_hour) == 1.5


def test_each_pool_alone_serves_the_rate() -> None:
    profiles = linear_profiles(["m"], {"fast": 1.0, "slow": 2.0}, alpha=0, beta=10_000)
    pools = [pool("fast").price("5"), pool("slow").price("1").gpus(8)]
    asked = problem(
        session("s").slo(100).rate(9).model("m").with_spec(availability={"survive_loss": "Pool"}),
        pools,
        [each.batches(1) for each in profiles],
    )

    found = planned(asked)

    assert found.gpus() == {"fast": 1, "slow": 1}
    assert found.solution.worst_loss is not None
    assert (found.solution.worst_loss.lost, float(found.solution.worst_loss.throughput)) == ("pool fast", 50)


def test_a_plan_says_what_surviving_losses_costs() -> None:
    found = planned(problem(one_model(190, survive_loss="Replica"), [pool("fast").price("2")], [TEN_MILLIS]))

    assert "The worst loss is a replica of m/p0, stage 0, on fast: the rest can serve 200 requests/s." in (
        found.solution.explanation
    )
    assert "Surviving losses costs 2 an hour: without spec.availability it is 4 an hour." in found.solution.explanation


def test_too_few_accelerators_are_named() -> None:
    said = refused(problem(one_model(190, survive_loss="Replica"), [pool("fast").gpus(2)], [TEN_MILLIS]))

    assert said.reason is NoPlanReason.INSUFFICIENT_CAPACITY
    assert said.gpus_missing == {"fast": 1}
    assert "also after the loss of any replica" in said.message
    assert "Add accelerators (1 more of fast), or lower the rate to 100 requests/s" in said.message


def test_a_pool_is_not_survived_with_one_pool() -> None:
    said = refused(problem(one_model(survive_loss="Pool"), [pool("fast")], [TEN_MILLIS]))

    assert said.reason is NoPlanReason.NO_POOLS
    assert "Only pool 'fast' can run model 'm'" in said.message
    assert "set availability.surviveLoss to Replica" in said.message


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({"strategy": "harpagon"}, "planner.strategy harpagon does not plan for availability", id="paper"),
        pytest.param({"share_gpus": True}, "planner.shareGpus does not work with availability", id="sub-clusters"),
    ],
)
def test_settings_that_exclude_availability(settings: dict[str, Any], want: str) -> None:
    said = refused(problem(one_model(survive_loss="Replica").planner(**settings), [pool("fast")], [TEN_MILLIS]))

    assert said.reason is NoPlanReason.INVALID_SESSION
    assert want in said.message
