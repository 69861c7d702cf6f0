"""The DAG of a session's modules: their order, the longest paths, and their size classes."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import SessionBuilder, session

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.module_graph import longest_after, longest_paths, topological_order, with_size_classes

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


def edges_of(spec: InferenceSessionSpec) -> dict[tuple[str, str], tuple[str, int]]:
    return {(e.source, e.target): (str(e.fan_out.mean), e.fan_out.max) for e in spec.edges}


def test_a_session_without_size_classes_is_as_it_was() -> None:
    spec = diamond()
    assert with_size_classes(spec) is spec


@pytest.mark.parametrize(
    ("built", "modules", "edges"),
    [
        pytest.param(
            session("s").sized("read", {8: "80%", 32: "20%"}),
            {"read-s8": (3, 32, 8), "read-s32": (3, 32, 32)},
            {},
            id="a root",
        ),
        pytest.param(
            session("s").model("find").sized("read", {8: "75%", 32: "25%"}).edge("find", "read", "6", 16),
            {"find": (3, 32, 32), "read-s8": (3, 32, 8), "read-s32": (3, 32, 32)},
            {("find", "read-s8"): ("4.5", 16), ("find", "read-s32"): ("1.5", 16)},
            id="each class has its share of a fan-out",
        ),
        pytest.param(
            session("s").sized("read", {8: None, 32: None}).function("join").edge("read", "join"),
            {"read-s8": (3, 32, 8), "read-s32": (3, 32, 32), "join": None},
            {("read-s8", "join"): ("1", 1), ("read-s32", "join"): ("1", 1)},
            id="all classes lead to what is downstream",
        ),
        pytest.param(
            session("s").sized("a", {8: None, 32: None}).sized("b", {16: None, 32: None}).edge("a", "b"),
            {"a-s8": (3, 32, 8), "a-s32": (3, 32, 32), "b-s16": (3, 32, 16), "b-s32": (3, 32, 32)},
            {(a, b): ("0.5", 1) for a in ("a-s8", "a-s32") for b in ("b-s16", "b-s32")},
            id="classes after classes",
        ),
    ],
)
def test_size_classes_take_the_place_of_their_module(
    built: SessionBuilder,
    modules: dict[str, tuple[int, ...] | None],
    edges: dict[tuple[str, str], tuple[str, int]],
) -> None:
    served = with_size_classes(built.build().spec)
    assert {m.name: m.input.shape if m.input else None for m in served.modules} == modules
    assert edges_of(served) == edges
    assert all(m.sizes is None and (m.input is None or m.input.variable_dimension is None) for m in served.modules)


def test_size_classes_have_the_batching_policy_of_their_module() -> None:
    built = session("s").sized("read", {8: None, 32: None}).model("other")
    spec = built.with_spec(batching={"modules": {"read": "Eager", "other": "Elsa"}}).build().spec
    assert with_size_classes(spec).batching.modules == {"read-s8": "Eager", "read-s32": "Eager", "other": "Elsa"}


def test_a_size_class_is_profiled_like_a_module_of_its_size() -> None:
    (small, _) = with_size_classes(session("s").sized("read", {8: None, 32: None}, padding="-1").build().spec).modules
    (fixed,) = session("s").model("read").build().spec.modules
    assert fixed.input is not None
    assert small.model == fixed.model
    assert small.input == fixed.input.model_copy(update={"shape": (3, 32, 8)})


def test_documents_without_variable_sizes_and_conditions_are_what_they_were() -> None:
    """Content keys of profiles and plans are digests of such documents."""
    spec = session("s").model("read").function("f").edge("read", "f").build().spec
    module = spec.modules[0]
    assert "join" not in module.model_dump()
    assert not {"when", "share"} & spec.edges[0].model_dump().keys()
    assert not {"sizes", "variable_dimension", "padding"} & {*module.model_dump(), *module.model_dump()["input"]}
