"""A module's least price of whole machines by latency budget, known only where it was looked at.

Looking at a budget L gives the cheapest machines within it, a *step*: between their own latency and L nothing else
costs less. What lies between two steps that are known is a *gap*. In it the price is at least that of the step above,
and at least what machines that share the load cost by occupancy (`spread`); that tells whether it is worth a look.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Final, NamedTuple

from partita_planner.configurations.machine_sets import Machines, at_full_load, cheapest_machines
from partita_planner.configurations.schedule import ROUNDING, Allocation, batch_aware_latency
from partita_planner.configurations.spread import curves
from partita_planner.configurations.workload import Configuration, WorkloadModule

LEAST_ADVANCE: Final = 0.1
"""Share of a gap above its lower end that the next look is at, or higher."""


@dataclass(frozen=True)
class MachineStep:
    """One step of a module's frontier of whole machines."""

    machines: Machines
    price: float
    latency: float
    """Worst case in seconds when dummies keep all machines at full load."""
    budget: float
    """Nothing is cheaper up to this budget."""


class Gap(NamedTuple):
    """Budgets between two steps, where the least price is not known."""

    low: float
    high: float
    price: float
    """Of the step above: nothing in the gap costs less."""
    below: float
    """Price of the step below, infinite if there is none: nothing in the gap costs more."""


class Frontier:
    """The steps of one module up to a budget, as far as they are known."""

    def __init__(self, module: WorkloadModule, budget: float) -> None:
        paid = tuple(c for c in module.configurations if c.price)
        free = [c for c in module.configurations if not c.price]
        self.steps: list[MachineStep] = []
        """From the least latency up."""
        self.looks = 0
        if free and (least := _free_step(module.rate, free, budget)).latency <= budget:
            self.steps.append(least)
        self._budget = budget
        self._module = replace(module, configurations=paid) if paid else None
        if self._module is not None:
            self._curves = [_Curve.of(c, module.rate) for c in curves(self._module)]
            self._impossible = min(c.duration for c in paid)
            """Nothing keeps this budget, or a lower one."""

    def gaps(self) -> Iterator[Gap]:
        """Those between the steps, below the first one, and above the last one."""
        if self._module is None:
            return
        low, below = self._impossible, inf
        for step in (*self.steps, None):
            high, price = (self._budget, 0.0) if step is None else (step.latency, step.price)
            if high - low > 4 * ROUNDING * low:
                yield Gap(low, high, price, below)
            if step is not None:
                low, below = step.budget, step.price

    def look_at(self, budget: float) -> None:
        """Make the cheapest machines within `budget` known."""
        gap = next((gap for gap in self.gaps() if gap.low < budget < gap.high), None)
        if gap is not None:
            self.look(gap, budget)

    def look(self, gap: Gap, budget: float) -> None:
        """The same within a gap: a new step, or the step below it is the cheapest up to `budget`, too."""
        assert self._module is not None, "free machines leave no gaps"
        self.looks += 1
        place = sum(step.budget <= gap.low for step in self.steps)
        machines = cheapest_machines(self._module, budget, gap.below)
        if machines is not None:
            price = sum(n * c.price for c, n in machines)
            self.steps.insert(place, MachineStep(machines, price, batch_aware_latency(at_full_load(machines)), budget))
        elif place:
            self.steps[place - 1] = replace(self.steps[place - 1], budget=budget)
        else:
            self._impossible = budget

    def least_in(self, gap: Gap, second_price: float) -> float:
        """A bound on price + second_price * latency of all steps in the gap."""
        least = min(
            (c.least(gap.low, gap.high, second_price) for c in self._curves if c.duration < gap.high), default=inf
        )
        return max(gap.price + second_price * gap.low, least)

    def highest_in(self, gap: Gap, second_price: float, limit: float) -> float:
        """Above this budget no step in the gap has a price + second_price * latency below `limit`; well in the gap."""
        highest = max(c.highest(second_price, limit) for c in self._curves)
        if second_price > 0:
            highest = min(highest, (limit - gap.price) / second_price)
        least = gap.low + LEAST_ADVANCE * (gap.high - gap.low)
        return min(max(highest, least), gap.high * (1 - 2 * ROUNDING))


class _Curve(NamedTuple):
    """What machines of one configuration cost by occupancy within a budget L: max(flat, area / (L - duration))."""

    duration: float
    area: float
    flat: float
    flat_from: float
    """The budget from which on no dummies are needed."""

    @classmethod
    def of(cls, configuration: Configuration, rate: float) -> "_Curve":
        price, batch = configuration.request_price, configuration.batch
        return cls(configuration.duration, price * batch, price * rate, configuration.duration + batch / rate)

    def least(self, low: float, high: float, second_price: float) -> float:
        """The least of cost + second_price * L for L from `low` to `high`."""
        best = self.flat_from
        if second_price > 0:
            turn = self.duration + sqrt(self.area / second_price)
            best = turn if turn < best else best
        budget = low if best < low else high if best > high else best
        paid = self.area / (budget - self.duration)
        return (paid if paid > self.flat else self.flat) + second_price * budget

    def highest(self, second_price: float, limit: float) -> float:
        """The highest L with cost + second_price * L below `limit`; 0 if there is none."""
        if not second_price:
            return inf if self.flat < limit else 0.0
        level = (limit - self.flat) / second_price
        if level >= self.flat_from:
            return level
        half = (limit - second_price * self.duration) / (2 * second_price)
        root = half * half - self.area / second_price
        return self.duration + half + sqrt(root) if half > 0 and root >= 0 else 0.0


def _free_step(rate: float, free: list[Configuration], budget: float) -> MachineStep:
    """The fastest machines that cost nothing and need no dummies."""
    fastest = min(free, key=lambda c: c.duration + c.batch / rate)
    load = Allocation(fastest, rate)
    return MachineStep(((fastest, load.machines),), 0.0, batch_aware_latency([load]), budget)
