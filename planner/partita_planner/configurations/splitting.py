"""Latency splitting: a budget for each module, so that every path keeps the SLO (Harpagon, section III-D).

Algorithm 2 starts with the fastest configuration of every module and moves one module after the other to a slower and
cheaper one, by a criterion, as long as all paths keep the SLO. A module's budget is the latency of its configuration.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import floor, inf

from partita_planner.configurations.exact_split import SplitOption, cheapest_split
from partita_planner.configurations.mergers import ModuleGroup, merged, single
from partita_planner.configurations.module_scheduling import SchedulingRules, schedule_module
from partita_planner.configurations.workload import Workload
from partita_planner.solver.deadline import NEVER, Deadline
from partita_planner.solver.tolerances import ROUNDING

Budgets = Mapping[str, float]
"""Seconds by module."""


class Criterion(Enum):
    """Which move Algorithm 2 makes next."""

    EFFICIENCY = auto()
    """The one that saves most cost for each second of latency: the latency-cost efficiency LC."""
    THROUGHPUT = auto()
    """The one to the highest throughput for its price (Scrooge; Harp-tb)."""
    COST = auto()
    """The one that saves most cost (InferLine; Harpagon's cost-direct)."""


@dataclass(frozen=True)
class GreedySplit:
    """Algorithm 2."""

    criterion: Criterion = Criterion.EFFICIENCY
    node_merger: bool = False
    """Also try with modules of equal parents and children as one group."""
    cost_direct: int = 0
    """Also try with the last 1, 2, ... up to so many moves undone and continued by cost (Harpagon's R)."""
    proportional: bool = False
    """Scale the budgets to the SLO in proportion to the latencies (Piccolo, Algorithm 2, line 19)."""

    def budgets(
        self, workload: Workload, rules: SchedulingRules, deadline: Deadline = NEVER
    ) -> Iterator[list[Budgets]]:
        """Every try's splits, the last one first; none if the fastest configurations do not keep the SLO.

        Earlier splits leave more latency, for cases where the last split's budgets are too tight for a residual
        workload.
        """
        units = [single(workload, rules)] + ([merged(workload, rules)] if self.node_merger else [])
        for candidates in units:
            moves = _descend(workload, candidates, [tuple(0 for _ in candidates)], self.criterion)
            tries = [moves] + [
                _descend(workload, candidates, moves[:-back], Criterion.COST)
                for back in range(1, min(self.cost_direct, len(moves) - 1) + 1)
            ]
            for states in {tried[-1]: tried for tried in tries if tried}.values():
                found = [_latency(candidates, state) for state in reversed(states)]
                yield [_scaled_to_slo(workload, latency) for latency in found] if self.proportional else found


@dataclass(frozen=True)
class QuantizedSplit:
    """The cheapest of all splits into multiples of an interval (Nexus; Harp-q)."""

    interval: float = 0.01
    """Seconds."""

    def budgets(
        self, workload: Workload, rules: SchedulingRules, deadline: Deadline = NEVER
    ) -> Iterator[list[Budgets]]:
        """The one split, if any keeps the SLO."""
        options: dict[str, list[SplitOption]] = {}
        for module in workload.modules:
            longest = min(path.seconds for path in workload.paths if module.name in path.modules)
            steps = [(k + 1) * self.interval for k in range(floor(longest / self.interval + ROUNDING))]
            kept, least = [], inf
            for step in steps:
                if deadline.passed:
                    break
                schedule = schedule_module(module, step, rules)
                if schedule is not None and schedule.occupancy < least:
                    least = schedule.occupancy
                    kept.append(SplitOption(step, least))
            options[module.name] = kept
        split = cheapest_split(workload, options, deadline=deadline)
        if split is not None:
            yield [{name: options[name][choice.option].seconds for name, choice in split.choices.items()}]


@dataclass(frozen=True)
class EvenSplit:
    """The same budget for all modules of a path (Clipper)."""

    def budgets(
        self, workload: Workload, rules: SchedulingRules, deadline: Deadline = NEVER
    ) -> Iterator[list[Budgets]]:
        """The one split."""
        shares = {path: path.seconds / max(1, len(path.modules)) for path in workload.paths}
        names = [module.name for module in workload.modules]
        yield [{name: min(share for path, share in shares.items() if name in path.modules) for name in names}]


Split = GreedySplit | QuantizedSplit | EvenSplit


def latency_cost_efficiency(cost: Sequence[float], latency: Sequence[float]) -> float:
    """LC of a move: cost saved for each second of latency it takes; `cost` and `latency` are before and after it.

    Infinite if it saves cost and takes no time.
    """
    saved, taken = cost[0] - cost[1], latency[1] - latency[0]
    return saved / taken if taken > 0 else inf


State = tuple[int, ...]
"""The current option of each group."""


def _descend(
    workload: Workload, units: Sequence[ModuleGroup], begun: Sequence[State], criterion: Criterion
) -> list[State]:
    """The states from `begun` until no further move keeps the SLO; empty if the first state does not keep it."""
    if not all(unit.options for unit in units) or not _keeps_slo(workload, units, begun[-1]):
        return []
    states = list(begun)
    while (after := _best_move(workload, units, states[-1], _value(criterion))) is not None:
        states.append(after)
    return states


def _best_move(
    workload: Workload, units: Sequence[ModuleGroup], state: State, value: Callable[[ModuleGroup, int, int], float]
) -> State | None:
    latency_headroom = workload.latency_headroom(_latency(units, state))
    moves = (
        (value(unit, state[u], option), -u, -option)
        for u, unit in enumerate(units)
        for option in range(state[u] + 1, len(unit.options))
        if unit.options[option].seconds <= min(latency_headroom[name] for name in unit.modules)
    )
    best = max(moves, default=None)
    if best is None:
        return None
    _, u, option = best
    return (*state[:-u], -option, *state[-u + 1 :])


def _value(criterion: Criterion) -> Callable[[ModuleGroup, int, int], float]:
    def efficiency(unit: ModuleGroup, before: int, after: int) -> float:
        pair = unit.options[before], unit.options[after]
        return latency_cost_efficiency([o.cost for o in pair], [o.seconds for o in pair])

    def throughput(unit: ModuleGroup, _: int, after: int) -> float:
        return unit.rate / unit.options[after].cost if unit.options[after].cost else inf

    def cost(unit: ModuleGroup, before: int, after: int) -> float:
        return unit.options[before].cost - unit.options[after].cost

    return {Criterion.EFFICIENCY: efficiency, Criterion.THROUGHPUT: throughput, Criterion.COST: cost}[criterion]


def _latency(units: Sequence[ModuleGroup], state: State) -> Budgets:
    return {
        name: unit.options[option].seconds for unit, option in zip(units, state, strict=True) for name in unit.modules
    }


def _keeps_slo(workload: Workload, units: Sequence[ModuleGroup], state: State) -> bool:
    return workload.keeps_slo(_latency(units, state))


def _scaled_to_slo(workload: Workload, latency: Budgets) -> Budgets:
    """Every latency times the least scale factor of the paths through its module."""
    factors = {
        path: path.seconds / sum(latency[name] for name in path.modules) for path in workload.paths if path.modules
    }
    return {
        name: seconds * min(factor for path, factor in factors.items() if name in path.modules) * (1 - 1e-12)
        for name, seconds in latency.items()
    }
