"""The exact optimum by whole machines in the papers' setting.

Every module has a frontier of whole machines (`machine_frontier`). Two steps are computed first: the cheapest one, and
the one that is no slower than the module in the cheapest answer by occupancy. The cheapest split of the known steps is
an answer. Its prices for a second of latency give a lower bound on the cost of each module, and so on all answers
(Lagrange). Gaps that may hold a step of a cheaper answer are evaluated until there are none.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from partita_planner.configurations.exact_split import SplitFound, SplitOption, cheapest_split
from partita_planner.configurations.machine_frontier import Frontier, MachineStep
from partita_planner.configurations.machine_sets import at_full_load
from partita_planner.configurations.schedule import (
    Allocation,
    Schedule,
    WorkloadSchedule,
    batch_aware_latency,
    batch_aware_schedule,
)
from partita_planner.configurations.spread import spread_split
from partita_planner.configurations.workload import Workload
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.solver.tolerances import ROUNDING

MAX_EVALUATIONS: Final = 1000
FIRST_SHARE: Final = 0.3
"""Share of the distance between answer and bound within which gaps are evaluated before the second answer."""


def least_allocated(workload: Workload, deadline: Deadline = NEVER) -> WorkloadSchedule | None:
    """The cheapest answer by whole machines, or the cheapest by the deadline; None if none keeps the SLO.

    Exact if no module needs more than MAX_EVALUATIONS; it may need more if the SLO is close to the latency of the
    fastest machines.
    """
    begun = spread_split(workload, deadline)
    if begun is None:
        return None
    latency_headroom = workload.latency_headroom(
        {m.name: min(c.duration for c in m.configurations) for m in workload.modules}
    )
    frontiers = {m.name: Frontier(m, latency_headroom[m.name]) for m in workload.modules}
    for name, seconds in begun.answer.latency.items():
        frontiers[name].evaluate_at(seconds * (1 - 4 * ROUNDING))
    if not all(frontier.steps for frontier in frontiers.values()):
        return None
    cost = sum(frontier.steps[0].price for frontier in frontiers.values())
    _close_gaps(frontiers, begun.split, cost, deadline, FIRST_SHARE)
    found = _split(workload, frontiers, begun.split.prices, deadline)
    if found is not None and _close_gaps(frontiers, found, found.cost, deadline):
        found = _split(workload, frontiers, found.prices, deadline)
    return None if found is None else _answer(found, frontiers, workload)


def _split(
    workload: Workload, frontiers: Mapping[str, Frontier], prices: Sequence[float], deadline: Deadline
) -> SplitFound | None:
    """The cheapest split of the known steps."""
    options = {name: [SplitOption(s.latency, s.price) for s in f.steps] for name, f in frontiers.items()}
    return cheapest_split(workload, options, prices, deadline)


def _close_gaps(
    frontiers: Mapping[str, Frontier], split: SplitFound, cost: float, deadline: Deadline, share: float = 1.0
) -> bool:
    """Evaluate all gaps that may hold a step of an answer cheaper than `cost`; returns whether there were any.

    The prices of `split` identify these gaps. With a smaller `share`, only gaps within that share of the distance
    between cost and bound are evaluated.
    """
    evaluated = False
    least: dict[str, float] = {}
    for name, frontier in frontiers.items():
        second_price = split.second_price[name]
        while True:
            least[name] = min(s.price + second_price * s.latency for s in frontier.steps)
            if deadline.passed or not _evaluate_below(frontier, second_price, least[name]):
                break
            evaluated = True
    slack = (cost - (sum(least.values()) - split.path_value)) * (1 - ROUNDING)
    for name, frontier in frontiers.items():
        limit = least[name] + share * slack
        while not deadline.passed and _evaluate_below(frontier, split.second_price[name], limit):
            evaluated = True
    return evaluated


def _evaluate_below(frontier: Frontier, second_price: float, limit: float) -> bool:
    """Evaluate the gap with the least bound; false if no gap has a bound, with its latency priced, below `limit`."""
    bounds = {gap: frontier.least_in(gap, second_price) for gap in frontier.gaps()}
    gap = min(bounds, key=bounds.__getitem__, default=None)
    if gap is None or bounds[gap] >= limit or frontier.evaluations >= MAX_EVALUATIONS:
        return False
    frontier.evaluate(gap, frontier.highest_in(gap, second_price, limit))
    return True


def _answer(found: SplitFound, frontiers: Mapping[str, Frontier], workload: Workload) -> WorkloadSchedule:
    """The schedules of the split's machines."""
    chosen = {name: frontiers[name].steps[choice.option] for name, choice in found.choices.items()}
    latency = {name: step.latency for name, step in chosen.items()}
    schedules = {}
    for name, step in chosen.items():
        schedules[name] = _loaded(step, workload.by_name[name].rate, workload.latency_headroom(latency)[name])
        latency[name] = schedules[name].latency
    return WorkloadSchedule(schedules)


def _loaded(step: MachineStep, rate: float, budget: float) -> Schedule:
    """The step's machines under the module's own rate if that keeps the budget, else with dummies at full load."""
    left, loads = rate, []
    for configuration, count in step.machines:
        load = min(left, count * configuration.throughput)
        loads.append(Allocation(configuration, load))
        left -= load
    if all(a.rate > 0 for a in loads) and batch_aware_latency(loads) <= budget:
        return batch_aware_schedule(loads, rate)
    return batch_aware_schedule(at_full_load(step.machines), rate)
