"""The exact optimum in the papers' setting, by machines that share the load: spread.

**Occupancy.** Some machine has the highest throughput-cost ratio of all, p/t for each request. It collects at the rate
w of the whole module, dummies included, and nothing the module gets is cheaper than on it. So it may as well get all:

    cost(L) = min over configurations of  p/t * max(T, b / (L - d))

with machines of one configuration that share the load. No residual machine is needed, and dummies only where T is too
low to fill a batch in time.

**Allocated.** Whole machines are paid for, so that dummies are free up to full load. Then with n machines of each
configuration a set keeps a budget L if each configuration in it has w >= b / (L - d), w being what its machines and
those of lower ratio serve at full load. `cheapest_machines` finds the cheapest set by labels <w, price>, from the
lowest ratio up; walking L down gives the steps of the module's frontier.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, inf

from partita_planner.configurations.exact_split import Option, cheapest_split
from partita_planner.configurations.schedule import ROUNDING, Allocation, Answer, Schedule, batch_aware_latency
from partita_planner.configurations.workload import Configuration, Module, Workload

Machines = tuple[tuple[Configuration, int], ...]
"""Configurations with machine counts, in the order of dispatch."""


def least_occupancy(workload: Workload) -> Answer | None:
    """The cheapest answer by occupancy; None if none keeps the SLO."""
    curves = {module.name: _curves(module) for module in workload.modules}
    split = cheapest_split(
        workload, {name: [_option(c, module) for c in curves[name]] for name, module in workload.by_name.items()}
    )
    if split is None:
        return None
    schedules = {}
    for name, choice in split.choices.items():
        configuration, rate = curves[name][choice.option], workload.by_name[name].rate
        longest = configuration.batch / rate
        collected = configuration.batch / choice.collection if 0 < choice.collection < longest else rate
        schedules[name] = _schedule([Allocation(configuration, max(rate, collected))], rate)
    return Answer(schedules)


def least_allocated(workload: Workload) -> Answer | None:
    """The cheapest answer by whole machines; None if none keeps the SLO."""
    begun = least_occupancy(workload)
    if begun is None:
        return None
    steps = _steps_worth_a_look(workload, begun)
    options = {name: [Option(s.latency, s.price) for s in own] for name, own in steps.items()}
    split = cheapest_split(workload, options)
    if split is None:
        return None
    chosen = {name: steps[name][choice.option] for name, choice in split.choices.items()}
    room = workload.room({name: step.latency for name, step in chosen.items()})
    return Answer({name: _loaded(step, workload.by_name[name].rate, room[name]) for name, step in chosen.items()})


@dataclass(frozen=True)
class Step:
    """One step of a module's frontier of whole machines."""

    machines: Machines
    price: float
    latency: float
    """Worst case in seconds when dummies keep all machines at full load."""


def machine_steps(module: Module, budget: float) -> Iterator[Step]:
    """The module's least price by latency budget, from `budget` down; every step is dearer than the one before it."""
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


def cheapest_machines(module: Module, budget: float) -> Machines | None:
    """The cheapest machines that serve the module within `budget` seconds; None if none do.

    With c the configuration of highest ratio in a set, its machines serve at least max(T, b / (L - d)) at c's price for
    a request or more. That bounds what labels can become, and leaves out the configurations that are too dear as c.
    """
    usable = [c for c in reversed(module.ranked) if c.duration < budget]
    if not usable:
        return None
    needed = {c: c.batch / (budget - c.duration) for c in usable}
    found, price = _one_or_two(module, usable, needed)
    tops = [(max(module.rate, needed[c]), c.request_price) for c in usable]
    hopeful = [served * each < price * (1 - ROUNDING) for served, each in tops]
    if not any(hopeful):
        return found
    usable = usable[: len(usable) - hopeful[::-1].index(True)]
    tops = [top for top, may in zip(tops, hopeful, strict=False) if may]
    labels: list[_Label] = [_Label(0.0, 0.0, (), 0.0)]
    for _, alike in groupby(usable, key=lambda c: c.request_price):
        longer = labels
        for configuration in alike:
            goal = module.rate if configuration is usable[-1] else 0.0
            longer = longer + [
                grown
                for label in longer
                for grown in label.grow(configuration, needed[configuration], max(goal, label.needed), tops, price)
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


def _one_or_two(
    module: Module, usable: Sequence[Configuration], needed: Mapping[Configuration, float]
) -> tuple[Machines, float]:
    """The cheapest machines of one configuration, or of one at full load with another of lower ratio for the rest."""
    price: float = inf
    found: Machines = ()
    for k, main in enumerate(usable):
        alone = _count(max(module.rate, needed[main]), main)
        if alone * main.price < price:
            price, found = alone * main.price, ((main, alone),)
        full = floor(module.rate / main.throughput)
        if not full or full * main.price >= price:
            continue
        served = full * main.throughput
        for other in usable[:k]:
            count = _count(max(max(module.rate, needed[main]) - served, needed[other]), other)
            if full * main.price + count * other.price < price and other.request_price > main.request_price:
                price, found = full * main.price + count * other.price, ((main, full), (other, count))
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
        self,
        configuration: Configuration,
        needed: float,
        goal: float,
        tops: Sequence[tuple[float, float]],
        limit: float,
    ) -> Iterator["_Label"]:
        """This label with machines of one more configuration, at least to `goal`, while it may stay below `limit`."""
        throughput, limit = configuration.throughput, limit * (1 - ROUNDING)
        most = max(served for served, _ in tops)
        count = _count(goal - self.rate, configuration)
        while True:
            rate = self.rate + count * throughput
            price = self.price + count * configuration.price
            if price + min(max(0.0, served - rate) * each for served, each in tops) >= limit:
                return
            yield _Label(rate, price, ((configuration, count), *self.machines), max(needed, self.needed))
            if rate >= max(most, needed):
                return
            count += 1


