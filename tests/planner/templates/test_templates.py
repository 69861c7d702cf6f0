"""Candidate pipelines: their latency, throughput, limits, and pruning."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import PoolBuilder, ProfileBuilder, pool, problem, profile, session
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.pruning import cheapest_by_latency
from partita_planner.allocation.resources import AvailableResources
from partita_planner.least_cost.bundle_search import Bundles, cheapest_cover
from partita_planner.problem import PlanningProblem
from partita_planner.solver.deadline import NEVER
from partita_planner.task.task import Task
from partita_planner.templates.enumeration import enumerate_templates
from partita_planner.templates.templates import Template, TemplateLimits, module_classes


def templates(
    pools: list[PoolBuilder], profiles: list[ProfileBuilder], fp16: bool = True, **limits: Any
) -> tuple[Template, ...]:
    asked = problem(session("s").model("m"), pools, profiles)
    desired = {"budget_micros": 10**9, "collection": lambda _: 0, "max_stages": 2, **limits}
    return enumerate_templates(
        module_classes("m", asked.pools, asked.profiles, fp16), TemplateLimits(**desired)
    ).templates


TWO_BLOCKS = profile("m").measured({1: [[1000.0, 1500.0], [3000.0, 4000.0]]}).batches(1, 2)


def test_one_stage_is_a_configuration() -> None:
    found = templates([pool("fast")], [TWO_BLOCKS], max_stages=1)

    want = [(1, 4000, 250.0), (2, 5500, pytest.approx(2 / 0.0055))]
    assert [(t.batch, t.latency_micros, t.stages[0].throughput) for t in found] == want


@pytest.mark.parametrize(
    ("fp16", "want_transfer", "want_rate"),
    [
        pytest.param(False, 800, 625.0, id="full precision"),
        pytest.param(True, 400, 1000.0, id="half precision halves the bytes"),
    ],
)
def test_cut_costs_time_and_caps_throughput(fp16: bool, want_transfer: int, want_rate: float) -> None:
    """10 kB at 100 Mbit/s take 0.8 ms; two vGPUs of a node share its link."""
    pools = [pool("fast").bandwidth("100M").per_node(2), pool("slow").bandwidth("1G")]
    found = templates(pools, [TWO_BLOCKS.cuts(10_000), TWO_BLOCKS.cuts(10_000).on("slow")], fp16, max_batch_size=1)

    first, second = next(t for t in found if [s.pool for s in t.stages] == ["fast", "slow"]).stages
    assert (first.transfer_micros, second.transfer_micros) == (want_transfer, 0)
    assert first.throughput == pytest.approx(want_rate)


@pytest.mark.parametrize(
    ("limits", "want_batches"),
    [
        pytest.param({}, {1, 2}, id="all that was measured"),
        pytest.param({"max_batch_size": 1}, {1}, id="a largest batch"),
        pytest.param({"budget_micros": 5000}, {1}, id="a budget"),
        pytest.param({"budget_micros": 5500}, {1, 2}, id="a budget to the microsecond"),
        pytest.param({"budget_micros": 5500, "collection": lambda batch: batch - 1}, {1}, id="collection counts"),
        pytest.param({"budget_micros": 3999}, set(), id="no time at all"),
    ],
)
def test_limits(limits: dict[str, Any], want_batches: set[int]) -> None:
    assert {t.batch for t in templates([pool("fast")], [TWO_BLOCKS], **limits)} == want_batches


@pytest.mark.parametrize(
    ("memory", "want_stages"),
    [
        pytest.param("10", {1}, id="the model fits, and two stages do no better"),
        pytest.param("5", {2}, id="half of it fits"),
        pytest.param("4", set(), id="nothing fits"),
    ],
)
def test_memory_is_checked_where_it_is_known(memory: str, want_stages: set[int]) -> None:
    """Each block has 4 bytes of weights and 1 of activations a sample."""
    found = templates([pool("fast").memory(memory)], [TWO_BLOCKS.memory(4, 1)], max_batch_size=1)

    assert {len(t.stages) for t in found} == want_stages


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(pool("fast"), {1}, id="whole"),
        pytest.param(pool("fast").mps(2), {1, 2}, id="MPS, as far as the pool allows"),
        pytest.param(pool("fast").mps(8), {1, 2, 3}, id="MPS, as far as it was measured"),
    ],
)
def test_divisors(made: PoolBuilder, want: set[int]) -> None:
    found = templates([made], [profile("m").divisors(1, 2, 3)])

    assert {s.divisor for t in found for s in t.stages} == want


@pytest.mark.parametrize(
    "differs",
    [
        pytest.param({"partition": "another"}, id="another cut"),
        pytest.param({"content": "0" * 64}, id="other weights"),
    ],
)
def test_a_pipeline_does_not_cross_profiles_of_another_model(differs: dict[str, str]) -> None:
    asked = problem(session("s").model("m"), [pool("fast"), pool("slow")], [TWO_BLOCKS, TWO_BLOCKS.on("slow")])
    other = asked.profiles["m", "slow"].model_copy(update=differs)
    classes = module_classes("m", asked.pools, {**asked.profiles, ("m", "slow"): other}, fp16_cuts=True)

    found = enumerate_templates(classes, TemplateLimits(10**9, lambda _: 0)).templates

    assert {frozenset(s.pool for s in t.stages) for t in found} == {frozenset({"fast"}), frozenset({"slow"})}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(problem=small_problems(most_models=1), share=st.floats(0.2, 3.0))
def test_pruning_never_changes_the_least_cost(problem: PlanningProblem, share: float) -> None:
    """Compared with all templates, for any demand, from unlimited pools."""
    task = Task.of(problem)
    limits = task.limits(problem.rate, task.graph.slo_micros)
    found = task.templates("m0", limits, NEVER).templates
    needed = share * problem.rate
    pools = tuple(type(p)(p.name, p.spec, 4) for p in problem.pools)
    raw = [t for t in oracle.every_template(problem, "m0", problem.rate) if t.latency <= task.graph.slo_micros]
    want = min((cost(t, needed) for t in raw), default=None)

    resources = AvailableResources({p.name: p for p in pools})
    demand = ModuleDemand("m0", needed, needed, found)
    kept = cheapest_by_latency(found, needed, resources.price, resources.unit_rate)

    assert bool(kept) == (want is not None)
    if want is not None:
        assert cheapest_cover(demand, kept, Bundles.of(kept, demand, resources), resources).price <= want * (1 + 1e-6)


def cost(template: oracle.RawTemplate, needed: float) -> float:
    return sum(stage.price * -(-needed // stage.rate) for stage in template.stages)
