"""The best plan of a task: least cost for its rate, or most throughput from its pools."""

from partita_planner.allocation import Aim
from partita_planner.cost import least_cost
from partita_planner.deadline import Deadline
from partita_planner.search import Found, NothingFound
from partita_planner.task import Solution, Task
from partita_planner.throughput import most_throughput

MAX_ROUNDS = 8
ENOUGH_GAIN = 1e-3


def best_plan(task: Task, deadline: Deadline) -> Solution | NothingFound:
    """The best plan within the task's templates."""
    if task.aim is Aim.THROUGHPUT:
        return _most_throughput(task, deadline)
    rate = task.problem.rate
    found = least_cost(task.demands(rate), task.market, task.graph, task.aim, deadline)
    return Solution(found.deployments, rate, found.value, found.bound) if isinstance(found, Found) else found


def _most_throughput(task: Task, deadline: Deadline) -> Solution | NothingFound:
    """The plan with most throughput whose batches are collected at the rate that it is planned for.

    That rate is not known before, so plans are made in rounds, from the problem's rate on, each with the collection
    times of the rate that the one before it reached. A plan that reaches at least the rate it assumed keeps the SLO,
    since more load makes collection shorter; the others are not used. The bound is for the assumed collection times.
    """
    assumed = task.problem.rate
    best: Solution | None = None
    for _ in range(MAX_ROUNDS):
        graph = task.graph if len(task.graph.models) > 1 else None
        demands = task.demands((1 - task.kept_free), collected_at=assumed)
        found = most_throughput(demands, task.market, deadline, graph)
        if not isinstance(found, Found):
            return best or found
        reached = found.value * (1 - task.kept_free)
        gain = found.value / best.value - 1 if best else 1.0
        if reached >= assumed and gain > 0:
            best = Solution(found.deployments, reached, found.value, found.bound)
        if best and gain < ENOUGH_GAIN:
            return best
        assumed = reached
    return best or NothingFound(proven=False)
