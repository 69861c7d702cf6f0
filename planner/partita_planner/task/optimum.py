"""The best plan of a task: least cost for its rate, or most throughput from its pools."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments, TemplateDeployment
from partita_planner.allocation.omitted_templates import bound_of_blocks
from partita_planner.allocation.template_search import AllocationProblem, Found, NothingFound, value_of
from partita_planner.allocation.throughput import highest_level, most_throughput, pooled, throughput_bound
from partita_planner.least_cost.cheapest_deployments import least_cost, least_cost_with_margin
from partita_planner.session.latency import collection_micros
from partita_planner.session.session_graph import module_rates
from partita_planner.solver.deadline import Deadline
from partita_planner.solver.tolerances import ROUNDING, THROUGHPUT_GAP
from partita_planner.task.current_plan import current_deployments
from partita_planner.task.task import Task, TaskSolution

MAX_ROUNDS = 6
ROUND_SHARE = 0.6
"""Share of the remaining time for one round of a throughput plan."""
SAME_RATE = 1e-3
WITHOUT_MARGIN_SHARE = 0.4
"""Share of the time for the best plan that need not survive losses, if there is a margin."""
WHOLE_SHARE = 0.5
"""Share of a round for the plan with whole GPUs, the start of the search with shared GPUs."""
ONE_STAGE_SHARE = 0.5
"""Share of the remaining time for a throughput plan of one stage, if several models may have more stages. Their
templates are many, and a search among all of them may end without a plan that is as good."""

Most = Callable[[Task, float, Deadline], Found | NothingFound]
"""Most throughput for a task whose batches are collected at the given rate, in requests per second."""


def best_plan(task: Task, deadline: Deadline) -> TaskSolution | NothingFound:
    """The best plan within the task's templates, which survives the losses of the task's margin.

    Its bound is also that of plans that need not survive them. If such a plan survives them, it is the best one.
    """
    if task.margin is None:
        return _best_plan(task, deadline)
    free = _best_plan(task.without_margin(), deadline.share(WITHOUT_MARGIN_SHARE))
    if isinstance(free, NothingFound):
        return free if free.proven else _best_plan(task, deadline)
    calls = module_rates(task.problem.spec, 1.0)
    served = min(task.margin.guaranteed(group) / calls[module] for module, group in free.deployments.items())
    if served >= free.rate / (1 - task.kept_free) * (1 - ROUNDING):
        return replace(free, without_margin=free.value)
    throughput = task.objective is AllocationObjective.THROUGHPUT
    start = free.deployments if throughput else task.margin.with_reserve(free.deployments)
    found = _best_plan(task, deadline, start)
    if isinstance(found, NothingFound):
        return found
    worse = min if throughput else max
    return replace(found, bound=worse(found.bound, free.bound), without_margin=free.value)


def _best_plan(task: Task, deadline: Deadline, start: ModuleDeployments | None = None) -> TaskSolution | NothingFound:
    """The best plan; with a margin, the search begins from `start`."""
    if task.objective is AllocationObjective.THROUGHPUT:
        if task.pooled and task.margin is None:
            return _plan_with_shared_gpus(task, deadline)
        return throughput_plan(task, deadline, partial(_most_throughput, start=start))
    rate = task.problem.rate
    demands = task.demands(rate, deadline)
    if task.margin is None:
        found = least_cost(demands, task.resources, task.graph, task.objective, deadline)
    else:
        found = least_cost_with_margin(
            demands, task.resources, task.graph, task.objective, task.margin, deadline, start
        )
    found = of_all(task, demands, found, deadline)
    return TaskSolution(found.deployments, rate, found.value, found.bound) if isinstance(found, Found) else found


def _plan_with_shared_gpus(task: Task, deadline: Deadline) -> TaskSolution | NothingFound:
    """The plan with most throughput; with several models, the search begins from the best plan of one stage."""
    if task.max_stages == 1 or task.coupled is None:
        return throughput_plan(task, deadline, _with_shared_gpus)
    one_stage = _plan_with_shared_gpus(replace(task, max_stages=1), deadline.share(ONE_STAGE_SHARE))
    if not isinstance(one_stage, TaskSolution):
        return throughput_plan(task, deadline, _with_shared_gpus)
    found = throughput_plan(task, deadline, partial(_with_shared_gpus, known=one_stage.deployments))
    return better(task, found, one_stage, deadline)


def better(
    task: Task, one: TaskSolution | NothingFound, other: TaskSolution | NothingFound, deadline: Deadline
) -> TaskSolution | NothingFound:
    """The better of two solutions, with the bound of `one`; its search space contains that of `other`.

    If `one` is missing, the bound is that of blocks that choose their pools freely.
    """
    if not isinstance(other, TaskSolution):
        return one
    throughput = task.objective is AllocationObjective.THROUGHPUT
    if not isinstance(one, TaskSolution):
        rates = module_rates(task.problem.spec, 1 - task.kept_free if throughput else task.problem.rate)
        needed = [ModuleDemand(name, rates[name], rates[name] / (1 - task.kept_free), ()) for name in other.deployments]
        bound = _bound_of_blocks(task, needed, deadline)
        return replace(other, bound=max(bound, other.value) if throughput else min(bound, other.value))
    sign = -1 if throughput else 1
    if sign * one.value <= sign * other.value:
        return one
    return replace(other, bound=one.bound, without_margin=one.without_margin)


def throughput_plan(task: Task, deadline: Deadline, most: Most) -> TaskSolution | NothingFound:
    """The plan with most throughput whose batches are collected at the rate that it is planned for.

    That rate is not known in advance, and more load makes collection shorter. So the first plan assumes a rate that
    cannot be exceeded; its bound then holds for all plans. If the plan keeps the SLO at the rate that it reaches, it is
    the best plan. Otherwise the next plan assumes the reached rate, and so on.
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
        if task.graph.keeps_slo(deployments.latencies):
            return TaskSolution(deployments, reached, found.value, max(bound, found.value))
        assumed = reached
    return NothingFound(proven=False)


