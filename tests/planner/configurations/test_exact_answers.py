"""The exact answers against brute force on small random workloads."""

from itertools import product
from random import Random

import pytest
from tests.planner.configurations.workloads import HARPAGON_M3, chain

from partita_planner.configurations.collection import shortest_collections
from partita_planner.configurations.exact_split import SplitOption, cheapest_split
from partita_planner.configurations.schedule import WorkloadSchedule, batch_aware_latency
from partita_planner.configurations.spread import least_occupancy
from partita_planner.configurations.whole_machines import least_allocated
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule

MOST_MACHINES = 4
SEEDS = range(24)
Shape = tuple[tuple[int, int], ...]
SHAPES: tuple[Shape, ...] = ((), ((0, 1),), ((0, 1), (0, 2)))


def small_workload(seed: int) -> Workload:
    """One to three modules with three configurations each, two of which may have the same throughput-cost ratio."""
    dice = Random(seed)
    edges = SHAPES[seed % len(SHAPES)]
    size = 1 + max((end for edge in edges for end in edge), default=0)
    modules = []
    for i in range(size):
        choices = [
            Configuration(b, dice.choice((0.1, 0.2, 0.25, 0.4)), h, p)
            for b, h, p in ((1, "a", 1.0), (4, "a", 1.0), (2, "b", 1.5))
        ]
        modules.append(WorkloadModule(f"m{i}", dice.uniform(1, 30), tuple(choices)))
    slo = dice.uniform(1.6, 5.0) * 0.25 * (1 if size == 1 else 2)
    return Workload(tuple(modules), tuple((f"m{a}", f"m{b}") for a, b in edges), slo)


def holds(answer: WorkloadSchedule, workload: Workload) -> bool:
    """Whether the answer serves the rates and keeps the SLO by Theorem 1."""
    latency = {name: batch_aware_latency(s.allocations) for name, s in answer.schedules.items()}
    served = {name: sum(a.rate for a in s.allocations) for name, s in answer.schedules.items()}
    enough = all(served[m.name] >= m.rate * (1 - 1e-9) for m in workload.modules)
    return enough and all(sum(latency[n] for n in p.modules) <= p.seconds * (1 + 1e-9) for p in workload.paths)


def loads(module: WorkloadModule, shares: tuple[float, ...]) -> tuple[float, float]:
    """Latency by Theorem 1 and occupancy of a module whose configurations get these rates."""
    used = [(c, rate) for c, rate in zip(module.configurations, shares, strict=True) if rate]
    latency = max(
        c.duration
        + c.batch / sum(r for o, r in used if o.price * o.duration / o.batch >= c.price * c.duration / c.batch)
        for c, _ in used
    )
    return latency, sum(c.price * c.duration / c.batch * rate for c, rate in used)


def cheapest(workload: Workload, candidates: dict[str, list[tuple[float, float]]]) -> float:
    """The least cost of one <latency, cost> for each module within the SLO; infinite if there is none."""
    names = [m.name for m in workload.modules]
    best = float("inf")
    for chosen in product(*(pareto(candidates[name]) for name in names)):
        latency = dict(zip(names, (c[0] for c in chosen), strict=True))
        if workload.keeps_slo(latency):
            best = min(best, sum(c[1] for c in chosen))
    return best


def pareto(candidates: list[tuple[float, float]]) -> list[tuple[float, float]]:
    kept: list[tuple[float, float]] = []
    for latency, cost in sorted(candidates):
        if not kept or cost < kept[-1][1]:
            kept.append((latency, cost))
    return kept


