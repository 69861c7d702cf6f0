"""Checks of a session's DAG, and the rates of its modules."""

import pytest
from tests.builders import SessionBuilder, linear_profiles, pool, problem, session

from partita_api.inferencesession import InferenceSessionSpec
from partita_api.session.module import Join
from partita_planner.planning import plan
from partita_planner.problem import Planned
from partita_planner.session.session_graph import module_rates, session_problems

CHAIN = session("s").chain("a", "b")


@pytest.mark.parametrize(
    ("built", "want"),
    [
        pytest.param(CHAIN.model("a"), "module 'a' is defined 2 times", id="two modules of one name"),
        pytest.param(CHAIN.edge("b", "a"), "form a cycle, a -> b -> a: remove one of them", id="cycle"),
        pytest.param(CHAIN.edge("a", "b"), "edge a -> b is defined 2 times: keep one", id="two equal edges"),
        pytest.param(
            CHAIN.model("c").edge("a", "c").edge("b", "c"),
            "model 'c' has 2 upstream modules: join them in a function",
            id="model as a join",
        ),
        pytest.param(
            session("s").model("a").model("b").edge("a", "b", mean="3", most=2),
            "mean fan-out of 3, above its max of 2: raise fanOut.max",
            id="mean above max",
        ),
        pytest.param(
            session("s").model("a").model("b").edge("a", "b", mean="0"),
            "mean fan-out of 0, so 'b' is never called",
            id="mean of zero",
        ),
        pytest.param(
            CHAIN.any_of("b"), "module 'b' has join Any, but no two edges lead to it: remove join", id="any of one"
        ),
        pytest.param(
            session("s").model("a").model("b").edge("a", "b", when="outputs.label[0] == 1", share="0%"),
            "share of 0%, so 'b' is never called",
            id="share of zero",
        ),
        pytest.param(
            session("s").model("a").function("f").edge("a", "f", mean="2"),
            "runs once for each upstream answer: set fanOut on the edges from 'f' instead",
            id="fan-out into a function",
        ),
        pytest.param(CHAIN.with_spec(pools=("p", "p")), "pool 'p' is named 2 times", id="pool named twice"),
        pytest.param(
            CHAIN.with_spec(batching={"modules": {"moon": "Elsa"}}),
            "batching.modules names moon, but the session has no such model: remove it",
            id="a policy for no model",
        ),
        pytest.param(
            CHAIN.with_spec(batching={"elsa": {"betaPercent": 150}}),
            "batching.elsa is set, but no model has the policy Elsa: remove it, or set batching.policy to Elsa",
            id="settings of a policy for no model",
        ),
        pytest.param(
            session("s").slo(50).model("a").function("f", 40).edge("a", "f").planner(margin_percent=20),
            "functions and endpoints alone may take 40 ms, but the SLO of 50 ms less the margin of 20 % leaves 40 ms",
            id="functions take the whole SLO",
        ),
        pytest.param(
            CHAIN.slo(50).function("f", 20).endpoint("e", 20).edge("f", "e").planner(margin_percent=20),
            "functions and endpoints alone may take 40 ms",
            id="functions and endpoints take the whole SLO",
        ),
        pytest.param(
            session("s").model("a").model("b").endpoint("e").edge("a", "e").edge("b", "e"),
            "'e' has 2 upstream modules: join them in a function upstream of 'e'",
            id="an endpoint joins",
        ),
    ],
)
def test_problem_is_named_with_its_fix(built: SessionBuilder, want: str) -> None:
    found = session_problems(built.build().spec)

    assert any(want in problem for problem in found), found


@pytest.mark.parametrize(
    "built",
    [
        pytest.param(CHAIN, id="chain"),
        pytest.param(
            session("s").model("a").model("b").function("join", 5).edge("a", "join").edge("b", "join"),
            id="two roots joined by a function",
        ),
        pytest.param(
            session("s").model("a").function("f").model("b").edge("a", "f").edge("f", "b", mean="1.5"),
            id="fan-out behind a function",
        ),
    ],
)
def test_good_session_has_no_problem(built: SessionBuilder) -> None:
    assert session_problems(built.build().spec) == ()


def diamond() -> InferenceSessionSpec:
    built = session("s").model("tail").model("detect").model("car").model("face").function("join")
    built = built.edge("detect", "car", mean="1.5").edge("detect", "face", mean="0.5")
    return built.edge("car", "join").edge("face", "join").edge("join", "tail", mean="2").build().spec


def test_rates_multiply_along_edges_and_a_join_runs_once_a_request() -> None:
    assert module_rates(diamond(), 10) == {"detect": 10, "car": 15, "face": 5, "join": 10, "tail": 20}


IS_CAR = "outputs.label[0] == 1"


