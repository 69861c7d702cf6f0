"""Most throughput from given pools: the largest level at which every module's demand, its weight, is met.

    max level   s.t.  throughput of module m >= level * weight of m,   GPUs of pool k <= N_k

Stages own whole GPUs ("strict" sharing), so a template's vGPU sizes only show in its throughput for each GPU. Several
templates of the same pools may be used at once, a superset of PPipe's space (PPipe, sections 3 and 5.3).
"""

from collections.abc import Sequence
from math import inf

from partita_planner.allocation import Aim, Demand, Market
from partita_planner.deadline import Deadline
from partita_planner.latency import LatencyGraph
from partita_planner.search import Found, NothingFound, Search, relax, search

RELATIVE_GAP = 1e-4
"""Proof of optimality to 0.01 % is enough: profiles are not that exact."""


def most_throughput(
    demands: Sequence[Demand], market: Market, deadline: Deadline, graph: LatencyGraph | None = None
) -> Found | NothingFound:
    """The deployments with the highest level; `graph` where modules share an SLO along its paths.

    `market` must be one of whole GPUs.
    """
    if any(not d.templates for d in demands):
        return NothingFound(proven=True)
    found = search(_problem(demands, market, graph), deadline)
    if isinstance(found, Found) and found.value <= 0:
        return NothingFound(proven=not deadline.passed)
    return found


def throughput_bound(demands: Sequence[Demand], market: Market, deadline: Deadline) -> float:
    """A level that cannot be exceeded; infinite if there is no time to compute one."""
    if any(not d.templates for d in demands):
        return 0.0
    relaxation = relax(_problem(demands, market), deadline)
    return inf if relaxation is None else relaxation.bound


def _problem(demands: Sequence[Demand], market: Market, graph: LatencyGraph | None = None) -> Search:
    return Search(tuple(demands), market, Aim.THROUGHPUT, graph, RELATIVE_GAP, highest_level(demands, market))


def highest_level(demands: Sequence[Demand], market: Market) -> float:
    """What no search is needed to know: a module alone, with every GPU at the best rate of any stage on its pool."""

    def alone(demand: Demand) -> float:
        best: dict[str, float] = {}
        for stage in (s for t in demand.templates for s in t.stages):
            best[stage.pool] = max(best.get(stage.pool, 0.0), stage.gpu_throughput)
        return sum(market.pools[pool].gpus * rate for pool, rate in best.items()) / demand.capacity

    return min(alone(d) for d in demands)
