"""The DAG of a session's modules: their order and the longest paths."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import session

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import longest_after, longest_paths, topological_order

MODULES = ("d", "a", "c", "b")
"""In the order of the paths; not in that of the names."""


def diamond() -> InferenceSessionSpec:
    built = session("s").model("tail").model("detect").model("car").model("face").function("join")
    built = built.edge("detect", "car").edge("detect", "face").edge("car", "join").edge("face", "join")
    return built.edge("join", "tail").build().spec


def test_order_puts_upstream_first() -> None:
    assert topological_order(diamond()) == ("detect", "car", "face", "join", "tail")


def test_order_of_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="a -> b -> a"):
        topological_order(session("s").chain("a", "b").edge("b", "a").build().spec)


def test_time_after_a_module_is_that_of_the_slowest_branch() -> None:
    after = longest_after(diamond(), {"detect": 100, "car": 20, "face": 30, "tail": 4})

    assert after == {"detect": 34, "car": 4, "face": 4, "join": 4, "tail": 0}


@given(st.sets(st.sampled_from(list(combinations(MODULES, 2)))), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_longest_paths_are_the_longest_of_all_paths(edges: set[tuple[str, str]], times: list[int]) -> None:
    time = dict(zip(MODULES, times, strict=True))
    built = session("s")
    for name in sorted(MODULES):
        built = built.model(name)
    for source, target in sorted(edges):
        built = built.edge(source, target)
    spec = built.build().spec

    def paths_from(name: str) -> list[list[str]]:
        return [[name], *([name, *rest] for source, target in edges if source == name for rest in paths_from(target))]

    paths = [path for name in MODULES for path in paths_from(name)]
    ending = longest_paths(topological_order(spec), sorted(edges), time)
    for name in MODULES:
        assert ending[name].time == max(sum(time[m] for m in path) for path in paths if path[-1] == name)
        assert ending[name].time == sum(time[m] for m in ending[name].modules)
    assert longest_after(spec, time) == {
        name: max(sum(time[m] for m in path[1:]) for path in paths_from(name)) for name in MODULES
    }