@pytest.mark.parametrize("seed", SEEDS)
def test_no_loads_are_cheaper_by_occupancy(seed: int) -> None:
    """Brute force: up to twice the rate, dummies included, in steps of a quarter on every configuration."""
    workload = small_workload(seed)
    steps = [share / 4 for share in range(9)]
    grid = [shares for shares in product(steps, repeat=3) if 1 <= sum(shares) <= 2]
    least = cheapest(
        workload,
        {m.name: [loads(m, tuple(m.rate * s for s in shares)) for shares in grid] for m in workload.modules},
    )

    found = least_occupancy(workload)

    assert found is not None or least == float("inf")
    if found is not None:
        assert holds(found, workload)
        assert found.occupancy <= least * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_machines_are_cheaper(seed: int) -> None:
    """Brute force: up to four machines of every configuration, at full load."""
    workload = small_workload(seed)
    counts = [c for c in product(range(MOST_MACHINES + 1), repeat=3) if any(c)]
    candidates = {
        m.name: [
            (loads(m, rates)[0], sum(n * c.price for n, c in zip(count, m.configurations, strict=True)))
            for count in counts
            for rates in [tuple(n * c.throughput for n, c in zip(count, m.configurations, strict=True))]
            if sum(rates) >= m.rate
        ]
        for m in workload.modules
    }
    least = cheapest(workload, candidates)

    found = least_allocated(workload)

    assert found is not None or least == float("inf")
    if found is not None:
        assert holds(found, workload)
        assert found.allocated <= least * (1 + 1e-9)
        assert found.allocated == pytest.approx(
            sum(a.machines * a.configuration.price for s in found.schedules.values() for a in s.allocations)
        )


def test_dummies_where_a_batch_would_not_fill_in_time() -> None:
    """12 req/s, batches of 2 in 1 s at most 1.1 s: 20 req/s fill them in time, at 20 / 12 of the cost."""
    module = WorkloadModule("m", 12, (Configuration(2, 1.0, "gpu", 1.0),))

    found = least_occupancy(chain(1.1, module))

    assert found is not None
    assert found.schedules["m"].dummy == pytest.approx(8)
    assert found.occupancy == pytest.approx(10)


@pytest.mark.parametrize(
    ("slo", "want"),
    [pytest.param(2.0, 0.0, id="free machines are in time"), pytest.param(0.3, 3.0, id="only paid ones are")],
)
def test_machines_that_cost_nothing(slo: float, want: float) -> None:
    module = WorkloadModule("m", 4, (Configuration(2, 1.0, "free", 0.0), Configuration(1, 0.05, "paid", 3.0)))

    found = least_allocated(chain(slo, module))

    assert found is not None
    assert found.allocated == want
    assert least_occupancy(chain(slo, module)) is not None


def test_points_are_split_as_by_enumeration() -> None:
    dice = Random(5)
    edges = (("m0", "m1"), ("m0", "m2"), ("m1", "m3"), ("m2", "m3"), ("m1", "m4"))
    modules = tuple(WorkloadModule(f"m{i}", 1.0, HARPAGON_M3) for i in range(5))
    for _ in range(20):
        workload = Workload(modules, edges, dice.uniform(0.5, 3.0))
        options = {
            m.name: [SplitOption(dice.uniform(0.05, 1.0), dice.uniform(1, 9)) for _ in range(5)] for m in modules
        }
        least = cheapest(workload, {name: [(o.seconds, o.cost) for o in own] for name, own in options.items()})

        found = cheapest_split(workload, options)

        assert (found.cost if found else float("inf")) == pytest.approx(least)


def test_two_modules_side_by_side_collect_like_one_of_twice_the_price() -> None:
    """Which is solved in closed form: y in proportion to the square root of a."""
    want = shortest_collections([4.0, 2.0], [9.0, 9.0], [[0, 1]], [1.0], float("inf"))

    found = shortest_collections([4.0, 1.0, 1.0], [9.0, 9.0, 9.0], [[0, 1], [0, 2]], [1.0, 1.0], float("inf"))

    assert want is not None
    assert found is not None
    assert found == pytest.approx([want[0], want[1], want[1]], rel=1e-4)
    assert 4 / found[0] + 1 / found[1] + 1 / found[2] == pytest.approx(4 / want[0] + 2 / want[1], rel=1e-9)
