"""`dart-r`: chains of one GPU of one pool and one GPU of another, as many as possible, and whole models on the rest.

DART (Xiang and Kim, RTSS 2019) chains all GPUs; PPipe compares with this variant that replicates chains of two (PPipe,
section 7.1). A chain serves at the rate of its slower stage; the other stage waits.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from partita_api.inferencesession import ObjectiveType
from partita_planner.allocation.demand import ModuleDemand
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import Found, NothingFound
from partita_planner.allocation.throughput import most_throughput
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline
from partita_planner.strategies.strategy import Strategy
from partita_planner.task.optimum import demands_at_level, of_all, throughput_plan
from partita_planner.task.task import Task
from partita_planner.templates.templates import Template


def most_chained(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    deadline: Deadline,
    graph: LatencyGraph | None = None,
) -> Found | NothingFound:
    """The most from chains of two GPUs and from whole models; `demands` hold templates on undivided GPUs.

    With the rate of its slower stage on both, a template needs as many GPUs of the one pool as of the other.
    """
    chained = [replace(d, templates=tuple(_chained(t) for t in d.templates if _is_chain(t))) for d in demands]
    return most_throughput(chained, resources, deadline, graph)


def _is_chain(template: Template) -> bool:
    pools = [stage.pool for stage in template.stages]
    return len(pools) <= 2 and len(set(pools)) == len(pools) and all(s.divisor == 1 for s in template.stages)


def _chained(template: Template) -> Template:
    slower = min(stage.throughput for stage in template.stages)
    return replace(template, stages=tuple(replace(stage, throughput=slower) for stage in template.stages))


def _of_two(task: Task) -> Task:
    return replace(task, max_stages=min(2, task.max_stages), undivided=True)


def _most(task: Task, rate: float, deadline: Deadline) -> Found | NothingFound:
    demands = demands_at_level(task, rate, deadline)
    return of_all(task, demands, most_chained(demands, task.resources, deadline, task.coupled), deadline)


DART_R: Final = Strategy(
    "dart-r",
    restrict=_of_two,
    solve=lambda task, deadline: throughput_plan(task, deadline, _most),
    holds_baseline=True,
    objectives=frozenset(kind for kind in ObjectiveType if kind.seeks_throughput),
)
