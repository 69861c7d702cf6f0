"""The second objective of a lexicographic pair: the throughput that was reached, on the fewest GPUs."""

from dataclasses import replace

from partita_planner.allocation.demand import AllocationObjective
from partita_planner.allocation.loss_margin import guaranteed
from partita_planner.allocation.resources import PriceUnit
from partita_planner.allocation.template_search import AllocationProblem, Found, search
from partita_planner.session.session_graph import module_rates
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import ROUNDING
from partita_planner.task.task import Task, TaskSolution


def with_fewest_gpus(task: Task, solution: TaskSolution, deadline: Deadline) -> TaskSolution:
    """`solution`, or deployments that serve at least as much on fewer GPUs.

    This is the search for the cheapest plan of a given rate, at a price of 1 for each GPU. The rate is the throughput
    of `solution`, and batches are collected at it. The throughput never decreases, not even within a solver's
    tolerance.
    """
    priced = replace(task.resources, price_unit=PriceUnit.GPUS)
    demands = task.demands(solution.rate, deadline)
    problem = AllocationProblem(demands, priced, AllocationObjective.ALLOCATED, task.coupled, margin=task.margin)
    found = search(problem, deadline)
    if not isinstance(found, Found):
        return solution
    calls = module_rates(task.problem.spec, 1.0)
    served = min(guaranteed(group, task.margin) / calls[module] for module, group in found.deployments.items())
    fewer = sum(found.deployments.gpus().values()) < sum(solution.deployments.gpus().values())
    if not fewer or served < solution.value * (1 - ROUNDING):
        return solution
    return replace(solution, deployments=found.deployments, value=served, bound=max(served, solution.bound))
