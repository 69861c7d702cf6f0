"""The exact optimum by whole machines in the papers' setting.

Whole machines are paid for, so that dummies are free up to full load. Then with n machines of each configuration a set
keeps a budget L if each configuration in it has w >= b / (L - d), w being what its machines and those of lower ratio
serve at full load. `cheapest_machines` finds the cheapest set by labels <w, price>, from the lowest ratio up. Walking L
down gives the steps of the module's frontier.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, floor, inf
from typing import Final

from partita_planner.configurations.exact_split import Option, SplitFound, cheapest_split
from partita_planner.configurations.schedule import (
    ROUNDING,
    Allocation,
    Answer,
    Schedule,
    batch_aware_latency,
    batch_aware_schedule,
)
from partita_planner.configurations.spread import least_occupancy
from partita_planner.configurations.workload import Configuration, Module, Workload

MAX_STEPS: Final = 1000
FIRST_STEPS: Final = 24
"""Steps of a module on the way to a first answer; beyond, the frontier may hardly become faster for long."""
Machines = tuple[tuple[Configuration, int], ...]
"""Configurations with machine counts, in the order of dispatch."""


def least_allocated(workload: Workload) -> Answer | None:
    """The cheapest answer by whole machines; None if none keeps the SLO.

    Exact while no module has more than MAX_STEPS steps that are worth a look, as it may have where the SLO leaves
    hardly more than the fastest machines take.
    """
    room = workload.room({m.name: min(c.duration for c in m.configurations) for m in workload.modules})
    walks = {m.name: _Walk(m, room[m.name]) for m in workload.modules}
    if not all(walk.steps for walk in walks.values()):
        return None
    if not _walk_to_the_slo(workload, walks):
        _step_beside(least_occupancy(workload), walks)
    found = _walk_to_the_optimum(walks, workload)
    if found is None:
        return None
    chosen = {name: walks[name].known[choice.option] for name, choice in found.choices.items()}
    latency = {name: step.latency for name, step in chosen.items()}
    schedules = {}
    for name, step in chosen.items():
        schedules[name] = _loaded(step, workload.by_name[name].rate, workload.room(latency)[name])
        latency[name] = schedules[name].latency
    return Answer(schedules)


@dataclass(frozen=True)
class Step:
    """One step of a module's frontier of whole machines."""

    machines: Machines
    price: float
    latency: float
    """Worst case in seconds when dummies keep all machines at full load."""


def machine_steps(module: Module, budget: float) -> Iterator[Step]:
    """The module's least price by latency budget, from `budget` down; every step is dearer than the one before it."""
    free = [c for c in module.configurations if not c.price]
    if free:
        least = _free_step(module.rate, free)
        if least.latency <= budget:
            yield least
            budget = least.latency * (1 - 2 * ROUNDING)
        paid = tuple(c for c in module.configurations if c.price)
        if not paid:
            return
        module = replace(module, configurations=paid)
    pending: Step | None = None
    while (step := _step(module, budget)) is not None:
        if pending is not None and step.price > pending.price * (1 + ROUNDING):
            yield pending
        pending = step
        budget = min(budget, step.latency) * (1 - 2 * ROUNDING)
    if pending is not None:
        yield pending


def _step(module: Module, budget: float) -> Step | None:
    machines = cheapest_machines(module, budget)
    if machines is None:
        return None
    return Step(machines, sum(n * c.price for c, n in machines), batch_aware_latency(_at_full_load(machines)))


def _free_step(rate: float, free: Sequence[Configuration]) -> Step:
    """The fastest machines that cost nothing and need no dummies."""
    fastest = min(free, key=lambda c: c.duration + c.batch / rate)
    load = Allocation(fastest, rate)
    return Step(((fastest, load.machines),), 0.0, batch_aware_latency([load]))


def cheapest_machines(module: Module, budget: float) -> Machines | None:
    """The cheapest machines that serve the module within `budget` seconds; None if none do.

    With c the configuration of highest ratio in a set, its machines serve at least max(T, b / (L - d)) at c's price for
    a request or more. That bounds what labels can become, and leaves out the configurations that are too dear as c.
    """
    usable = [
        _Usable(c, c.throughput, c.price, c.request_price, c.batch / (budget - c.duration))
        for c in reversed(module.ranked)
        if c.duration < budget
    ]
    if not usable:
        return None
    found, price = _one_or_two(module.rate, usable)
    tops = [(max(module.rate, c.needed), c.request_price) for c in usable]
    hopeful = [served * each < price * (1 - ROUNDING) for served, each in tops]
    if not any(hopeful):
        return found
    usable = usable[: len(usable) - hopeful[::-1].index(True)]
    tops = [top for top, may in zip(tops, hopeful, strict=False) if may]
    labels: list[_Label] = [_Label(0.0, 0.0, (), 0.0)]
    for _, alike in groupby(usable, key=lambda c: c.request_price):
        longer = labels
        for choice in alike:
            goal = module.rate if choice is usable[-1] else 0.0
            longer = longer + [
                grown for label in longer for grown in label.grow(choice, max(goal, label.needed), tops, price)
            ]
        labels = []
        for label in longer:
            if label.rate < label.needed * (1 - ROUNDING):
                continue
            if label.rate < module.rate * (1 - ROUNDING):
                labels.append(label)
            elif label.price < price * (1 - ROUNDING):
                found, price = label.machines, label.price
        labels = _undominated(labels)
    return found


@dataclass(frozen=True, slots=True)
class _Usable:
    """A configuration that is fast enough for a budget."""

    configuration: Configuration
    throughput: float
    price: float
    request_price: float
    needed: float
    """What its machines and those of lower ratio must serve together, b / (L - d)."""

    def count(self, rate: float) -> int:
        """Machines for `rate`, at least one."""
        return max(1, ceil(rate / self.throughput - ROUNDING))


