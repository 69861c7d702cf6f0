"""Solving models with HiGHS: the content of an answer, and independent solves in one process."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pyomo.environ as pyo
import pytest
from tests.builders import pool, problem, profile, session

from partita_planner.planning import plan
from partita_planner.problem import Planned, PlanningProblem
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.solver.milp import MilpAnswer, integer, solve, solve_lp

THREADS = 4


def knapsack(weights: tuple[int, ...], room: int, domain: Any = pyo.Binary) -> pyo.ConcreteModel:
    """A knapsack: the most weight that fits; omitted items are fixed first."""
    model = pyo.ConcreteModel()
    model.take = pyo.Var(range(len(weights)), domain=domain, bounds=(0, 1))
    load = sum(weight * model.take[i] for i, weight in enumerate(weights))
    model.within = pyo.Constraint(expr=load <= room)
    model.objective = pyo.Objective(expr=load + 1, sense=pyo.maximize)
    return model


def test_an_answer_has_the_value_the_bound_and_the_variables() -> None:
    model = knapsack((7, 5, 4), 10)

    answer = solve(model, NEVER)

    assert answer == MilpAnswer(value=10, bound=10)
    assert [integer(model.take[i]) for i in range(3)] == [0, 1, 1]


def test_a_fixed_variable_keeps_its_value() -> None:
    model = knapsack((7, 5, 4), 10)
    model.take[0].fix(1)

    assert solve(model, NEVER).value == 8
    assert [integer(model.take[i]) for i in range(3)] == [1, 0, 0]


def test_a_search_begins_at_the_values_in_the_variables() -> None:
    model = knapsack((7, 5, 4), 10)
    for i, value in enumerate((0, 1, 1)):
        model.take[i].set_value(value)

    assert solve(model, NEVER, warm_start=True).value == 10


def test_a_model_without_solution_is_infeasible() -> None:
    model = knapsack((7, 5), 10)
    model.more = pyo.Constraint(expr=model.take[0] + model.take[1] >= 2)

    answer = solve(model, NEVER)

    assert answer.infeasible
    assert not answer.found


def test_a_linear_model_has_duals() -> None:
    model = knapsack((7, 5), 10, pyo.NonNegativeReals)

    solved = solve_lp(model, NEVER)

    assert solved is not None
    value, duals = solved
    assert value == pytest.approx(11)
    assert duals[model.within] == pytest.approx(1)


def test_nothing_is_solved_after_the_deadline() -> None:
    late = Deadline(lambda: 1.0, at=0)

    assert solve(knapsack((1,), 1), late) == MilpAnswer(value=None, bound=None)
    assert solve_lp(knapsack((1,), 1), late) is None


def test_nothing_is_written_and_the_output_stays_where_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    before = (os.fstat(1), os.fstat(2))
    solve(knapsack((7, 5, 4), 10), NEVER)

    assert (os.fstat(1), os.fstat(2)) == before
    assert capfd.readouterr() == ("", "")


def asked(number: int) -> PlanningProblem:
    """A chain of two models on two pools; how fast they are differs by number."""
    built = session(f"s{number}").slo(200).rate(200 + 50 * number).chain("m0", "m1")
    pools = [pool("a").gpus(12).mps(2).price("2"), pool("b").gpus(12)]
    profiles = [
        profile(model)
        .on(name)
        .batches(1, 2)
        .measured({v: [[700 * v**0.8 * t, 1100 * v**0.8 * t] for t in times] for v in vgpus})
        for model in ("m0", "m1")
        for name, times, vgpus in (("a", (4.0, 3.0 + number, 1.0), (1, 2)), ("b", (2.0, 6.0, 1.5), (1,)))
    ]
    return problem(built, pools, profiles)


def modules(asked_for: PlanningProblem) -> Any:
    """What the plan consists of; it also says how long it took."""
    outcome = plan(asked_for)
    assert isinstance(outcome, Planned), outcome
    return outcome.plan.modules


def test_problems_planned_at_once_in_threads_have_the_plans_that_they_have_alone() -> None:
    problems = [asked(number) for number in range(THREADS)]
    alone = [modules(each) for each in problems]
    together = Barrier(THREADS)

    def at_once(each: PlanningProblem) -> Any:
        together.wait()
        return [modules(each) for _ in range(3)]

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(at_once, problems))

    assert found == [[one] * 3 for one in alone]
