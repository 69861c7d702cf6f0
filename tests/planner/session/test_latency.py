"""Collection delays, and how a path's slack becomes budgets."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_planner.session.latency import LatencyGraph, collection_micros, distribute_slack


def graph(slo: int, edges: list[tuple[str, str]], fixed: Mapping[str, int] | None = None) -> LatencyGraph:
    names = sorted({name for edge in edges for name in edge} | {"a"} | set(fixed or {}))
    return LatencyGraph(order=tuple(names), edges=tuple(edges), fixed=fixed or {}, slo_micros=slo)


@pytest.mark.parametrize(
    ("batch", "rate", "want"),
    [
        pytest.param(1, 0.001, 0, id="a batch of one does not wait"),
        pytest.param(5, 100, 40_000, id="four more samples at 100 a second"),
        pytest.param(4, 1_000_000, 3, id="fast arrivals"),
        pytest.param(2, 3, 333_334, id="rounded up"),
    ],
)
def test_collection(batch: int, rate: float, want: int) -> None:
    assert collection_micros(batch, rate) == want


@pytest.mark.parametrize(
    ("described", "latency", "want"),
    [
        pytest.param(graph(100, []), {"a": 40}, {"a": 100}, id="one module takes it all"),
        pytest.param(graph(100, [("a", "b")]), {"a": 10, "b": 40}, {"a": 20, "b": 80}, id="in proportion"),
        pytest.param(
            graph(100, [("a", "f"), ("f", "z")], {"f": 40}), {"a": 10, "z": 20}, {"a": 20, "z": 40}, id="functions keep"
        ),
        pytest.param(
            graph(100, [("a", "b"), ("a", "c")]),
            {"a": 20, "b": 30, "c": 5},
            {"a": 40, "b": 60, "c": 60},
            id="a short branch grows when the long one is full",
        ),
        pytest.param(graph(50, [("a", "b")]), {"a": 20, "b": 30}, {"a": 20, "b": 30}, id="no slack"),
    ],
)
def test_stretch(described: LatencyGraph, latency: dict[str, int], want: dict[str, int]) -> None:
    assert distribute_slack(described, latency) == want


@st.composite
def graphs(draw: st.DrawFn) -> tuple[LatencyGraph, dict[str, int]]:
    names = [f"n{i}" for i in range(draw(st.integers(1, 7)))]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    functions = draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))
    fixed = {name: draw(st.integers(0, 50)) for name in functions}
    latency = {name: draw(st.integers(1, 1000)) for name in names if name not in functions}
    empty = LatencyGraph(tuple(names), tuple(edges), fixed, 1)
    slo = int(empty.longest(latency)) + draw(st.integers(0, 500))
    return LatencyGraph(tuple(names), tuple(edges), fixed, slo), latency


@given(drawn=graphs())
def test_budgets_hold_latencies_and_fill_paths(drawn: tuple[LatencyGraph, dict[str, int]]) -> None:
    described, latency = drawn

    budgets = distribute_slack(described, latency)

    through = described.through(budgets)
    assert all(budgets[name] >= latency[name] for name in latency)
    assert described.longest(budgets) <= described.slo_micros
    rounding = len(described.order)
    assert all(through[name] > described.slo_micros - rounding for name in latency)
