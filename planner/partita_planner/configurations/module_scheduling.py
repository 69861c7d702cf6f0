"""Scheduling of one module within its latency budget: Algorithm 1 and the dummy generators of Harpagon and Piccolo.

Algorithm 1 visits the configurations by falling throughput-cost ratio. Each that is in time for the remaining rate rw
gets floor(rw / t) machines at full load; a machine at part load takes the rest where rw < t. The algorithm takes the
machine at part load to collect at its own rate, also where it has the configuration of those at full load.

Where single requests are dispatched in turn and there is one configuration only, its machines have equal shares of the
load instead. So they have with two configurations, if none is in time for what the first one leaves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import ceil, floor

from partita_planner.configurations.dispatch import DispatchModel
from partita_planner.configurations.schedule import Allocation, Schedule
from partita_planner.configurations.workload import Configuration, WorkloadModule
from partita_planner.solver.tolerances import ROUNDING


class Dummies(Enum):
    """How many dummy requests are tried behind each configuration i; u is the leftover workload of those after it."""

    NONE = auto()
    FILL = auto()
    """t - u: one more machine at full load instead of all after it (Harpagon, section III-C)."""
    IN_TIME = auto()
    """b / (L - d) - u: just enough to collect a batch within the budget L (Piccolo, section III-D)."""


@dataclass(frozen=True)
class SchedulingRules:
    """The options of Algorithm 1."""

    dispatch: DispatchModel = DispatchModel.BATCH_AWARE
    max_configurations: int | None = None
    """Configurations that a module may use; None for any number."""
    dummies: Dummies = Dummies.FILL

    @property
    def shares_evenly(self) -> bool:
        """Whether the machines of a module always have equal shares of the load."""
        return self.max_configurations == 1 and self.dispatch is not DispatchModel.BATCH_AWARE


@dataclass(frozen=True)
class MachineGroup:
    """Machines of one configuration: some at full load, and one at part load."""

    configuration: Configuration
    full: int
    partial: float
    """Requests per second of the machine at part load; 0 if there is none."""

    @property
    def rate(self) -> float:
        """Requests per second of all."""
        return self.full * self.configuration.throughput + self.partial


def schedule_module(
    module: WorkloadModule, budget: float, rules: SchedulingRules, residual_budget: float | None = None
) -> Schedule | None:
    """The cheapest of Algorithm 1's schedule and those with dummy requests; None if none keeps the budget.

    `residual_budget`, if given, holds for all but the machines at full load of the first configuration.
    """
    if rules.shares_evenly:
        return _shared_evenly(module, budget, rules)
    later = budget if residual_budget is None else residual_budget
    parts = _algorithm_1(module, budget, later, rules)
    candidates = [schedule_of(parts, module.rate, rules.dispatch)] if _rest(module.rate, parts) == 0 else []
    if rules.dummies is not Dummies.NONE:
        candidates += [
            schedule_of(kept, module.rate, rules.dispatch)
            for kept in _with_dummies(module, parts, budget, later, rules)
        ]
    if not candidates and rules.dispatch is not DispatchModel.BATCH_AWARE:
        return _shared_evenly(module, budget, rules)
    return min(candidates, key=lambda s: (s.occupancy, s.latency), default=None)


def shared_latency(configuration: Configuration, rate: float, dispatch: DispatchModel) -> float:
    """Worst case of as many machines as `rate` needs, each with an equal share of it."""
    machines = ceil(rate / configuration.throughput - ROUNDING)
    collecting = configuration.concurrency if dispatch is DispatchModel.PER_GPU else 1
    return dispatch.latency(configuration, rate * min(1.0, collecting / machines))


def _shared_evenly(module: WorkloadModule, budget: float, rules: SchedulingRules) -> Schedule | None:
    """The best configuration whose machines are in time with equal shares of the rate."""
    for configuration in module.ranked:
        latency = shared_latency(configuration, module.rate, rules.dispatch)
        if latency <= budget:
            return Schedule((Allocation(configuration, module.rate),), latency)
    return None


def schedule_of(parts: Sequence[MachineGroup], rate: float, dispatch: DispatchModel) -> Schedule:
    """The schedule that the parts make, for `rate` requests per second and dummies where they serve more."""
    remaining = latency = 0.0
    for part in reversed(parts):
        if part.partial:
            remaining += part.partial
            latency = max(latency, dispatch.latency(part.configuration, remaining))
        if part.full:
            remaining += part.full * part.configuration.throughput
            latency = max(latency, dispatch.latency(part.configuration, remaining))
    served = sum(part.rate for part in parts)
    dummy = served - rate if served > rate * (1 + ROUNDING) else 0.0
    return Schedule(tuple(Allocation(part.configuration, part.rate) for part in parts), latency, dummy)


def whole_machines(rate: float, configuration: Configuration) -> int:
    """Machines that `rate` keeps at full load."""
    return floor(rate / configuration.throughput + ROUNDING)


def _algorithm_1(module: WorkloadModule, budget: float, later: float, rules: SchedulingRules) -> list[MachineGroup]:
    """The parts that Algorithm 1 finds; they serve less than the rate if no configuration suits the rest."""
    parts: list[MachineGroup] = []
    left = module.rate
    for configuration in module.ranked:
        limit = later if parts else budget
        if rules.dispatch.latency(configuration, left) > limit:
            continue
        full = whole_machines(left, configuration)
        rest = _positive(left - full * configuration.throughput, module.rate)
        in_time = not rest or rules.dispatch.latency(configuration, rest) <= (later if full else limit)
        if not in_time and (full == 0 or len(parts) + 1 == rules.max_configurations):
            continue
        parts.append(MachineGroup(configuration, full, rest if in_time else 0.0))
        left = 0.0 if in_time else rest
        if not left:
            break
    return parts


def _with_dummies(
    module: WorkloadModule, parts: Sequence[MachineGroup], budget: float, later: float, rules: SchedulingRules
) -> Iterator[list[MachineGroup]]:
    """Schedules in which one configuration serves the whole remaining rate, with dummies."""
    for configuration in module.ranked:
        better = [p for p in parts if p.configuration.request_price < configuration.request_price]
        own = next((p for p in parts if p.configuration is configuration), MachineGroup(configuration, 0, 0.0))
        leftover = _rest(module.rate, better) - own.full * configuration.throughput
        limit = later if better or own.full else budget
        one_more_allowed = len(better) + 1 <= (rules.max_configurations or len(better) + 1)
        if not one_more_allowed or any(p.partial for p in better) or leftover <= ROUNDING * module.rate:
            continue
        if rules.dummies is Dummies.FILL:
            filled = MachineGroup(configuration, own.full + 1, 0.0)
        elif limit > configuration.duration:
            enough = configuration.batch / (limit - configuration.duration) * (1 + 1e-12)
            filled = MachineGroup(configuration, own.full, max(enough, leftover))
        else:
            continue
        small = leftover <= configuration.throughput and filled.partial <= configuration.throughput * (1 + ROUNDING)
        if small and schedule_of([filled], filled.rate, rules.dispatch).latency <= limit:
            yield [*better, filled]


def _rest(rate: float, parts: Sequence[MachineGroup]) -> float:
    """The part of the rate that the parts do not serve."""
    return _positive(rate - sum(part.rate for part in parts), rate)


def _positive(left: float, rate: float) -> float:
    """`left`, or 0 if it is within rounding."""
    return left if left > ROUNDING * rate else 0.0
