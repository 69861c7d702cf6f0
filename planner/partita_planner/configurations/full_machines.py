"""The cheapest answer in the space of Harpagon's plans, by exhaustive search: the papers' "optimal".

A module's schedule in that space is a sequence of configurations in the order of dispatch. Each has as many machines at
full load as the remaining rate keeps busy (Theorem 2). The last machine has part load, or is filled up with dummy
requests. The search covers all schedules and all latency splits.
"""

from collections.abc import Callable, Iterator

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.exact_split import SplitOption, cheapest_split
from partita_planner.configurations.module_scheduling import MachineGroup, schedule_of, whole_machines
from partita_planner.configurations.schedule import Schedule, WorkloadSchedule
from partita_planner.configurations.workload import Workload, WorkloadModule
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.solver.tolerances import ROUNDING


def cheapest_with_full_machines(
    workload: Workload, deadline: Deadline = NEVER, dummies: bool = True
) -> WorkloadSchedule | None:
    """The cheapest answer by occupancy, with or without dummy requests; None if none keeps the SLO.

    When time runs out, the best answer so far.
    """
    frontiers = {module.name: frontier(module, deadline, dummies) for module in workload.modules}
    options = {name: [SplitOption(s.latency, s.occupancy) for s in steps] for name, steps in frontiers.items()}
    split = cheapest_split(workload, options, deadline=deadline)
    if split is None:
        return None
    return WorkloadSchedule({name: frontiers[name][choice.option] for name, choice in split.choices.items()})


def frontier(module: WorkloadModule, deadline: Deadline = NEVER, dummies: bool = True) -> list[Schedule]:
    """The schedules that no other one dominates in latency and cost, fastest first.

    When time runs out, the schedules found so far: at least one if there is any.
    """
    kept: list[Schedule] = []

    def dominated(latency: float, cost: float) -> bool:
        return any(s.latency <= latency and s.occupancy <= cost * (1 + ROUNDING) for s in kept)

    for parts in _sets(module, [], 0, module.rate, dominated):
        schedule = schedule_of(parts, module.rate, DispatchModel.BATCH_AWARE)
        if (dummies or not schedule.dummy) and not dominated(schedule.latency, schedule.occupancy):
            kept = [s for s in kept if s.latency < schedule.latency or s.occupancy < schedule.occupancy]
            kept.append(schedule)
        if kept and deadline.passed:
            break
    return sorted(kept, key=lambda s: s.latency)


def _sets(
    module: WorkloadModule,
    parts: list[MachineGroup],
    begin: int,
    left: float,
    dominated: Callable[[float, float], bool],
) -> Iterator[list[MachineGroup]]:
    """All sets that begin with `parts` and serve the rate `left` with the configurations from index `begin` upwards.

    Sets are dropped if their parts are dominated already, with the next configuration's price for the remaining rate.
    """
    paid = sum(part.rate * part.configuration.request_price for part in parts)
    for k, configuration in enumerate(module.ranked[begin:], begin):
        full = whole_machines(left, configuration)
        rest = left - full * configuration.throughput
        if rest <= ROUNDING * module.rate:
            yield [*parts, MachineGroup(configuration, full, 0.0)]
            continue
        yield [*parts, MachineGroup(configuration, full, rest)]
        yield [*parts, MachineGroup(configuration, full + 1, 0.0)]
        latency = configuration.duration + configuration.batch / (full + 1) / configuration.throughput
        if full and not dominated(latency, paid + left * configuration.request_price):
            yield from _sets(module, [*parts, MachineGroup(configuration, full, 0.0)], k + 1, rest, dominated)