def _one_or_two(rate: float, usable: Sequence[_Usable]) -> tuple[Machines, float]:
    """The cheapest machines of one configuration, or of one at full load with another of lower ratio for the rest."""
    price: float = inf
    found: Machines = ()
    for k, main in enumerate(usable):
        demand = max(rate, main.needed)
        alone = main.count(demand)
        if alone * main.price < price:
            price, found = alone * main.price, ((main.configuration, alone),)
        full = floor(rate / main.throughput)
        left = demand - full * main.throughput
        if not full or full * main.price >= price:
            continue
        for other in usable[:k]:
            if full * main.price + max(1.0, left / other.throughput - 1) * other.price >= price:
                continue
            count = other.count(max(left, other.needed))
            both = full * main.price + count * other.price
            if both < price and other.request_price > main.request_price:
                price, found = both, ((main.configuration, full), (other.configuration, count))
    return found, price


@dataclass(frozen=True, slots=True)
class _Label:
    """Machines of the configurations so far."""

    rate: float
    """Requests per second at full load."""
    price: float
    machines: Machines
    """Highest throughput-cost ratio first."""
    needed: float
    """The rate that the machines of the last ratio must reach together."""

    def grow(
        self, choice: _Usable, goal: float, tops: Sequence[tuple[float, float]], limit: float
    ) -> Iterator["_Label"]:
        """This label with machines of one more configuration, at least to `goal`, while it may stay below `limit`."""
        limit *= 1 - ROUNDING
        most = max(max(tops)[0], choice.needed)
        needed = max(choice.needed, self.needed)
        count = choice.count(goal - self.rate)
        while True:
            rate = self.rate + count * choice.throughput
            price = self.price + count * choice.price
            for served, each in tops:
                if price + (served - rate) * each < limit and price < limit:
                    break
            else:
                return
            yield _Label(rate, price, ((choice.configuration, count), *self.machines), needed)
            if rate >= most:
                return
            count += 1


def _undominated(labels: Sequence[_Label]) -> list[_Label]:
    """Those that serve more than every cheaper one."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda x: (x.price, -x.rate)):
        if not kept or label.rate > kept[-1].rate:
            kept.append(_Label(label.rate, label.price, label.machines, 0.0))
    return kept


class _Walk:
    """A module's steps as far as they have been walked."""

    def __init__(self, module: Module, budget: float) -> None:
        self.module = module
        self.steps: list[Step] = []
        self.fastest = min(c.duration for c in module.configurations)
        self.beyond: list[Step] = []
        """Steps that are known without the walk having come to them."""
        self._ahead = machine_steps(module, budget)
        self.extend()

    @property
    def known(self) -> list[Step]:
        """All steps known so far."""
        return self.steps + self.beyond

    def extend(self) -> bool:
        """Walk one step further; false if there is none."""
        step = next(self._ahead, None) if len(self.steps) < MAX_STEPS else None
        if step is not None:
            self.steps.append(step)
        return step is not None


def _walk_to_the_optimum(walks: Mapping[str, _Walk], workload: Workload) -> SplitFound | None:
    """The cheapest split, from steps walked until no other one can be in it.

    A step that is not walked yet costs more than the last one and takes more than the fastest configuration alone. Its
    excess over the split's bound is so at least known.
    """
    while True:
        options = {name: [Option(s.latency, s.price) for s in walk.known] for name, walk in walks.items()}
        found = cheapest_split(workload, options)
        if found is None:
            return None
        slack = (found.cost - found.bound) * (1 - ROUNDING)
        grown = False
        for name, walk in walks.items():
            while found.excess_of(name, walk.fastest, walk.steps[-1].price) < slack and walk.extend():
                grown = True
        if not grown:
            return found


def _walk_to_the_slo(workload: Workload, walks: Mapping[str, _Walk]) -> bool:
    """Walk until the last steps keep the SLO; false if they do not in FIRST_STEPS."""
    ended: set[str] = set()
    rates: dict[str, float] = {}
    while True:
        latency = {name: walk.steps[-1].latency for name, walk in walks.items()}
        late = {n for p in workload.paths if sum(latency[m] for m in p.modules) > p.seconds for n in p.modules}
        if not late:
            return True
        if not late - ended:
            return False
        name = min(late - ended, key=lambda n: (rates.get(n, 0.0), n))
        if len(walks[name].steps) < FIRST_STEPS and walks[name].extend():
            before, after = walks[name].steps[-2:]
            rates[name] = (after.price - before.price) / (before.latency - after.latency)
        else:
            ended.add(name)


def _step_beside(begun: Answer | None, walks: Mapping[str, _Walk]) -> None:
    """Give every walk the step that takes no longer than an answer does."""
    for name, walk in walks.items():
        step = _step(walk.module, begun.latency[name]) if begun is not None else None
        if step is not None:
            walk.beyond.append(step)


def _loaded(step: Step, rate: float, budget: float) -> Schedule:
    """The step's machines under the module's own rate if that keeps the budget, else with dummies at full load."""
    left, loads = rate, []
    for configuration, count in step.machines:
        load = min(left, count * configuration.throughput)
        loads.append(Allocation(configuration, load))
        left -= load
    if all(a.rate > 0 for a in loads) and batch_aware_latency(loads) <= budget:
        return batch_aware_schedule(loads, rate)
    return batch_aware_schedule(_at_full_load(step.machines), rate)


def _at_full_load(machines: Machines) -> list[Allocation]:
    return [Allocation(c, n * c.throughput) for c, n in machines]