def _undominated(labels: Sequence[_Label]) -> list[_Label]:
    """Those that serve more than every cheaper one."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda x: (x.price, -x.rate)):
        if not kept or label.rate > kept[-1].rate:
            kept.append(_Label(label.rate, label.price, label.machines, 0.0))
    return kept


def _steps_worth_a_look(workload: Workload, begun: Answer) -> dict[str, list[Step]]:
    """The steps of every module that may be in an answer as cheap as the one that `begun` leads to."""
    latency = begun.latency
    prices = {}
    for module in workload.modules:
        latency[module.name] = workload.room(latency)[module.name]
        step = _step(module, latency[module.name])
        if step is not None:
            latency[module.name], prices[module.name] = min(latency[module.name], step.latency), step.price
    room = workload.room({m.name: min(c.duration for c in m.configurations) for m in workload.modules})
    walks = {m.name: machine_steps(m, room[m.name]) for m in workload.modules}
    steps = {name: [next(walk)] for name, walk in walks.items()}
    slack = sum(prices.values()) - sum(own[0].price for own in steps.values())
    for name, walk in walks.items():
        for step in walk:
            if step.price - steps[name][0].price > slack * (1 + ROUNDING) + ROUNDING:
                break
            steps[name].append(step)
    return steps


def _loaded(step: Step, rate: float, budget: float) -> Schedule:
    """The step's machines under the module's own rate if that keeps the budget, else with dummies at full load."""
    left, loads = rate, []
    for configuration, count in step.machines:
        load = min(left, count * configuration.throughput)
        loads.append(Allocation(configuration, load))
        left -= load
    if all(a.rate > 0 for a in loads) and batch_aware_latency(loads) <= budget:
        return _schedule(loads, rate)
    return _schedule(_at_full_load(step.machines), rate)


def _schedule(allocations: Sequence[Allocation], rate: float) -> Schedule:
    dummy = sum(a.rate for a in allocations) - rate
    return Schedule(tuple(allocations), batch_aware_latency(allocations), dummy if dummy > ROUNDING * rate else 0.0)


def _at_full_load(machines: Machines) -> list[Allocation]:
    return [Allocation(c, n * c.throughput) for c, n in machines]


def _count(rate: float, configuration: Configuration) -> int:
    return max(1, ceil(rate / configuration.throughput - ROUNDING))


def _curves(module: Module) -> list[Configuration]:
    """The configurations whose cost no other one stays below at every budget."""
    kept: list[Configuration] = []
    for c in module.ranked:
        if not any(k.duration <= c.duration and _area(k) <= _area(c) for k in kept):
            kept.append(c)
    return kept


def _option(configuration: Configuration, module: Module) -> Option:
    if not configuration.price:
        return Option(configuration.duration + configuration.batch / module.rate, 0.0)
    return Option(configuration.duration, configuration.request_price * module.rate, _area(configuration))


def _area(configuration: Configuration) -> float:
    """What a second of collection costs: b requests for p / t each."""
    return configuration.request_price * configuration.batch
