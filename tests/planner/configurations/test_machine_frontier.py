"""The frontier of whole machines against all sets of a few machines."""

from itertools import product
from random import Random

import pytest

from partita_planner.configurations.machine_frontier import Frontier
from partita_planner.configurations.schedule import Allocation, batch_aware_latency
from partita_planner.configurations.workload import Configuration, WorkloadModule

MOST_MACHINES = 6
LONGEST = 2.0
SEEDS = range(12)
SECOND_PRICES = (0.0, 0.5, 20.0)


def small_module(seed: int) -> WorkloadModule:
    """Three configurations that serve the rate with a few machines, two of them at one price."""
    dice = Random(seed)
    choices = (
        Configuration(b, dice.uniform(0.1, 0.4), h, p) for b, h, p in ((1, "a", 1.0), (4, "a", 1.0), (2, "b", 1.5))
    )
    return WorkloadModule("m", dice.uniform(2, 12), tuple(choices))


def every_set(module: WorkloadModule) -> list[tuple[float, float]]:
    """Latency and price of all sets of a few machines that serve the module."""
    found = []
    for counts in product(range(MOST_MACHINES + 1), repeat=3):
        loads = [Allocation(c, n * c.throughput) for c, n in zip(module.configurations, counts, strict=True) if n]
        if sum(a.rate for a in loads) >= module.rate:
            price = sum(n * c.price for n, c in zip(counts, module.configurations, strict=True))
            found.append((batch_aware_latency(loads), price))
    return found


def looked_at(seed: int, budgets: int) -> Frontier:
    """A frontier of which the cheapest machines within a few budgets are known."""
    frontier, dice = Frontier(small_module(seed), LONGEST), Random(seed)
    for _ in range(budgets):
        frontier.evaluate_at(dice.uniform(0.3, LONGEST))
    return frontier


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_cheaper_between_a_step_and_its_budget(seed: int) -> None:
    sets = every_set(small_module(seed))

    for step in looked_at(seed, 6).steps:
        assert step.price == pytest.approx(sum(n * c.price for c, n in step.machines))
        assert all(price >= step.price * (1 - 1e-9) for latency, price in sets if latency <= step.budget)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("second_price", SECOND_PRICES)
def test_what_is_not_known_is_bounded(seed: int, second_price: float) -> None:
    sets, frontier = every_set(small_module(seed)), looked_at(seed, 3)

    for gap in frontier.gaps():
        inside = [price + second_price * latency for latency, price in sets if gap.low < latency < gap.high]
        assert min(inside, default=float("inf")) >= frontier.least_in(gap, second_price) * (1 - 1e-9)
        for limit in (1.0, 5.0, 20.0):
            highest = frontier.highest_in(gap, second_price, limit)
            beyond = [price + second_price * at for at, price in sets if highest * (1 + 1e-6) < at < gap.high]
            assert all(worth >= limit * (1 - 1e-6) for worth in beyond)


@pytest.mark.parametrize("seed", SEEDS)
def test_looking_at_the_gaps_ends_with_all_steps(seed: int) -> None:
    sets, frontier = every_set(small_module(seed)), Frontier(small_module(seed), LONGEST)
    lowest = min(latency for latency, _ in sets)

    while gap := next((gap for gap in frontier.gaps() if gap.high > lowest * 1.001), None):
        frontier.evaluate(gap, frontier.highest_in(gap, 0.0, float("inf")))

    for latency, price in sets:
        known = [step.price for step in frontier.steps if step.latency <= latency * (1 + 1e-8)]
        assert min(known) <= price * (1 + 1e-9)
    prices = [step.price for step in frontier.steps]
    assert prices == sorted(prices, reverse=True)
