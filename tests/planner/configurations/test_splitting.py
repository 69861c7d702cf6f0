"""How the heuristics split an SLO, and what they do with the latency that is left."""

import pytest
from tests.planner.configurations.workloads import HARPAGON_M3, chain

from partita_planner.configurations.heuristic import HeuristicOptions, solve_heuristically
from partita_planner.configurations.module_scheduling import Dummies, SchedulingRules
from partita_planner.configurations.splitting import Criterion, EvenSplit, GreedySplit, QuantizedSplit, Split
from partita_planner.configurations.workload import Configuration, Workload, WorkloadModule

RULES = SchedulingRules(dummies=Dummies.NONE)
COLLECTION = 1.0
"""Seconds until a batch of one request at 1 request/s is collected: all latencies have it."""


def module(name: str, *options: tuple[float, float]) -> WorkloadModule:
    """With a choice of <seconds for a batch, cost>."""
    configurations = [Configuration(1, seconds, "gpu", price=cost / seconds) for seconds, cost in options]
    return WorkloadModule(name, 1.0, tuple(configurations))


def executions(split: Split, workload: Workload) -> list[dict[str, float]]:
    """The last split of each try, as seconds for a batch."""
    tries = split.budgets(workload, RULES)
    return [{name: round(seconds - COLLECTION, 6) for name, seconds in budgets[0].items()} for budgets in tries]


def test_modules_with_the_same_neighbours_move_as_one() -> None:
    """The example of node merger (Harpagon, section III-D): LC of 10 + 15 > 20, with latency for one move."""
    modules = (
        module("x", (1, 30), (2, 30 - 20)),
        module("y", (1, 30), (2, 30 - 10)),
        module("z", (1, 30), (2, 30 - 15)),
    )
    workload = Workload(modules, (("x", "y"), ("x", "z")), slo=2 * COLLECTION + 3)

    alone, merged = executions(GreedySplit(node_merger=True), workload)

    assert alone == {"x": 2, "y": 1, "z": 1}
    assert merged == {"x": 1, "y": 2, "z": 2}
    best = solve_heuristically(workload, options=HeuristicOptions(RULES, GreedySplit(node_merger=True)))
    assert best is not None
    assert best.occupancy == pytest.approx(30 + 20 + 15)


def test_modules_without_neighbours_are_not_merged() -> None:
    workload = Workload((module("x", (1, 30), (2, 10)), module("y", (1, 30))), (), slo=COLLECTION + 2)

    alone, merged = executions(GreedySplit(node_merger=True), workload)

    assert alone == merged == {"x": 2, "y": 1}


LC_20 = module("x", (0.1, 10), (0.11, 10 - 0.01 * 20))
LC_10 = module("y", (0.1, 10), (0.2, 10 - 0.1 * 10))


@pytest.mark.parametrize(
    ("undone", "moved"),
    [
        pytest.param(0, ["x"], id="none"),
        pytest.param(1, ["x", "y"], id="the last move"),
        pytest.param(9, ["x", "y"], id="all"),
    ],
)
def test_the_last_moves_are_undone_and_continued_by_cost(undone: int, moved: list[str]) -> None:
    """The example of cost-direct (Harpagon, section III-D): 0.1 s x 10 > 0.01 s x 20, with latency for one move."""
    workload = chain(2 * COLLECTION + 0.305, LC_20, LC_10)

    tries = executions(GreedySplit(cost_direct=undone), workload)

    splits = {"x": {"x": 0.11, "y": 0.1}, "y": {"x": 0.1, "y": 0.2}}
    assert tries == [splits[name] for name in moved]


