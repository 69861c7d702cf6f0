"""Objectives beyond cost and throughput: least power, and most throughput on the fewest GPUs."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import PoolBuilder, pool, problem, profile, session
from tests.planner.problems.planned import planned, refused
from tests.planner.problems.small_problems import small_problems

from partita_api.fields.quantity import Quantity
from partita_api.inferencesession import CostModel, Objective, ObjectiveType
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, PlanningProblem
from partita_planner.validation import validate

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CHEAP = pool("cheap").price("1").watts(400)
FRUGAL = pool("frugal").price("3").watts(70)


def on_both(kind: str, cost_model: str = "Allocated", *pools: PoolBuilder) -> PlanningProblem:
    """One model that takes 10 ms on either pool, at 150 requests/s: two GPUs, three quarters busy."""
    profiles = [profile("m").on(name).linear(10_000, 0).batches(1) for name in ("cheap", "frugal")]
    desired = session("s").slo(20).rate(150).model("m").planner(max_stages=1)
    desired = desired.with_spec(objective={"type": kind, "cost_model": cost_model})
    return problem(desired, pools or (CHEAP, FRUGAL), profiles)


@pytest.mark.parametrize(
    ("kind", "cost_model", "want_gpus", "want_value"),
    [
        pytest.param("Cost", "Allocated", {"cheap": 2}, 2, id="cost of whole GPUs"),
        pytest.param("Cost", "Occupancy", {"cheap": 2}, 1.5, id="cost of the time at work"),
        pytest.param("Power", "Allocated", {"frugal": 2}, 140, id="power of whole GPUs"),
        pytest.param("Power", "Occupancy", {"frugal": 2}, 105, id="power of the time at work"),
    ],
)
def test_what_is_minimised_decides_on_the_pool(
    kind: str, cost_model: str, want_gpus: dict[str, int], want_value: float
) -> None:
    found = planned(on_both(kind, cost_model))

    assert found.gpus() == want_gpus
    assert float(found.solution.value) == pytest.approx(want_value)
    assert float(found.solution.gap) == 0


def test_power_is_in_every_plan_whose_pools_say_it() -> None:
    silent = pool("cheap").price("1")

    assert planned(on_both("Cost")).cost.power_watts == "800"
    assert planned(on_both("Cost", "Allocated", silent, FRUGAL)).cost.power_watts is None


@FEW
@given(problem=small_problems())
def test_least_power_is_least_cost_at_a_price_per_watt(problem: PlanningProblem) -> None:
    """With watts in proportion to prices, both objectives have the same optimum."""
    pools = tuple(
        replace(p, spec=p.spec.model_copy(update={"power_watts": int(100 * float(p.spec.price_per_hour))}))
        for p in problem.pools
    )
    cost, power = (
        plan(replace(problem, pools=pools, spec=problem.spec.model_copy(update={"objective": Objective(type=kind)})))
        for kind in (ObjectiveType.COST, ObjectiveType.POWER)
    )

    if isinstance(cost, NoPlan) or isinstance(power, NoPlan):
        assert isinstance(power, NoPlan)
        assert isinstance(cost, NoPlan)
        return
    assert float(power.plan.solution.value) == pytest.approx(100 * float(cost.plan.solution.value), rel=1e-4, abs=1e-3)


def test_power_needs_the_watts_of_every_pool() -> None:
    found = refused(on_both("Power", "Allocated", CHEAP, pool("frugal")))

    assert found.reason is NoPlanReason.INVALID_SESSION
    assert "set powerWatts of frugal" in found.message


def bottleneck() -> PlanningProblem:
    """The one GPU of `small` limits the second model to 100/s; the first needs one of four to keep up."""
    profiles = [
        profile("a").on("big").linear(10_000, 0).batches(1),
        profile("b").on("small").linear(10_000, 0).batches(1),
    ]
    desired = session("s").slo(50).rate(1).chain("a", "b").planner(max_stages=1)
    desired = desired.with_spec(objective={"type": "ThroughputThenFewestGPUs"})
    return problem(desired, [pool("big").gpus(4), pool("small").gpus(1)], profiles)


def test_fewest_gpus_of_all_that_serve_the_most() -> None:
    found = planned(bottleneck())

    assert float(found.throughput) == pytest.approx(100)
    assert found.gpus() == {"big": 1, "small": 1}


@FEW
@given(problem=small_problems(objective="Throughput"))
def test_fewest_gpus_never_costs_throughput(problem: PlanningProblem) -> None:
    then = ObjectiveType.THROUGHPUT_THEN_FEWEST_GPUS
    most = plan(problem)
    fewest = plan(replace(problem, spec=problem.spec.model_copy(update={"objective": Objective(type=then)})))

    if isinstance(most, NoPlan) or isinstance(fewest, NoPlan):
        assert isinstance(most, NoPlan)
        assert isinstance(fewest, NoPlan)
        return
    assert float(fewest.plan.throughput) >= float(most.plan.throughput) * (1 - 1e-6)
    assert sum(fewest.plan.gpus().values()) <= sum(most.plan.gpus().values())


def test_a_plan_in_force_that_serves_as_much_gives_way_to_one_on_fewer_gpus() -> None:
    lean = planned(bottleneck())
    (stage,) = lean.modules[0].pipelines[0].stages
    wide = (
        lean.modules[0]
        .pipelines[0]
        .model_copy(update={"stages": (stage.model_copy(update={"replicas": 4}),), "throughput": Quantity(400)})
    )
    wasteful = lean.model_copy(
        update={
            "modules": (lean.modules[0].model_copy(update={"pipelines": (wide,)}), lean.modules[1]),
            "cost": lean.cost.model_copy(update={"allocated_per_hour": Quantity(5)}),
        }
    )
    assert validate(wasteful, bottleneck()) == ()

    assert planned(replace(bottleneck(), current_plan=wasteful)).gpus() == lean.gpus()
    assert planned(replace(bottleneck(), current_plan=lean)) == lean


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"value": "150"}, "objective value is 150 W; it is 140 W", id="value"),
        pytest.param({"bound": "160"}, "better than its own bound", id="bound"),
        pytest.param({"objective": "Cost"}, "optimises Cost, the session wants Power", id="kind"),
    ],
)
def test_validator_counts_watts_itself(changes: dict[str, str], want: str) -> None:
    asked = on_both("Power")
    good = planned(asked)
    wrong = good.model_copy(
        update={"solution": good.solution.model_validate({**good.solution.model_dump(), **changes})}
    )

    assert want in "; ".join(validate(wrong, asked))


def test_validator_holds_the_power_against_the_pools() -> None:
    asked = on_both("Cost", CostModel.ALLOCATED)
    good = planned(asked)
    wrong = good.model_copy(update={"cost": good.cost.model_copy(update={"power_watts": Quantity("900")})})

    assert "power is 900 W; it is 800" in "; ".join(validate(wrong, asked))
