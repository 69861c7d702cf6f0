"""The cheapest set of whole machines that serves a module within a latency budget.

Whole machines are paid for, so dummy requests up to full load are free. Let a set have configurations c with batch b,
duration d and price; sort them by their ratio of throughput to price. Let w(c) be the rate of the machines of c and of
all lower ratios at full load. The set keeps a budget L if w(c) >= b / (L - d) for each c. So sets are built from the
lowest ratio upwards; a label is an unfinished set with its rate and price.

A label is dropped if no set that it can become is cheaper than the best one found. Let c be the configuration of
highest ratio in the finished set, and T the module's rate. The set then serves at least max(T, b / (L - d)), and every
request per second that the label lacks costs at least the price of a request on c. That is a lower bound of the price
for each c; the lowest of these bounds, a piecewise linear function of the label's rate, decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, inf
from operator import itemgetter
from typing import NamedTuple

from partita_planner.configurations.schedule import Allocation
from partita_planner.configurations.workload import Configuration, WorkloadModule
from partita_planner.solver.tolerances import ROUNDING

Machines = tuple[tuple[Configuration, int], ...]
"""Configurations with machine counts, in the order of dispatch."""


def cheapest_machines(module: WorkloadModule, budget: float, below: float = inf) -> Machines | None:
    """The cheapest machines that serve the module within `budget` seconds, for less than `below`; None if none do."""
    usable = [
        _Usable(c, c.throughput, c.price, c.request_price, c.batch / (budget - c.duration))
        for c in reversed(module.ranked)
        if c.duration < budget
    ]
    best = _Best(below * (1 - ROUNDING), None)
    _one_or_two(module.rate, usable, best)
    served = [max(module.rate, c.needed) for c in usable]
    hopeful = [c.request_price * rate < best.limit for c, rate in zip(usable, served, strict=True)]
    if not any(hopeful):
        return best.machines()
    last = max(k for k, may in enumerate(hopeful) if may)
    tops = [_PriceLine(c.request_price * rate, c.request_price) for c, rate in zip(usable, served, strict=True)]
    most = max(rate for rate, may in zip(served, hopeful, strict=True) if may)
    lines: list[list[_PriceLine]] = [[]]
    for k in range(last, 0, -1):
        lines.append(_lowest([*lines[-1], tops[k]], most) if hopeful[k] else lines[-1])
    ahead = lines[::-1]
    labels = [_Label(0.0, 0.0, 0.0, None)]
    for _, alike in groupby(range(last + 1), key=lambda k: usable[k].request_price):
        group = list(alike)
        longer = labels
        for k in group:
            longer = longer + _grown(longer, usable[k], module.rate, ahead[k], best, closes=k == group[-1])
        labels = _undominated([label for label in longer if label.rate >= label.needed * (1 - ROUNDING)])
    return best.machines()


def at_full_load(machines: Machines) -> list[Allocation]:
    """The allocations with all machines at full load."""
    return [Allocation(c, n * c.throughput) for c, n in machines]


class _Usable(NamedTuple):
    """A configuration that is fast enough for a budget."""

    configuration: Configuration
    throughput: float
    price: float
    request_price: float
    needed: float
    """What its machines and those of lower ratio must serve together, b / (L - d)."""

    def count(self, rate: float) -> int:
        """Machines for `rate`, at least one."""
        machines = ceil(rate / self.throughput - ROUNDING)
        return machines if machines > 1 else 1


class _PriceLine(NamedTuple):
    """A lower bound on the price to complete a label with a certain last configuration: base - rate * slope."""

    base: float
    slope: float


class _Trail(NamedTuple):
    """Machines of one configuration, and those of the lower ratios."""

    configuration: Configuration
    machines: int
    lower: "_Trail | None"


class _Label(NamedTuple):
    """Machines of the configurations so far."""

    rate: float
    """Requests per second at full load."""
    price: float
    needed: float
    """The rate that the machines of the last ratio must reach together."""
    trail: _Trail | None


@dataclass(slots=True)
class _Best:
    """The cheapest set so far."""

    limit: float
    """A set must cost less than this to replace it."""
    trail: _Trail | None

    def offer(self, price: float, configuration: Configuration, machines: int, lower: _Trail | None) -> None:
        """Take the set of these machines and the `lower` ones if it is cheaper."""
        if price < self.limit:
            self.limit, self.trail = price * (1 - ROUNDING), _Trail(configuration, machines, lower)

    def machines(self) -> Machines | None:
        """Its machines, highest ratio first."""
        found, trail = [], self.trail
        while trail is not None:
            found.append((trail.configuration, trail.machines))
            trail = trail.lower
        return tuple(found) or None


def _one_or_two(rate: float, usable: Sequence[_Usable], best: _Best) -> None:
    """Offer machines of one configuration, and of one at full load with another of lower ratio for the rest."""
    for k, main in enumerate(usable):
        demand = max(rate, main.needed)
        alone = main.count(demand)
        best.offer(alone * main.price, main.configuration, alone, None)
        full = floor(rate / main.throughput)
        left = demand - full * main.throughput
        paid = full * main.price
        if not full or paid >= best.limit:
            continue
        for other in usable[:k]:
            if paid + max(1.0, left / other.throughput - 1) * other.price >= best.limit:
                continue
            count = other.count(max(left, other.needed))
            if other.request_price > main.request_price:
                rest = _Trail(other.configuration, count, None)
                best.offer(paid + count * other.price, main.configuration, full, rest)


def _lowest(lines: Sequence[_PriceLine], most: float) -> list[_PriceLine]:
    """The lines that no other line is below for all rates from 0 to `most`."""
    kept: list[_PriceLine] = []
    least = inf
    for line in sorted(lines):
        end = line.base - most * line.slope
        if end < least:
            kept.append(line)
            least = end
    return kept


def _grown(
    labels: Sequence[_Label], choice: _Usable, rate: float, ahead: Sequence[_PriceLine], best: _Best, closes: bool
) -> list[_Label]:
    """The labels with machines of one more configuration, if a line of those `ahead` is still below the best.

    Complete sets are offered. `closes` says whether the configuration is the last one of its ratio.
    """
    configuration, throughput, price, _, needed_of_choice = choice
    grown = []
    for served, paid, needed_of_label, trail in labels:
        needed = needed_of_choice if needed_of_choice > needed_of_label else needed_of_label
        enough = choice.count((rate if rate > needed else needed) - served)
        best.offer(paid + enough * price, configuration, enough, trail)
        if enough == 1:
            continue
        count = choice.count(needed - served) if closes else 1
        while count < enough:
            serves, costs = served + count * throughput, paid + count * price
            left = best.limit - costs
            for base, slope in ahead:
                if base - serves * slope < left:
                    break
            else:
                break
            grown.append(_Label(serves, costs, needed, _Trail(configuration, count, trail)))
            count += 1
    return grown


def _undominated(labels: Sequence[_Label]) -> list[_Label]:
    """The labels that serve more than every cheaper label."""
    kept: list[_Label] = []
    most = -inf
    for price, less, trail in sorted([(x.price, -x.rate, x.trail) for x in labels], key=itemgetter(0, 1)):
        if -less > most:
            most = -less
            kept.append(_Label(most, price, 0.0, trail))
    return kept
