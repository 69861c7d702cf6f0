"""The exact optimum by occupancy in the papers' setting: machines that share the load (*spread*).

One machine of a module has the highest throughput-cost ratio, with a price of p/t for each request. It collects at the
rate w of the whole module, including dummies, and no request is cheaper elsewhere. So it can serve all requests:

    cost(L) = min over configurations of  p/t * max(T, b / (L - d))

with machines of one configuration that share the load. No residual machine is needed. Dummies are needed only if T is
too low to fill a batch in time.
"""

from dataclasses import dataclass

from partita_planner.configurations.exact_split import SplitFound, SplitOption, cheapest_split
from partita_planner.configurations.schedule import Allocation, WorkloadSchedule, batch_aware_schedule
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule
from partita_planner.solver.deadline import NEVER, Deadline


@dataclass(frozen=True)
class Spread:
    """The cheapest answer by occupancy, and the split that it comes from."""

    answer: WorkloadSchedule
    split: SplitFound


def least_occupancy(workload: Workload, deadline: Deadline = NEVER) -> WorkloadSchedule | None:
    """The cheapest answer by occupancy, or the cheapest by the deadline; None if none keeps the SLO."""
    found = spread_split(workload, deadline)
    return None if found is None else found.answer


def spread_split(workload: Workload, deadline: Deadline = NEVER) -> Spread | None:
    """The same, with its split."""
    own = {module.name: curves(module) for module in workload.modules}
    split = cheapest_split(
        workload,
        {name: [_option(c, module) for c in own[name]] for name, module in workload.by_name.items()},
        deadline=deadline,
    )
    if split is None:
        return None
    schedules = {}
    for name, choice in split.choices.items():
        configuration, rate = own[name][choice.option], workload.by_name[name].rate
        longest = configuration.batch / rate
        collected = configuration.batch / choice.collection if 0 < choice.collection < longest else rate
        schedules[name] = batch_aware_schedule([Allocation(configuration, max(rate, collected))], rate)
    return Spread(WorkloadSchedule(schedules), split)


def curves(module: WorkloadModule) -> list[Configuration]:
    """The configurations that are cheapest at some budget."""
    kept: list[Configuration] = []
    for c in module.ranked:
        if not any(k.duration <= c.duration and _area(k) <= _area(c) for k in kept):
            kept.append(c)
    return kept


def _option(configuration: Configuration, module: WorkloadModule) -> SplitOption:
    if not configuration.price:
        return SplitOption(configuration.duration + configuration.batch / module.rate, 0.0)
    return SplitOption(configuration.duration, configuration.request_price * module.rate, _area(configuration))


def _area(configuration: Configuration) -> float:
    """The area a of the cost curve a / y: b requests at p / t each."""
    return configuration.request_price * configuration.batch
