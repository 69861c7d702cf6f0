"""The groups that Algorithm 2 moves: single modules, or modules with equal parents and children (node merger)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from partita_planner.configurations.exact_split import SplitOption
from partita_planner.configurations.module_scheduling import SchedulingRules, shared_latency, whole_machines
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule
from partita_planner.solver.tolerances import ROUNDING


@dataclass(frozen=True)
class ModuleGroup:
    """Modules that have one budget."""

    modules: tuple[str, ...]
    rate: float
    options: tuple[SplitOption, ...]
    """Latencies with their least cost, fastest first; each is cheaper than those before it."""


def single(workload: Workload, rules: SchedulingRules) -> list[ModuleGroup]:
    """Every module alone."""
    return [ModuleGroup((m.name,), m.rate, _frontier(_options(m, rules))) for m in workload.modules]


def merged(workload: Workload, rules: SchedulingRules) -> list[ModuleGroup]:
    """Modules with the same parents and children as one, whose cost is the sum of theirs (Harpagon, section III-D).

    They lie on parallel paths, so they can all have the same latency.
    """
    groups: dict[tuple[frozenset[str], frozenset[str]], list[WorkloadModule]] = {}
    for module in workload.modules:
        parents = frozenset(a for a, b in workload.edges if b == module.name)
        children = frozenset(b for a, b in workload.edges if a == module.name)
        alone = not parents and not children
        groups.setdefault((frozenset({module.name}) if alone else parents, children), []).append(module)
    return [_as_one(modules, rules) for modules in groups.values()]


def configuration_latency(configuration: Configuration, rate: float, rules: SchedulingRules) -> float:
    """GetWCL: the worst case of a configuration when a module of this rate moves to it.

    A module with only one configuration must also run its machine at part load with it.
    """
    if rules.shares_evenly:
        return shared_latency(configuration, rate, rules.dispatch)
    left = rate
    if rules.max_configurations == 1:
        rest = rate - whole_machines(rate, configuration) * configuration.throughput
        left = rest if rest > ROUNDING * rate else rate
    return max(rules.dispatch.latency(configuration, rate), rules.dispatch.latency(configuration, left))


def _as_one(modules: Sequence[WorkloadModule], rules: SchedulingRules) -> ModuleGroup:
    alone = [_frontier(_options(m, rules)) for m in modules]
    latencies = sorted({option.seconds for options in alone for option in options})
    joint = [SplitOption(seconds, sum(_least(options, seconds) for options in alone)) for seconds in latencies]
    return ModuleGroup(
        tuple(m.name for m in modules), sum(m.rate for m in modules), _frontier([o for o in joint if o.cost < inf])
    )


def _options(module: WorkloadModule, rules: SchedulingRules) -> list[SplitOption]:
    return [
        SplitOption(configuration_latency(c, module.rate, rules), c.request_price * module.rate)
        for c in module.configurations
    ]


def _least(options: Sequence[SplitOption], seconds: float) -> float:
    return min((option.cost for option in options if option.seconds <= seconds), default=inf)


def _frontier(options: Sequence[SplitOption]) -> tuple[SplitOption, ...]:
    kept: list[SplitOption] = []
    for option in sorted(options, key=lambda o: (o.seconds, o.cost)):
        if not kept or option.cost < kept[-1].cost:
            kept.append(option)
    return tuple(kept)