@pytest.mark.parametrize(
    ("built", "want"),
    [
        pytest.param(
            session("s").chain("a", "b").model("c").edge("b", "c", when=IS_CAR, share="20%"),
            {"a": 10, "b": 10, "c": 2},
            id="a share of the answers",
        ),
        pytest.param(
            session("s").model("a").model("b").edge("a", "b", when=IS_CAR),
            {"a": 10, "b": 10},
            id="all answers, if the share is not declared",
        ),
        pytest.param(
            session("s").model("a").model("b").edge("a", "b", mean="3", when=IS_CAR, share="50%"),
            {"a": 10, "b": 15},
            id="a share of the answers fans out",
        ),
        pytest.param(
            session("s").chain("a").function("f").model("b").edge("a", "f", when=IS_CAR, share="12.5%").edge("f", "b"),
            {"a": 10, "f": 1.25, "b": 1.25},
            id="a function and what follows it",
        ),
        pytest.param(
            session("s")
            .chain("a")
            .model("b")
            .function("join")
            .edge("a", "b", when=IS_CAR, share="20%")
            .edge("a", "join")
            .edge("b", "join", when=IS_CAR, share="10%"),
            {"a": 10, "b": 2, "join": 10},
            id="a join still runs once for each request",
        ),
        pytest.param(
            session("s")
            .chain("a", "b", "c")
            .model("d")
            .any_of("d")
            .edge("a", "d", when=IS_CAR, share="20%")
            .edge("b", "d")
            .edge("c", "d", mean="2"),
            {"a": 10, "b": 10, "c": 10, "d": 32},
            id="any of several upstream modules",
        ),
        pytest.param(
            session("s")
            .chain("a", "b")
            .model("c")
            .model("d")
            .any_of("c", join=Join.FIRST)
            .any_of("d", join=Join.FIRST)
            .edge("a", "c")
            .edge("b", "c")
            .edge("a", "d", when=IS_CAR, share="20%")
            .edge("b", "d", when=IS_CAR, share="30%"),
            {"a": 10, "b": 10, "c": 10, "d": 5},
            id="the first of several answers",
        ),
        pytest.param(
            session("s").model("a").sized("read", {8: "75%", 32: "25%"}).edge("a", "read", when=IS_CAR, share="40%"),
            {"a": 10, "read-s8": 3, "read-s32": 1},
            id="size classes behind a condition",
        ),
    ],
)
def test_conditions_scale_rates_by_their_shares(built: SessionBuilder, want: dict[str, float]) -> None:
    spec = built.build().spec
    assert session_problems(spec) == ()
    assert module_rates(spec, 10) == pytest.approx(want)


@pytest.mark.parametrize(
    ("built", "want"),
    [
        pytest.param(
            session("s").sized("read", {8: "80%", 32: "20%"}), {"read-s8": 8, "read-s32": 2}, id="classes of a root"
        ),
        pytest.param(
            session("s").model("find").sized("read", {8: "75%", 32: "25%"}).edge("find", "read", mean="6"),
            {"find": 10, "read-s8": 45, "read-s32": 15},
            id="classes of a fan-out",
        ),
        pytest.param(
            session("s").sized("read", {8: None, 32: None}).model("name").edge("read", "name", mean="2"),
            {"read-s8": 5, "read-s32": 5, "name": 20},
            id="a model after classes gets the answers of all",
        ),
        pytest.param(
            session("s").sized("read", {8: None, 32: None}).function("f").edge("read", "f").model("m").edge("f", "m"),
            {"read-s8": 5, "read-s32": 5, "f": 10, "m": 10},
            id="a function after classes runs for each answer, and is no join",
        ),
    ],
)
def test_size_classes_get_their_shares_of_the_samples(built: SessionBuilder, want: dict[str, float]) -> None:
    spec = built.build().spec
    assert session_problems(spec) == ()
    assert module_rates(spec, 10) == pytest.approx(want)


def test_a_plan_has_capacity_for_the_share_of_a_condition() -> None:
    built = session("s").rate(400).slo(200).chain("a").model("b").edge("a", "b", when=IS_CAR, share="25%")
    outcome = plan(problem(built, [pool("fast").gpus(16)], linear_profiles(("a", "b"), {"fast": 1.0})))

    assert isinstance(outcome, Planned), outcome
    assert {module.name: float(module.rate) for module in outcome.plan.modules} == {"a": 400, "b": 100}


def test_a_plan_has_capacity_for_the_answers_of_any_upstream_module() -> None:
    built = session("s").rate(100).slo(200).chain("a", "b").model("c").any_of("c").edge("a", "c").edge("b", "c")
    outcome = plan(problem(built, [pool("fast").gpus(16)], linear_profiles(("a", "b", "c"), {"fast": 1.0})))

    assert isinstance(outcome, Planned), outcome
    assert {module.name: float(module.rate) for module in outcome.plan.modules} == {"a": 100, "b": 100, "c": 200}
