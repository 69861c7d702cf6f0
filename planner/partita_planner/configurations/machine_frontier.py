"""A module's least price of whole machines by latency budget, known only for the budgets that were evaluated.

Evaluating a budget L gives the cheapest machines within it, a *step*: between their own latency and L no machines cost
less. The budgets between two known steps are a *gap*. In a gap the price is at least that of the step above, and at
least the occupancy cost of machines that share the load (`spread`). This bound decides which gaps are evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Final, NamedTuple

from partita_planner.configurations.machine_sets import Machines, at_full_load, cheapest_machines
from partita_planner.configurations.schedule import Allocation, batch_aware_latency
from partita_planner.configurations.spread import curves
from partita_planner.configurations.workload import Configuration, WorkloadModule
from partita_planner.solver.tolerances import ROUNDING

LEAST_ADVANCE: Final = 0.1
"""The next evaluation in a gap is at least this share of the gap above its lower end."""


@dataclass(frozen=True)
class MachineStep:
    """One step of a module's frontier of whole machines."""

    machines: Machines
    price: float
    latency: float
    """Worst case in seconds when dummies keep all machines at full load."""
    budget: float
    """No machines are cheaper up to this budget."""


class Gap(NamedTuple):
    """Budgets between two known steps."""

    low: float
    high: float
    price: float
    """Price of the step above, a lower bound in the gap."""
    below: float
    """Price of the step below, an upper bound in the gap; infinite if there is none."""


class Frontier:
    """The known steps of one module up to a budget."""

    def __init__(self, module: WorkloadModule, budget: float) -> None:
        paid = tuple(c for c in module.configurations if c.price)
        free = [c for c in module.configurations if not c.price]
        self.steps: list[MachineStep] = []
        """From the least latency up."""
        self.evaluations = 0
        if free and (least := _free_step(module.rate, free, budget)).latency <= budget:
            self.steps.append(least)
        self._budget = budget
        self._module = replace(module, configurations=paid) if paid else None
        if self._module is not None:
            self._curves = [_Curve.of(c, module.rate) for c in curves(self._module)]
            self._impossible = min(c.duration for c in paid)
            """No machines keep this budget, or a lower one."""

    def gaps(self) -> Iterator[Gap]:
        """The gaps between the steps, below the first step, and above the last step."""
        if self._module is None:
            return
        low, below = self._impossible, inf
        for step in (*self.steps, None):
            high, price = (self._budget, 0.0) if step is None else (step.latency, step.price)
            if high - low > 4 * ROUNDING * low:
                yield Gap(low, high, price, below)
            if step is not None:
                low, below = step.budget, step.price

    def evaluate_at(self, budget: float) -> None:
        """Find the cheapest machines within `budget`."""
        gap = next((gap for gap in self.gaps() if gap.low < budget < gap.high), None)
        if gap is not None:
            self.evaluate(gap, budget)

    def evaluate(self, gap: Gap, budget: float) -> None:
        """The same within a gap. The result is a new step, or the step below holds up to `budget`."""
        assert self._module is not None, "free machines leave no gaps"
        self.evaluations += 1
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
        """A budget in the gap above which no step has a price + second_price * latency below `limit`."""
        highest = max(c.highest(second_price, limit) for c in self._curves)
        if second_price > 0:
            highest = min(highest, (limit - gap.price) / second_price)
        least = gap.low + LEAST_ADVANCE * (gap.high - gap.low)
        return min(max(highest, least), gap.high * (1 - 2 * ROUNDING))


class _Curve(NamedTuple):
    """Occupancy cost of machines of one configuration within a budget L: max(flat, area / (L - duration))."""

    duration: float
    area: float
    flat: float
    flat_from: float
    """The budget from which no dummies are needed."""

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
