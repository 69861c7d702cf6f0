"""A search for throughput among pipelines of several stages keeps the best plan of one stage."""

import pytest
from tests.builders import pool, problem, profile, session

from partita_planner.solver.deadline import Deadline
from partita_planner.strategies import STRATEGIES
from partita_planner.task import optimum
from partita_planner.task.optimum import Most, best_plan
from partita_planner.task.task import Task, TaskSolution


def task(max_stages: int) -> Task:
    """A chain of four models of one size on two GPUs: they must share them."""
    names = ("m0", "m1", "m2", "m3")
    asked = session("s").slo(200).rate(100).chain(*names).planner(max_stages=max_stages)
    pools = [pool("a").gpus(2).mps(2)]
    profiles = [profile(m).on("a").blocks(2).linear(2000, 6000).batches(1, 2, 4).divisors(1, 2) for m in names]
    asked = asked.with_spec(objective={"type": "Throughput"})
    return STRATEGIES["partita"].restrict(Task.of(problem(asked, pools, profiles)))


def test_no_time_for_more_stages_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    search = optimum.throughput_plan

    def out_of_time_with_more_stages(task: Task, deadline: Deadline, most: Most) -> object:
        now[0] = 1000.0 if task.max_stages > 1 else 0.0
        return search(task, deadline, most)

    monkeypatch.setattr(optimum, "throughput_plan", out_of_time_with_more_stages)
    one = best_plan(task(1), Deadline.after(60, lambda: now[0]))
    two = best_plan(task(2), Deadline.after(60, lambda: now[0]))

    assert isinstance(one, TaskSolution)
    assert isinstance(two, TaskSolution)
    assert two.value == pytest.approx(one.value)
    assert two.bound >= two.value
