"""Throughput on whole GPUs: the dynamic program against the MILP and brute force, and its limits."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import pool

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.dynamic_program import Program
from partita_planner.allocation.relaxation import relax, rounded
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import AllocationProblem, value_of
from partita_planner.allocation.throughput import highest_level
from partita_planner.solver.deadline import Deadline
from partita_planner.templates.templates import Template, TemplateStage

STOPPED = Deadline.after(60, lambda: 0.0)


def template(*stages: tuple[str, float], batch: int = 1) -> Template:
    """Stages by pool and samples per second of one GPU."""
    made = (TemplateStage(i, i + 1, name, 1, 1000, 0, rate) for i, (name, rate) in enumerate(stages))
    return Template(batch, 0, tuple(made))


def resources(**gpus: int) -> AvailableResources:
    return AvailableResources(
        {name: pool(name).gpus(count).for_planner() for name, count in gpus.items()}, whole_gpus=True
    )


def solved(demands: list[ModuleDemand], whole: AvailableResources, known: float = 0.0) -> tuple[float | None, float]:
    """Level that the program finds, and the bound that it proves."""
    relaxation = relax(demands, whole, AllocationObjective.THROUGHPUT, STOPPED, highest_level(demands, whole))
    assert relaxation is not None
    program = Program.of(demands, whole, relaxation, known)
    deployments, bound = program.solve(known, relaxation.bound, whole, STOPPED)
    if deployments is None:
        return None, bound
    assert deployments.missing_gpus(whole.pools) == {}
    return value_of(AllocationProblem(tuple(demands), whole, AllocationObjective.THROUGHPUT), deployments), bound


def test_whole_gpus_are_shared_out_so_that_the_least_served_gets_most() -> None:
    """Five GPUs at 10 a second: two modules that weigh 1 and 2 get 2 and 3."""
    demands = [ModuleDemand("a", 1, 1.0, (template(("x", 10.0)),)), ModuleDemand("b", 1, 2.0, (template(("x", 10.0)),))]

    assert solved(demands, resources(x=5)) == (pytest.approx(15), pytest.approx(15))


def test_pipelines_over_two_pools_complement_each_other() -> None:
    """Two fast GPUs feed three slow ones at 12; the fast one left does 5 alone."""
    pipeline, alone = template(("fast", 6.0), ("slow", 4.0)), template(("fast", 5.0))

    assert solved([ModuleDemand("a", 1, 1.0, (pipeline, alone))], resources(fast=3, slow=3)) == (
        pytest.approx(17),
        pytest.approx(17),
    )


def test_nothing_better_than_what_is_known_is_proof_of_it() -> None:
    demands = [ModuleDemand("a", 1, 1.0, (template(("x", 10.0)),))]

    assert solved(demands, resources(x=5), known=50.0) == (None, pytest.approx(50))


def test_out_of_time_the_bound_of_the_relaxation_stays() -> None:
    demands, whole = [ModuleDemand("a", 1, 1.0, (template(("x", 10.0)),))], resources(x=5)
    relaxation = relax(demands, whole, AllocationObjective.THROUGHPUT, STOPPED, 100.0)
    assert relaxation is not None
    moments = iter(range(0, 1000, 100))

    program = Program.of(demands, whole, relaxation, 0.0)

    assert program.solve(0.0, relaxation.bound, whole, Deadline.after(1, lambda: float(next(moments)))) == (
        None,
        relaxation.bound,
    )


@st.composite
def demands_of_two_pools(draw: st.DrawFn) -> list[ModuleDemand]:
    rate = st.sampled_from((1.0, 2.5, 4.0, 7.0, 11.0))
    stage = st.tuples(st.sampled_from(("x", "y")), rate)
    templates = st.lists(st.lists(stage, min_size=1, max_size=3), min_size=1, max_size=4)
    return [
        ModuleDemand(
            f"m{i}", 1, draw(st.sampled_from((1.0, 2.0, 3.5))), tuple({template(*s): 0 for s in draw(templates)})
        )
        for i in range(draw(st.integers(1, 3)))
    ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(demands=demands_of_two_pools(), x=st.integers(0, 6), y=st.integers(1, 6))
def test_level_is_that_of_brute_force(demands: list[ModuleDemand], x: int, y: int) -> None:
    whole = resources(x=x, y=y)
    served = [brute_force(d, (x, y)) for d in demands]
    level = np.full((x + 1, y + 1), np.inf)
    for table in served:
        level = np.array(
            [
                [
                    max(min(level[i - a, j - b], table[a, b]) for a in range(i + 1) for b in range(j + 1))
                    for j in range(y + 1)
                ]
                for i in range(x + 1)
            ]
        )
    found, bound = solved(demands, whole)

    assert (found or 0.0) == pytest.approx(level[x, y])
    assert bound == pytest.approx(level[x, y])


def brute_force(demand: ModuleDemand, gpus: tuple[int, int]) -> np.ndarray:
    """What one module serves, relative to its demand, with up to each vector of GPUs; GPU after GPU is given out."""
    best = np.zeros((gpus[0] + 1, gpus[1] + 1))
    for one in demand.templates:
        before = best.copy()
        for counts in np.ndindex(*(gpus["xy".index(s.pool)] + 1 for s in one.stages)):
            used = [sum(n for n, s in zip(counts, one.stages, strict=True) if s.pool == name) for name in "xy"]
            serves = min(n * s.throughput for n, s in zip(counts, one.stages, strict=True)) / demand.capacity
            for i in range(used[0], gpus[0] + 1):
                for j in range(used[1], gpus[1] + 1):
                    best[i, j] = max(best[i, j], before[i - used[0], j - used[1]] + serves)
    return best


@settings(max_examples=60, deadline=None)
@given(demands=demands_of_two_pools(), x=st.integers(1, 50), y=st.integers(1, 50))
def test_rounded_relaxation_fits_the_pools_and_stays_below_the_bound(
    demands: list[ModuleDemand], x: int, y: int
) -> None:
    whole = resources(x=x, y=y)
    relaxation = relax(demands, whole, AllocationObjective.THROUGHPUT, STOPPED, highest_level(demands, whole))
    assert relaxation is not None

    deployments = rounded(relaxation, demands, whole)

    if deployments is not None:
        assert deployments.missing_gpus(whole.pools) == {}
        level = value_of(AllocationProblem(tuple(demands), whole, AllocationObjective.THROUGHPUT), deployments)
        assert 0 < level <= relaxation.bound * (1 + 1e-6)