@pytest.mark.parametrize(
    ("criterion", "moved"),
    [
        pytest.param(Criterion.EFFICIENCY, {"x": 0.11, "y": 0.1, "z": 0.1}, id="most cost for each second"),
        pytest.param(Criterion.COST, {"x": 0.1, "y": 0.2, "z": 0.1}, id="most cost"),
        pytest.param(Criterion.THROUGHPUT, {"x": 0.1, "y": 0.1, "z": 0.2}, id="most throughput for its price"),
    ],
)
def test_the_criterion_chooses_the_move(criterion: Criterion, moved: dict[str, float]) -> None:
    workload = chain(3 * COLLECTION + 0.405, LC_20, LC_10, module("z", (0.1, 1), (0.2, 0.5)))

    assert executions(GreedySplit(criterion), workload) == [moved]


def test_moves_go_on_while_they_keep_the_slo() -> None:
    workload = chain(2 * COLLECTION + 4, module("x", (1, 30), (2, 20), (3, 18)), module("y", (1, 30), (2, 25)))

    (splits,) = GreedySplit().budgets(workload, RULES)

    seconds = [tuple(round(split[name] - COLLECTION, 6) for name in "xy") for split in splits]
    assert seconds == [(2, 2), (2, 1), (1, 1)], "from the last one to the fastest configurations"


def test_no_split_without_latency_for_the_fastest_configurations() -> None:
    workload = chain(2 * COLLECTION + 1.9, module("x", (1, 30)), module("y", (1, 30)))

    assert executions(GreedySplit(node_merger=True, cost_direct=3), workload) == []


def test_budgets_are_scaled_to_the_slo_in_proportion() -> None:
    workload = chain(10.0, module("x", (1, 30)), module("y", (2, 30)))

    ((budgets,),) = GreedySplit(proportional=True).budgets(workload, RULES)

    assert dict(budgets) == pytest.approx({"x": 4.0, "y": 6.0})


@pytest.mark.parametrize(
    ("interval", "budgets"),
    [
        pytest.param(0.5, {"x": 3.0, "y": 2.0}, id="fine"),
        pytest.param(2.0, {"x": 2.0, "y": 2.0}, id="so coarse that the cheaper split is no multiple"),
    ],
)
def test_quantized_budgets_are_the_cheapest_multiples(interval: float, budgets: dict[str, float]) -> None:
    workload = chain(5.5, module("x", (1, 30), (2, 10)), module("y", (1, 30), (2, 20)))

    assert list(QuantizedSplit(interval).budgets(workload, RULES)) == [[budgets]]


def test_the_largest_quantized_budget_is_the_last_multiple() -> None:
    workload = chain(3.1, module("x", (1, 30), (2, 10)))

    assert list(QuantizedSplit(3.0).budgets(workload, RULES)) == [[{"x": 3.0}]]


def test_even_budgets_are_those_of_the_longest_path() -> None:
    modules = tuple(module(name, (1, 30)) for name in ("a", "b", "c", "d"))
    edges = (("a", "b"), ("b", "c"), ("a", "d"), ("d", "resize"))
    workload = Workload(modules, edges, slo=6.0, delays={"resize": 1.0})

    assert list(EvenSplit().budgets(workload, RULES)) == [[{"a": 2.0, "b": 2.0, "c": 2.0, "d": 2.5}]]


@pytest.mark.parametrize(
    ("times", "saved"),
    [
        pytest.param(0, 0, id="never"),
        pytest.param(1, 1, id="to one module"),
        pytest.param(None, 2, id="as often as it pays"),
    ],
)
def test_residual_workloads_get_the_latency_that_is_left(times: int | None, saved: int) -> None:
    """The last 6 of 198 requests/s can wait for a batch of 8, 0.25 s + 8/6 s, instead of one of 2 (section III-C)."""
    modules = tuple(WorkloadModule(name, 198.0, HARPAGON_M3) for name in ("x", "y"))
    workload = Workload(modules, (), slo=1.6)

    answer = solve_heuristically(workload, options=HeuristicOptions(RULES, GreedySplit(), reassign=times))

    assert answer is not None
    assert answer.occupancy == pytest.approx(2 * 5.3 - saved * (6 / 20 - 6 / 32))
    assert max(schedule.latency for schedule in answer.schedules.values()) <= 1.6
