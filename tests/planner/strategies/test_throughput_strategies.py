"""Most throughput by strategy: allowed templates, order of the strategies, and pooled sharing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.builders import pool, problem, profile, session
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_api.pipelineplan import PipelinePlanSpec
from partita_planner.allocation.template_search import Found
from partita_planner.allocation.throughput import most_throughput, pooled
from partita_planner.planning import plan
from partita_planner.problem import NoPlan, NoPlanReason, Planned, PlanningProblem
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.strategies import STRATEGIES
from partita_planner.strategies.dart_r import most_chained
from partita_planner.task.task import Task, TaskSolution
from partita_planner.validation import validate

THROUGHPUT = {"type": "Throughput"}
MODEL = session("s").slo(100).model("m").with_spec(objective=THROUGHPUT)


def planned(asked: PlanningProblem) -> PipelinePlanSpec:
    outcome = plan(asked)
    assert isinstance(outcome, Planned), outcome
    assert validate(outcome.plan, asked) == ()
    return outcome.plan


def by(strategy: str, asked: PlanningProblem) -> float:
    """Requests per second that a strategy reaches; 0 if it proves that it has no plan."""
    chosen = STRATEGIES[strategy]
    found = chosen.solve(chosen.restrict(Task.of(asked)), Deadline.after(60, lambda: 0.0))
    if isinstance(found, TaskSolution):
        return found.value
    assert found.proven
    return 0.0


TWO_BLOCKS: dict[str, list[list[float]]] = {"fast": [[2000.0], [2000.0]], "slow": [[4000.0], [40_000.0]]}


def two_pools(strategy: str, fast: int, slow: int) -> PlanningProblem:
    """The slow pool is only good at the first block."""
    profiles = [profile("m").on(name).batches(1).measured({1: rows}) for name, rows in TWO_BLOCKS.items()]
    pools = [pool("fast").gpus(fast), pool("slow").gpus(slow)]
    return problem(MODEL.slo(20).planner(strategy=strategy), pools, profiles)


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param("no-partitioning", 250.0, id="whole models on the fast GPU"),
        pytest.param("dart-r", 250.0, id="a chain does 250, as does the fast GPU alone"),
        pytest.param("ppipe", 500.0, id="two slow GPUs feed the fast one"),
        pytest.param("partita", 500.0, id="and so here"),
    ],
)
def test_pools_beat_chains(strategy: str, want: float) -> None:
    assert float(planned(two_pools(strategy, fast=1, slow=2)).throughput) == pytest.approx(want)


def test_chains_have_as_many_gpus_of_both_pools() -> None:
    found = planned(two_pools("dart-r", fast=1, slow=3))

    for pipeline in (p for m in found.modules for p in m.pipelines):
        assert len({stage.replicas for stage in pipeline.stages}) == 1


def half_gpus(strategy: str) -> PlanningProblem:
    """Two blocks, each good on half a GPU; whole GPUs gain nothing from it."""
    times: dict[int, list[list[float]]] = {1: [[1000.0], [5000.0]], 2: [[1000.0], [5000.0]]}
    made = profile("m").batches(1).measured(times)
    return problem(MODEL.planner(strategy=strategy), [pool("fast").gpus(1).mps(2)], [made])


def test_shared_gpus_are_counted_whole_and_by_size() -> None:
    found = planned(half_gpus("partita"))

    assert sum(found.gpus().values()) <= 1
    assert float(found.throughput) == pytest.approx(2 / 0.006)


def three_modules(strategy: str) -> PlanningProblem:
    """Three light models on two GPUs: all three fit only with a shared GPU."""
    desired = session("s").slo(300).rate(10).chain("a", "b", "c").with_spec(objective=THROUGHPUT)
    times: dict[int, list[list[float]]] = {1: [[10_000.0]], 2: [[20_000.0]]}
    profiles = [profile(name).batches(1).measured(times) for name in ("a", "b", "c")]
    return problem(desired.planner(strategy=strategy), [pool("fast").gpus(2).mps(2)], profiles)


def test_pooled_sharing_serves_more_modules_than_there_are_gpus() -> None:
    assert by("no-partitioning", three_modules("no-partitioning")) == 0

    found = planned(three_modules("partita"))

    assert float(found.throughput) == pytest.approx(50)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=small_problems(most_models=1, objective="Throughput"))
def test_wider_strategies_reach_no_less(asked: PlanningProblem) -> None:
    task = Task.of(asked)
    unhurried = Deadline.after(60, lambda: 0.0)
    demands = task.demands(1.0, unhurried, collected_at=50.0)
    if not demands[0].templates:
        return

    def value(found: Any) -> float:
        return found.value if isinstance(found, Found) else 0.0

    assert value(most_chained(demands, task.resources, unhurried)) <= value(
        most_throughput(demands, task.resources, unhurried)
    ) * (1 + 1e-6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=small_problems(most_models=1, objective="Throughput"))
def test_pooled_sharing_is_most(asked: PlanningProblem) -> None:
    """Against every count of vGPUs of every template: no counts serve more than the result, which is feasible."""
    task = replace(Task.of(asked), pooled=True)
    strict = replace(task, pooled=False)
    unhurried = Deadline.after(60, lambda: 0.0)
    raw = [t for t in oracle.every_template(asked, "m0", asked.rate) if t.latency <= task.graph.slo_micros]

    whole = most_throughput(strict.demands(1.0, unhurried, collected_at=asked.rate), strict.resources, unhurried)
    (demand,) = task.demands(1.0, unhurried, collected_at=asked.rate)
    found = pooled(whole, [demand], task.resources, unhurried)

    serves = found.value * demand.capacity if isinstance(found, Found) else 1e-3
    assert oracle.every_option(asked, raw, serves * (1 + 3e-4), task.graph.slo_micros, occupancy=False) == []
    if isinstance(found, Found):
        assert found.deployments.missing_gpus(task.resources.pools) == {}
        assert oracle.every_option(asked, raw, serves * (1 - 1e-6), task.graph.slo_micros, occupancy=False)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_weights_must_be_above_zero_and_finite(weight: float) -> None:
    task = Task.of(two_pools("partita", fast=1, slow=1))
    demands = [replace(d, capacity=weight) for d in task.demands(1.0, NEVER, collected_at=1.0)]

    with pytest.raises(ValueError, match="give a finite weight above 0"):
        most_throughput(demands, task.resources, Deadline.after(1, lambda: 0.0))


@pytest.mark.parametrize("strategy", ["partita", "ppipe", "dart-r", "no-partitioning"])
@pytest.mark.parametrize(
    ("fast", "slow", "want_pools"),
    [
        pytest.param(1, 0, {"fast"}, id="a pool without GPUs"),
        pytest.param(1, 1, {"fast", "slow"}, id="a pool without a profile for the model"),
    ],
)
def test_pools_that_cannot_be_used_are_omitted(strategy: str, fast: int, slow: int, want_pools: set[str]) -> None:
    asked = two_pools(strategy, fast, slow)
    known = {key: made for key, made in asked.profiles.items() if key != ("m", "slow")}

    found = planned(replace(asked, profiles=known))

    assert set(found.gpus()) == {"fast"} <= want_pools


@pytest.mark.parametrize("blocks", [1, 64])
def test_models_of_few_and_many_blocks(blocks: int) -> None:
    asked = problem(MODEL, [pool("fast"), pool("slow")], [profile("m").on(n).blocks(blocks) for n in ("fast", "slow")])

    assert float(planned(asked).throughput) == pytest.approx(8000)


@pytest.mark.parametrize("strategy", ["partita", "ppipe", "dart-r"])
def test_out_of_time_there_is_no_plan_rather_than_half_a_plan(strategy: str) -> None:
    moments = iter(range(0, 10**9, 1000))

    outcome = plan(two_pools(strategy, fast=1, slow=1), clock=lambda: float(next(moments)))

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.TIME_LIMIT


@pytest.mark.parametrize("strategy", ["ppipe", "dart-r"])
def test_throughput_strategies_refuse_other_objectives(strategy: str) -> None:
    asked = problem(session("s").model("m").planner(strategy=strategy), [pool("fast")], [profile("m")])

    outcome = plan(asked)

    assert isinstance(outcome, NoPlan)
    assert outcome.reason is NoPlanReason.INVALID_SESSION
