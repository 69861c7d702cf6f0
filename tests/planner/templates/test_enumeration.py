"""The enumeration of templates: compared with all templates, and cut short by deadlines."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import pool, problem, profile, session
from tests.planner.problems import oracle
from tests.planner.problems.small_problems import small_problems

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.omitted_templates import bound_of_blocks
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found
from partita_planner.allocation.throughput import most_throughput
from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_planner.solver.deadline import Deadline
from partita_planner.task.optimum import best_plan
from partita_planner.task.task import Task, TaskSolution
from partita_planner.templates.enumeration import enumerate_templates
from partita_planner.templates.templates import ModuleClass, Template, TemplateLimits, module_classes

UNHURRIED = Deadline.after(60, lambda: 0.0)
Units = list[tuple[str, float]]
"""Resource and samples per second of one GPU or vGPU of every stage."""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    asked=small_problems(most_models=1, most_blocks=4, most_stages=4), whole=st.booleans(), latency_counts=st.booleans()
)
def test_nothing_left_out_is_ever_needed(asked: PlanningProblem, whole: bool, latency_counts: bool) -> None:
    """For every template there is one in the enumeration that needs no more, whatever is to be served."""
    task = Task.of(asked)
    budget = task.graph.slo_micros
    limits = replace(task.limits(asked.rate, budget), whole_gpus=whole, latency_counts=latency_counts)
    found = enumerate_templates(task.classes["m0"], limits)
    kept = [(t.latency_micros, kept_units(t, whole)) for t in found.templates]

    assert found.complete
    for raw in oracle.every_template(asked, "m0", asked.rate):
        if raw.latency <= budget:
            mine = [(unit(s.pool, s.divisor, whole), s.rate * (s.divisor if whole else 1)) for s in raw.stages]
            rivals = (units for latency, units in kept if latency <= raw.latency or not latency_counts)
            assert any(never_needs_more(units, mine) for units in rivals), raw


@pytest.mark.parametrize("most_stages", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_nothing_left_out_is_needed_at_full_size(most_stages: int) -> None:
    """Ten blocks, four classes of four vGPU sizes, batches of 1 to 32: pipelines drawn at random."""
    dice, sizes, divisors = Random(1), (1, 2, 4, 8, 16, 32), (1, 2, 3, 4)
    slowness = {"a": 1.0, "b": 1.7, "c": 2.4, "d": 3.5}
    made = []
    for name, slow in slowness.items():
        blocks = [1000 * slow * dice.uniform(0.5, 2) for _ in range(10)]
        rows = {v: [[t * v**0.9 * (0.4 + 0.6 * b**0.95) for b in sizes] for t in blocks] for v in divisors}
        made.append(profile("m").on(name).batches(*sizes).measured(rows).cuts(*[40_000] * 9))
    desired = session("s").model("m").slo(150).rate(300).planner(max_stages=most_stages, margin_percent=0)
    asked = problem(desired, [pool(name).gpus(9).mps(4).bandwidth("10G") for name in slowness], made)
    task = Task.of(asked)
    limits = replace(task.limits(asked.rate, 150_000), whole_gpus=True, latency_counts=False)
    found = enumerate_templates(task.classes["m"], limits)
    kept = [kept_units(t, whole=True) for t in found.templates]

    assert found.complete
    in_time = 0
    while in_time < 40:
        ends = sorted(dice.sample(range(1, 10), dice.randrange(most_stages)))
        chosen = tuple((dice.choice("abcd"), dice.choice(divisors)) for _ in range(len(ends) + 1))
        raw = oracle.template(asked, "m", asked.rate, dice.choice(sizes), (*ends, 10), chosen)
        if raw.latency <= 150_000:
            in_time += 1
            mine = [(s.pool, s.rate * s.divisor) for s in raw.stages]
            assert any(never_needs_more(units, mine) for units in kept), raw


def unit(pool_name: str, divisor: int, whole: bool) -> str:
    return pool_name if whole else f"{pool_name}/{divisor}"


def kept_units(template: Template, whole: bool) -> Units:
    return [(unit(s.pool, s.divisor, whole), s.gpu_throughput if whole else s.throughput) for s in template.stages]


def never_needs_more(one: Units, other: Units) -> bool:
    """Whether `one` needs no more units of anything than `other`, at the end of each of the other's first steps."""
    steps = [k * rate for _, rate in other for k in range(1, 8)]
    return all(
        needed(one, name, x) <= needed(other, name, x) for x in steps for name in {name for name, _ in (*one, *other)}
    )


def needed(units: Units, name: str, x: float) -> int:
    return sum(ceil(x / rate * (1 - 1e-9)) for resource, rate in units if resource == name)


def classes_of_four() -> tuple[ModuleClass, ...]:
    """Two pools with two vGPU sizes each; each is good at other blocks."""
    pools = [pool(name).mps(2).bandwidth("10G").for_planner() for name in ("a", "b")]
    times = {"a": [4000.0, 3000.0, 1000.0, 2500.0], "b": [2000.0, 6000.0, 1500.0, 1000.0]}
    made = {
        ("m", name): profile("m")
        .on(name)
        .batches(1, 2, 4)
        .measured({v: [[v**0.9 * t * b**0.8 for b in (1, 2, 4)] for t in times[name]] for v in (1, 2)})
        .cuts(1000)
        .build()
        for name in times
    }
    return module_classes("m", pools, made, fp16_cuts=True)


