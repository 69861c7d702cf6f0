"""Rollouts of sub-clusters on a model of Serve: vGPUs stay, and models are loaded and unloaded."""

from tests.operator.engines.serve_model import (
    FRONTEND,
    SESSION,
    ServeModel,
    application,
    frontend_config,
    stage_config,
    subcluster_config,
)
from tests.operator.engines.test_rollout import rolled_out, step, told

from partita_operator.engines.app_config import stages_by_plan
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.frontend_client import FrontendAnswer
from partita_operator.engines.rollout import RolloutTarget, next_step
from partita_operator.engines.serve_state import ServeState
from partita_operator.engines.session_status import serving_status
from partita_runtime.scheduling.events import StageRef


def desired(plan: str, modules: str, replicas: int) -> RolloutTarget:
    return RolloutTarget(
        SESSION, plan, frontend_config(plan), Deployments([subcluster_config(plan, modules, replicas)])
    )


(SUBCLUSTER,) = desired("one", "ab", 2).stages


def held(serve: ServeModel) -> dict[str, str]:
    stages = stages_by_plan(serve.configs[SUBCLUSTER])
    return {plan: "".join(ref.module for ref in refs) for plan, refs in stages.items()}


def test_models_of_a_new_plan_are_loaded_beside_the_current_ones_and_then_take_over() -> None:
    serve = rolled_out({"a": 2}, desired("one", "ab", 2))
    before = [*serve.replicas[SUBCLUSTER]]
    seen = []
    for _ in range(6):
        message = step(serve, desired("two", "abc", 2))
        seen.append((told(serve), held(serve), message))
        assert serve.is_complete(serve.serving)
    both = {"one": "ab", "two": "abc"}
    assert seen[0] == ("one", both, "Waiting for the replicas of plan two: sub-cluster all.")
    assert ("two", both, "Switching the frontend to plan two.") in seen
    assert seen[-1] == ("two", {"two": "abc"}, "")
    assert serve.replicas[SUBCLUSTER] == before, "no vGPU was released or added"


def test_the_frontend_switches_after_all_vgpus_have_loaded_the_models() -> None:
    serve = rolled_out({"a": 2}, desired("one", "ab", 2))
    serve.broken = frozenset({"two"})
    for _ in range(5):
        step(serve, desired("two", "abc", 2))
        assert (told(serve), serve.serving) == ("one", "one")
    serve.broken = frozenset()
    for _ in range(5):
        step(serve, desired("two", "abc", 2))
    assert serve.serving == "two"


def test_models_stay_loaded_until_the_frontend_has_finished_the_old_plan() -> None:
    serve = rolled_out({"a": 2}, desired("one", "ab", 2))
    while told(serve) != "two":
        step(serve, desired("two", "a", 2))
    for report in (None, serve.report):
        serve.serving = "one"
        decided = next_step(desired("two", "a", 2), serve.state, report and serve.report, serve.capacity, serve.now)
        assert {*stages_by_plan(decided.deployments[SUBCLUSTER])} == {"one", "two"}


def test_a_subcluster_grows_in_place() -> None:
    serve = rolled_out({"a": 4}, desired("one", "ab", 2))
    for _ in range(6):
        step(serve, desired("two", "ab", 4))
        assert serve.is_complete(serve.serving)
    assert (serve.serving, len(serve.replicas[SUBCLUSTER])) == ("two", 4)


def test_separate_stages_are_replaced_by_a_subcluster_and_back() -> None:
    alone = RolloutTarget(SESSION, "one", frontend_config("one"), Deployments([stage_config("one", 0, 2)]))
    serve = rolled_out({"a": 4}, alone)
    for target in (desired("two", "ab", 2), alone):
        for _ in range(8):
            step(serve, target)
            assert serve.is_complete(serve.serving)
        assert serve.serving == target.plan
        assert {*serve.configs} == {FRONTEND, *target.stages}


def test_every_stage_of_a_subcluster_is_reported_under_its_plan() -> None:
    serve = rolled_out({"a": 2}, desired("one", "ab", 2))
    app = application(subcluster_config("one", "ab", 2), serve.replicas[SUBCLUSTER])
    status = serving_status(
        SESSION,
        ServeState(running=True, applications={app.name: app}),
        FrontendAnswer(None),
        {"a": 2},
        url="http://serve",
        progress="",
        now=0.0,
    )
    (serving,) = status.plans
    assert serving.plan == "one"
    refs = [(StageRef(s.module, s.pipeline, s.stage), s.ready) for s in serving.stages]
    assert refs == [(StageRef("a", "p", 0), 2), (StageRef("b", "p", 0), 2)]
