"""The best plan of a task: least cost for its rate, or most throughput from its pools."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from partita_planner.allocation import Aim, Demand, Deployment, Deployments
from partita_planner.cost import least_cost
from partita_planner.deadline import Deadline
from partita_planner.latency import collection_micros
from partita_planner.left_out import bound_of_blocks
from partita_planner.search import Found, NothingFound
from partita_planner.session_graph import module_rates
from partita_planner.task import Solution, Task
from partita_planner.throughput import highest_level, most_throughput, pooled, throughput_bound

MAX_ROUNDS = 6
ROUND_SHARE = 0.6
"""Share of the time left that one round of a throughput plan may take."""
SAME_RATE = 1e-3
ENUMERATION_SHARE = 0.3
"""Share of the time left for the templates of all modules."""
WHOLE_SHARE = 0.5
"""Share of a round for the plan with whole GPUs that one with shared GPUs starts from."""

Most = Callable[[Task, float, Deadline], Found | NothingFound]
"""Most throughput for a task whose batches are collected while so many requests per second arrive."""


def best_plan(task: Task, deadline: Deadline) -> Solution | NothingFound:
    """The best plan within the task's templates."""
    if task.aim is Aim.THROUGHPUT:
        return throughput_plan(task, deadline, _with_shared_gpus if task.pooled else _with_whole_gpus)
    rate = task.problem.rate
    demands = task.demands(rate, deadline=deadline.share(ENUMERATION_SHARE))
    found = of_all(task, demands, least_cost(demands, task.market, task.graph, task.aim, deadline), deadline)
    return Solution(found.deployments, rate, found.value, found.bound) if isinstance(found, Found) else found


def better(task: Task, one: Solution | NothingFound, other: Solution | NothingFound) -> Solution | NothingFound:
    """The better of two answers, with the bound of `one`, whose space holds that of `other`.

    Without `one`, only what needs no search bounds its space: nothing is cheaper than free, or exceeds every GPU at
    its best rate.
    """
    if not isinstance(other, Solution):
        return one
    if not isinstance(one, Solution):
        throughput = task.aim is Aim.THROUGHPUT
        return replace(
            other, bound=highest_level(task.demands(1.0, collected_at=inf), task.market) if throughput else 0.0
        )
    sign = -1 if task.aim is Aim.THROUGHPUT else 1
    return replace(other, bound=one.bound) if sign * other.value < sign * one.value else one


def throughput_plan(task: Task, deadline: Deadline, most: Most) -> Solution | NothingFound:
    """The plan with most throughput whose batches are collected at the rate that it is planned for.

    That rate is not known before, and more load makes collection shorter. So the first plan assumes a rate that
    cannot be exceeded, which also makes its bound hold for all plans. If it keeps the SLO at the rate that it reaches,
    it is the best; else the next one assumes that rate, and so on down.
    """
    assumed = highest_rate(task, deadline)
    bound = inf
    for _ in range(MAX_ROUNDS):
        found = most(task, assumed, deadline.share(ROUND_SHARE))
        if not isinstance(found, Found):
            return found
        bound = min(bound, found.bound) if bound == inf else bound
        reached = found.value * (1 - task.kept_free)
        deployments = collected_at_rate(task, found.deployments, reached)
        slowest = {name: max(d.template.latency_micros for d in group) for name, group in deployments.items()}
        if task.graph.longest(slowest) <= task.graph.slo_micros:
            return Solution(deployments, reached, found.value, max(bound, found.value))
        assumed = reached
    return NothingFound(proven=False)


def of_all(
    task: Task, demands: Sequence[Demand], found: Found | NothingFound, deadline: Deadline
) -> Found | NothingFound:
    """What was found among the templates of `demands`, with what is proven for all templates that there are."""
    if all(d.complete for d in demands):
        return found
    if not isinstance(found, Found):
        return NothingFound(proven=False)
    most_batch = task.problem.spec.planner.max_batch_size
    bound = bound_of_blocks(demands, task.classes, task.market, task.aim, most_batch, deadline)
    worse = max if task.aim is Aim.THROUGHPUT else min
    return replace(found, bound=worse(found.bound, bound))


def _with_whole_gpus(task: Task, rate: float, deadline: Deadline) -> Found | NothingFound:
    demands = _demands(task, rate, deadline)
    return of_all(task, demands, most_throughput(demands, task.market, deadline, task.coupled), deadline)


def _with_shared_gpus(task: Task, rate: float, deadline: Deadline) -> Found | NothingFound:
    whole = _with_whole_gpus(replace(task, pooled=False), rate, deadline.share(WHOLE_SHARE))
    demands = _demands(task, rate, deadline)
    return of_all(task, demands, pooled(whole, demands, task.market, deadline, task.coupled), deadline)


def _demands(task: Task, rate: float, deadline: Deadline) -> tuple[Demand, ...]:
    """The demands at a level of one request per second."""
    share = deadline.share(ENUMERATION_SHARE)
    return task.demands(1 - task.kept_free, collected_at=rate, deadline=share)


def highest_rate(task: Task, deadline: Deadline) -> float:
    """Requests per second that no plan exceeds: the relaxation's bound at the collection times of that very rate.

    Sharing GPUs does not change that bound.
    """
    whole = replace(task, pooled=False)
    rate = inf
    for _ in range(MAX_ROUNDS):
        bound = throughput_bound(_demands(whole, rate, deadline), task.market, deadline)
        lower = min(rate, bound * (1 - task.kept_free))
        if lower > rate * (1 - SAME_RATE) or lower <= 0:
            break
        rate = lower
    return rate


def collected_at_rate(task: Task, deployments: Deployments, rate: float) -> Deployments:
    """The same deployments with the collection times of another request rate."""
    rates = module_rates(task.problem.spec, rate)

    def recollected(module: str, deployment: Deployment) -> Deployment:
        template = deployment.template
        collection = collection_micros(template.batch, rates[module])
        return replace(deployment, template=replace(template, collection_micros=collection))

    return {name: tuple(recollected(name, d) for d in group) for name, group in deployments.items()}