def of_all(
    task: Task, demands: Sequence[ModuleDemand], found: Found | NothingFound, deadline: Deadline
) -> Found | NothingFound:
    """The result over the templates of `demands`, with a bound for all templates."""
    if all(d.complete for d in demands):
        return found
    if not isinstance(found, Found):
        return NothingFound(proven=False)
    bound = _bound_of_blocks(task, demands, deadline)
    worse = max if task.objective is AllocationObjective.THROUGHPUT else min
    return replace(found, bound=worse(found.bound, bound))


def _bound_of_blocks(task: Task, demands: Sequence[ModuleDemand], deadline: Deadline) -> float:
    most_batch = task.problem.spec.planner.max_batch_size
    return bound_of_blocks(demands, task.classes, task.resources, task.objective, most_batch, deadline)


def _most_throughput(
    task: Task, rate: float, deadline: Deadline, start: ModuleDeployments | None = None
) -> Found | NothingFound:
    demands = demands_at_level(task, rate, deadline)
    current = current_deployments(task, rate)
    found = most_throughput(demands, task.resources, deadline, task.coupled, current or start, task.margin)
    return of_all(task, demands, _or_known_plan(task, demands, found, current), deadline)


def _with_shared_gpus(
    task: Task, rate: float, deadline: Deadline, known: ModuleDeployments | None = None
) -> Found | NothingFound:
    whole = _most_throughput(replace(task, pooled=False), rate, deadline.share(WHOLE_SHARE))
    demands = demands_at_level(task, rate, deadline)
    start = current_deployments(task, rate)
    begun = _or_known_plan(task, demands, whole, start)
    if known is not None and task.graph.keeps_slo((at_rate := collected_at_rate(task, known, rate)).latencies):
        begun = _or_known_plan(task, demands, begun, at_rate)
    found = pooled(begun, demands, task.resources, deadline, task.coupled)
    return of_all(task, demands, _or_known_plan(task, demands, found, start), deadline)


def _or_known_plan(
    task: Task, demands: Sequence[ModuleDemand], found: Found | NothingFound, known: ModuleDeployments | None
) -> Found | NothingFound:
    """The known plan, unless `found` is better by more than the proof gap: a change of plan moves replicas.

    If nothing was found, the bound is every GPU at its best rate.
    """
    if known is None:
        return found
    problem = AllocationProblem(tuple(demands), task.resources, AllocationObjective.THROUGHPUT, margin=task.margin)
    value = value_of(problem, known)
    if isinstance(found, Found) and found.value > value * (1 + THROUGHPUT_GAP):
        return found
    bound = found.bound if isinstance(found, Found) else highest_level(demands, task.resources)
    return Found(known, value, max(bound, value))


def demands_at_level(task: Task, rate: float, deadline: Deadline) -> tuple[ModuleDemand, ...]:
    """The demands at a level of one request per second, their batches collected at `rate`."""
    return task.demands(1 - task.kept_free, deadline, collected_at=rate)


def highest_rate(task: Task, deadline: Deadline) -> float:
    """Requests per second that no plan exceeds: the relaxation's bound with the collection times of the same rate.

    Sharing GPUs does not change this bound.
    """
    whole = replace(task, pooled=False)
    rate = inf
    for _ in range(MAX_ROUNDS):
        bound = throughput_bound(demands_at_level(whole, rate, deadline), task.resources, deadline)
        lower = min(rate, bound * (1 - task.kept_free))
        if lower > rate * (1 - SAME_RATE) or lower <= 0:
            break
        rate = lower
        if deadline.passed:
            break
    return rate


def collected_at_rate(task: Task, deployments: ModuleDeployments, rate: float) -> ModuleDeployments:
    """The same deployments with the collection times of another request rate."""
    rates = module_rates(task.problem.spec, rate)

    def recollected(module: str, deployment: TemplateDeployment) -> TemplateDeployment:
        template = deployment.template
        collection = collection_micros(template.batch, rates[module])
        return replace(deployment, template=replace(template, collection_micros=collection))

    return ModuleDeployments({name: tuple(recollected(name, d) for d in group) for name, group in deployments.items()})
