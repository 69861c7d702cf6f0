"""Most throughput from given pools: the largest level at which every module's demand, its weight, is met.

    max level   s.t.  throughput of module m >= level * weight of m,   GPUs of pool k <= N_k

With "strict" sharing stages own whole GPUs: a template's vGPU sizes only affect its throughput per GPU. With "pooled"
sharing stages own vGPUs, and a GPU's vGPUs may belong to several stages. Several templates of the same pools may be
used at once: a superset of PPipe's space (PPipe, sections 3 and 5.3).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from partita_planner.allocation.demand import AllocationObjective, ModuleDemand
from partita_planner.allocation.deployments import ModuleDeployments
from partita_planner.allocation.loss_margin import LossMargin
from partita_planner.allocation.relaxation import relax
from partita_planner.allocation.resources import AvailableResources
from partita_planner.allocation.template_search import AllocationProblem, Found, NothingFound, search
from partita_planner.session.latency import LatencyGraph
from partita_planner.solver.deadline import Deadline


def most_throughput(
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    deadline: Deadline,
    graph: LatencyGraph | None = None,
    start: ModuleDeployments | None = None,
    margin: LossMargin | None = None,
) -> Found | NothingFound:
    """The deployments with the highest level; `graph` where modules share an SLO along its paths.

    `resources` must count whole GPUs, unless the deployments have to survive the losses of `margin`. The search begins
    from `start`, if that is given. Raises ValueError if a demand is not above 0 and finite.
    """
    joined = _with_templates_of(start or ModuleDeployments(), demands)
    if any(not d.templates for d in joined):
        return NothingFound(proven=True)
    found = search(replace(_problem(joined, resources, graph), margin=margin), deadline, start)
    if isinstance(found, Found) and found.value <= 0:
        return NothingFound(proven=not deadline.passed)
    return found


def pooled(
    whole: Found | NothingFound,
    demands: Sequence[ModuleDemand],
    resources: AvailableResources,
    deadline: Deadline,
    graph: LatencyGraph | None = None,
) -> Found | NothingFound:
    """The most with "pooled" sharing: stages take any number of vGPUs, and vGPUs of one size share GPUs.

    `demands` hold templates distinguished by vGPU size. `whole` is the plan with whole GPUs. It is also a plan with
    vGPUs: the search starts from it, and returns it if there is none better.
    """
    start = whole.deployments if isinstance(whole, Found) else ModuleDeployments()
    joined = _with_templates_of(start, demands)
    if any(not d.templates for d in joined):
        return NothingFound(proven=True)
    found = search(_problem(joined, replace(resources, whole_gpus=False), graph), deadline, start or None)
    if isinstance(found, Found) and found.value > 0:
        return found
    if isinstance(whole, Found):
        return replace(whole, bound=highest_level(joined, resources))
    return NothingFound(proven=not deadline.passed)


def _with_templates_of(start: ModuleDeployments, demands: Sequence[ModuleDemand]) -> list[ModuleDemand]:
    """The demands, with the templates of `start` added."""
    used = {name: [d.template for d in group] for name, group in start.items()}
    return [replace(d, templates=tuple(dict.fromkeys((*d.templates, *used.get(d.module, ()))))) for d in demands]


def throughput_bound(demands: Sequence[ModuleDemand], resources: AvailableResources, deadline: Deadline) -> float:
    """A level that cannot be exceeded; infinite if there is no time to compute one."""
    if any(not d.templates for d in demands):
        return 0.0
    relaxation = relax(demands, resources, AllocationObjective.THROUGHPUT, deadline, highest_level(demands, resources))
    return inf if relaxation is None else relaxation.bound


def _problem(
    demands: Sequence[ModuleDemand], resources: AvailableResources, graph: LatencyGraph | None = None
) -> AllocationProblem:
    return AllocationProblem(
        tuple(demands),
        resources,
        AllocationObjective.THROUGHPUT,
        graph,
        highest_level(demands, resources),
    )


def highest_level(demands: Sequence[ModuleDemand], resources: AvailableResources) -> float:
    """A bound without a search: a module alone, with every GPU at the best rate of any stage on its pool."""
    for demand in demands:
        if not 0 < demand.capacity < inf:
            raise ValueError(f"module {demand.module!r} has weight {demand.capacity}: give a finite weight above 0")

    def alone(demand: ModuleDemand) -> float:
        best: dict[str, float] = {}
        for stage in (s for t in demand.templates for s in t.stages):
            best[stage.pool] = max(best.get(stage.pool, 0.0), stage.gpu_throughput)
        return sum(resources.pools[pool].gpus * rate for pool, rate in best.items()) / demand.capacity

    return min(alone(d) for d in demands)