def ticking(moments: float) -> Deadline:
    """A deadline that passes after its clock was read so often."""
    clock: Iterator[int] = iter(range(10**9))
    return Deadline.after(moments, lambda: float(next(clock)))


LIMITS = TemplateLimits(budget_micros=200_000, collection=lambda batch: 100 * (batch - 1), max_stages=4)


def test_out_of_time_the_pipelines_of_fewer_stages_are_the_answer() -> None:
    """Whenever time runs out, the templates of each number of stages are complete or absent."""
    by_stages = {
        n: enumerate_templates(classes_of_four(), replace(LIMITS, max_stages=n)).templates for n in range(1, 5)
    }
    assert [max(len(t.stages) for t in by_stages[n]) for n in by_stages] == [1, 2, 3, 4]

    seen = set()
    for moments in (0.5, *range(1, 400, 12)):
        found = enumerate_templates(classes_of_four(), LIMITS, ticking(moments))
        seen.add(max(len(t.stages) for t in found.templates))
        stages = [n for n, templates in by_stages.items() if set(templates) == set(found.templates)]
        assert stages
        assert found.complete == (stages == [4])
    assert seen >= {1, 4}


def test_out_of_time_nothing_is_said_to_be_proven_that_is_not() -> None:
    """Templates of three stages are omitted; the bound without them holds with them."""
    asked = four_blocks("Throughput")
    whole = Task.of(asked)
    everything = best_plan(replace(whole, pooled=True), UNHURRIED)
    assert isinstance(everything, TaskSolution)
    demands = tuple(
        replace(d, templates=tuple(t for t in d.templates if len(t.stages) == 1), complete=False)
        for d in whole.demands(1.0, UNHURRIED, collected_at=everything.rate)
    )
    bound = bound_of_blocks(demands, whole.classes, whole.resources, AllocationObjective.THROUGHPUT, 16, UNHURRIED)
    quick = bound_of_blocks(
        demands, whole.classes, whole.resources, AllocationObjective.THROUGHPUT, 16, Deadline.after(0, lambda: 0.0)
    )

    assert everything.value <= bound <= quick < inf


def four_blocks(kind: str) -> PlanningProblem:
    asked = session("s").slo(60).rate(200).model("m").planner(max_stages=4).with_spec(objective={"type": kind})
    pools = [pool("a").gpus(3).mps(2).price("2"), pool("b").gpus(4).mps(2)]
    made = []
    for name, times in {"a": (4.0, 3.0, 1.0, 2.5), "b": (2.0, 6.0, 1.5, 1.0)}.items():
        rows = {v: [[v * 1000 * t, v * 1600 * t] for t in times] for v in (1, 2)}
        made.append(profile("m").on(name).batches(1, 2).measured(rows))
    return problem(asked, pools, made)


@pytest.mark.parametrize("kind", ["Throughput", "Cost"])
def test_a_plan_whose_templates_were_cut_short_says_how_far_it_may_be_off(kind: str) -> None:
    """The clock advances only while templates are enumerated, until their time is used up."""
    asked = four_blocks(kind)
    complete = best_plan(replace(Task.of(asked), pooled=True), UNHURRIED)
    cut = best_plan(_CutShort(asked, 4, pooled=True), UNHURRIED)

    assert isinstance(complete, TaskSolution)
    assert isinstance(cut, TaskSolution)
    if kind == "Throughput":
        assert cut.value <= complete.value * (1 + 1e-9)
        assert cut.bound >= complete.value * (1 - 1e-9)
    else:
        assert cut.value >= complete.value * (1 - 1e-9)
        assert cut.bound <= complete.value * (1 + 1e-9)


class _CutShort(Task):
    """A task without time for more than one stage."""

    def demands(self, rate: float, deadline: Deadline, collected_at: float | None = None) -> tuple[ModuleDemand, ...]:
        return super().demands(rate, Deadline.after(0, lambda: 0.0), collected_at)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(asked=small_problems(most_models=2, objective="Throughput", most_stages=3))
def test_no_pipelines_exceed_the_bound_of_their_blocks(asked: PlanningProblem) -> None:
    task = Task.of(asked)
    demands = task.demands(1.0, UNHURRIED, collected_at=asked.rate)
    most_batch = asked.spec.planner.max_batch_size

    bound = bound_of_blocks(
        demands, task.classes, task.resources, AllocationObjective.THROUGHPUT, most_batch, UNHURRIED
    )
    found = most_throughput(demands, AvailableResources(task.resources.pools, whole_gpus=True), UNHURRIED)

    assert not isinstance(found, Found) or found.value <= bound * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_models_of_any_number_of_blocks(count: int) -> None:
    """However finely a model is cut, it takes 2 ms, and cutting gains nothing."""
    made = [profile("m").on(name).blocks(count).linear(2000, 0).batches(1) for name in ("a", "b")]
    asked = problem(session("s").slo(20).rate(50).model("m").planner(max_stages=3), [pool("a"), pool("b")], made)

    outcome = plan(asked)

    assert isinstance(outcome, Planned)
    (pipeline,) = outcome.plan.modules[0].pipelines
    assert sum(stage.latency_micros for stage in pipeline.stages) == pytest.approx(2000, abs=len(pipeline.stages))
