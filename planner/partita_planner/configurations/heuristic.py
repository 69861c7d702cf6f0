"""Harpagon, Piccolo and their baselines: one procedure with options (Harpagon, Table III)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from partita_planner.configurations.module_scheduling import SchedulingRules, schedule_module
from partita_planner.configurations.schedule import Schedule, WorkloadSchedule
from partita_planner.configurations.splitting import Budgets, GreedySplit, Split
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.solver.tolerances import ROUNDING


class HardwareChoice(Enum):
    """The hardware that a workload may use."""

    ANY = auto()
    """Any type for each machine."""
    ONE = auto()
    """One type for all machines: the type with the cheapest result."""
    CHEAPEST = auto()
    """The type of the lowest price only (Harp-nhc)."""
    DEAREST = auto()
    """The type of the highest price only (Harp-nhe)."""


@dataclass(frozen=True)
class HeuristicOptions:
    """The options; the defaults are Harpagon's."""

    scheduling: SchedulingRules = field(default_factory=SchedulingRules)
    """Dispatch model, number of configurations, dummy generator."""
    split: Split = field(default_factory=lambda: GreedySplit(node_merger=True, cost_direct=3))
    """How the SLO is split."""
    reassign: int | None = None
    """How often the remaining latency is reassigned to a module; None for as often as it saves cost."""
    hardware: HardwareChoice = HardwareChoice.ANY
    batching: bool = True
    """Whether batches of more than one request are formed."""
    concurrency: bool = True
    """Whether several machines may share a GPU (Piccolo's spatial multiplexing)."""


def solve_heuristically(
    workload: Workload, deadline: Deadline = NEVER, *, options: HeuristicOptions
) -> WorkloadSchedule | None:
    """The cheapest answer by occupancy that the procedure finds in time; None if it finds none within the SLO."""
    answers = (
        next((a for budgets in splits if (a := _scheduled(restricted, budgets, options)) is not None), None)
        for restricted in _restricted(workload, options)
        for splits in options.split.budgets(restricted, options.scheduling, deadline)
        if not deadline.passed
    )
    return min((a for a in answers if a is not None), key=lambda a: a.occupancy, default=None)


def _restricted(workload: Workload, options: HeuristicOptions) -> Iterator[Workload]:
    """The workload with the configurations that the options allow, once for each choice of hardware."""
    prices: dict[str, float] = {}
    for configuration in (c for m in workload.modules for c in m.configurations):
        gpu, price = _gpu(configuration), configuration.price * configuration.concurrency
        prices[gpu] = max(price, prices.get(gpu, price))
    ranked = sorted(prices, key=lambda name: (prices[name], name))
    choices = {
        HardwareChoice.ANY: [ranked],
        HardwareChoice.ONE: [[name] for name in ranked],
        HardwareChoice.CHEAPEST: [ranked[:1]],
        HardwareChoice.DEAREST: [ranked[-1:]],
    }[options.hardware]
    for chosen in choices:
        modules = [_with_only(module, chosen, options) for module in workload.modules]
        if all(module is not None for module in modules):
            yield replace(workload, modules=tuple(module for module in modules if module is not None))


def _with_only(module: WorkloadModule, hardware: list[str], options: HeuristicOptions) -> WorkloadModule | None:
    allowed = tuple(
        c
        for c in module.configurations
        if _gpu(c) in hardware and (options.batching or c.batch == 1) and (options.concurrency or c.concurrency == 1)
    )
    return replace(module, configurations=allowed) if allowed else None


def _gpu(configuration: Configuration) -> str:
    """The type of GPU: `hardware` without the share that a machine has of it, as in "v100/2"."""
    return configuration.hardware.removesuffix(f"/{configuration.concurrency}")


def _scheduled(workload: Workload, budgets: Budgets, options: HeuristicOptions) -> WorkloadSchedule | None:
    """Schedules within the budgets, improved with the latency that they leave."""
    rules = options.scheduling
    schedules = {m.name: schedule_module(m, budgets[m.name], rules) for m in workload.modules}
    for module in workload.modules:
        if schedules[module.name] is None:
            latency_headroom = workload.latency_headroom(_latency(schedules, budgets))[module.name]
            schedules[module.name] = schedule_module(module, latency_headroom, rules)
    served = {name: schedule for name, schedule in schedules.items() if schedule is not None}
    if len(served) < len(schedules) or not workload.keeps_slo(_latency(served, budgets)):
        return None
    left = len(served) if options.reassign is None else options.reassign
    while left > 0 and (better := _best_reassignment(workload, served, budgets, rules)) is not None:
        served |= better
        left -= 0 if options.reassign is None else 1
    return WorkloadSchedule(served)


def _best_reassignment(
    workload: Workload, schedules: dict[str, Schedule], budgets: Budgets, rules: SchedulingRules
) -> dict[str, Schedule] | None:
    """The module whose residual workload saves most cost when it may use all latency that its paths leave."""
    latency_headroom = workload.latency_headroom(_latency(schedules, budgets))
    best: dict[str, Schedule] | None = None
    most = ROUNDING * sum(schedule.occupancy for schedule in schedules.values())
    for module in workload.modules:
        name = module.name
        again = schedule_module(module, budgets[name], rules, residual_budget=latency_headroom[name])
        saved = schedules[name].occupancy - again.occupancy if again is not None else 0.0
        if again is not None and saved > most and again.latency <= latency_headroom[name]:
            best, most = {name: again}, saved
    return best


def _latency(schedules: Mapping[str, Schedule | None], budgets: Budgets) -> dict[str, float]:
    return {name: budgets[name] if s is None else s.latency for name, s in schedules.items()}
