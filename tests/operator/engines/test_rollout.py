"""Rollouts step by step on a model of Serve: the order of changes, and the messages."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operator.engines.serve_model import (
    FRONTEND,
    SESSION,
    ServeModel,
    application,
    frontend_config,
    stage_config,
)

from partita_api.pool.ray_resource import shared_resource
from partita_operator.engines.app_config import AppConfig, configured_plan, demand_of, deployment_of, with_deployment
from partita_operator.engines.deployments import Deployments
from partita_operator.engines.rollout import RolloutTarget, needs_other_pods, next_step
from partita_operator.engines.serve_state import ServeState
from partita_runtime.serving.deploy.monitoring_access import has_monitoring, with_monitoring

STEPS = 40


def desired(plan: str, *replicas: int, pools: tuple[str, ...] = ("a",), share: float = 1.0) -> RolloutTarget:
    stages = Deployments(
        stage_config(plan, at, count, pools[at % len(pools)], share) for at, count in enumerate(replicas)
    )
    return RolloutTarget(SESSION, plan, frontend_config(plan), stages)


def step(serve: ServeModel, target: RolloutTarget) -> str:
    """One pass of the operator, then one step of time. Returns the message of the pass."""
    decided = next_step(target, serve.state, serve.report, serve.capacity, serve.now)
    serve.put(decided.deployments)
    serve.tick()
    return decided.message


def rolled_out(capacity: Mapping[str, float], target: RolloutTarget) -> ServeModel:
    serve = ServeModel(capacity)
    for _ in range(4):
        step(serve, target)
    assert serve.serving == target.plan
    return serve


def migrated(serve: ServeModel, target: RolloutTarget) -> tuple[str, list[bool]]:
    """All messages of a migration, and whether the plan that serves lacked something after each step."""
    said, gaps = "", []
    for _ in range(STEPS):
        said += step(serve, target)
        gaps.append(not serve.is_complete(serve.serving))
    return said, gaps


def told(serve: ServeModel) -> str | None:
    return configured_plan(serve.configs[FRONTEND])


def test_a_first_rollout_starts_everything_at_once() -> None:
    serve = ServeModel({"a": 4})
    step(serve, desired("one", 2, 1))
    assert serve.counts() == {"one/0": 2, "one/1": 1}
    assert told(serve) == "one"


@pytest.mark.parametrize("environment", [{}, {"env_vars": {}}, {"env_vars": {"TZ": "UTC"}, "working_dir": "w"}])
@pytest.mark.parametrize("plan", ["one", "two"])
def test_frontends_of_an_earlier_version_are_not_restarted_for_the_monitoring_token(
    plan: str, environment: dict[str, Any]
) -> None:
    def with_environment(name: str, digest: str) -> RolloutTarget:
        target = desired(name, 1)
        return replace(target, frontend={**target.frontend, "runtime_env": with_monitoring(environment, digest)})

    serve = rolled_out({"a": 8}, with_environment("one", ""))
    for _ in range(8):
        step(serve, with_environment(plan, "digest"))
        assert serve.configs[FRONTEND]["runtime_env"] == environment
    assert told(serve) == plan

    later = rolled_out({"a": 8}, with_environment("one", "digest"))
    step(later, with_environment("one", "other"))
    assert has_monitoring(later.configs[FRONTEND]["runtime_env"])


def test_a_new_plan_starts_beside_the_old_one_and_then_takes_over() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2, 1))
    seen = []
    for _ in range(8):
        message = step(serve, desired("two", 3))
        seen.append((told(serve), sorted(serve.counts().items()), message))
    beside = [("one/0", 2), ("one/1", 1), ("two/0", 3)]
    alone = [("two/0", 3)]
    assert seen[0] == ("one", beside, "Waiting for the replicas of plan two: stage 0 of m/p.")
    assert ("two", beside, "Switching the frontend to plan two.") in seen
    assert seen[-1] == ("two", alone, "")
    assert [plan for plan, _, _ in seen] == sorted(plan for plan, _, _ in seen if plan)


def test_the_frontend_stays_until_there_is_a_pod_that_it_can_move_to() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    for _ in range(STEPS):
        missing = "Image x cannot be pulled"
        decided = next_step(
            desired("two", 2), serve.state, serve.report, serve.capacity, serve.now, missing_pod=missing
        )
        serve.put(decided.deployments)
        serve.tick()
    assert decided.message.endswith("can move to. Image x cannot be pulled.")
    assert told(serve) == serve.serving == "one"
    while told(serve) != "two":
        step(serve, desired("two", 2))


def test_the_old_plan_stays_until_the_frontend_has_finished_it() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    while told(serve) != "two":
        step(serve, desired("two", 2))
    serve.serving = "one"
    decided = next_step(desired("two", 2), serve.state, serve.report, serve.capacity, serve.now)
    assert [*decided.deployments] == [*serve.configs]
    assert decided.message == "Waiting until the frontend has finished plan one."


def test_the_old_plan_stays_while_the_frontend_does_not_answer() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    while told(serve) != "two":
        step(serve, desired("two", 2))
    decided = next_step(desired("two", 2), serve.state, None, serve.capacity, serve.now)
    assert [*decided.deployments] == [*serve.configs]


def test_a_plan_that_never_becomes_ready_does_not_change_the_old_one() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    serve.broken = frozenset({"two"})
    for _ in range(STEPS):
        step(serve, desired("two", 2))
    assert (told(serve), serve.serving) == ("one", "one")
    assert serve.counts() == {"one/0": 2, "two/0": 2}


@pytest.mark.parametrize("field", ["clients", "requestLog"])
def test_other_clients_and_sinks_do_not_wait_for_a_new_plan(field: str) -> None:
    """A key that was revoked is refused at once, and a sink gets no more, also while a migration never ends."""
    serve = rolled_out({"a": 8}, desired("one", 2))
    serve.broken = frozenset({"two"})
    for value in ({"apiKeys": ["first"]}, {"apiKeys": ["second"]}, None):
        target = desired("two", 2)
        frontend = frontend_config("two", **({field: value} if value is not None else {}))
        step(serve, replace(target, frontend=frontend))
        (deployment,) = serve.configs[FRONTEND]["deployments"]
        assert told(serve) == "one"
        assert deployment["user_config"].get(field) == value


def in_pods(frontend: AppConfig, resource: str) -> AppConfig:
    return with_deployment(frontend, num_replicas=1, ray_actor_options={"resources": {resource: 1}})


@pytest.mark.parametrize(
    ("plan", "resource", "want"),
    [
        pytest.param("one", "b", "a", id="the same plan, other pods"),
        pytest.param("one", "a", "a", id="the same pods"),
        pytest.param("two", "b", "b", id="another plan, and no stages that serve"),
    ],
)
def test_a_frontend_that_serves_its_plan_stays_until_its_other_pods_are_ready(
    plan: str, resource: str, want: str
) -> None:
    present = in_pods(frontend_config("one"), "a")
    state = ServeState(running=True, applications={FRONTEND: application(present)})
    target = replace(desired(plan, 1), frontend=in_pods(frontend_config(plan, requestLog={"sink": "x"}), resource))
    assert needs_other_pods(target, state) == (resource == "b")
    decided = next_step(target, state, None, {}, 0.0, missing_pod="It starts" if resource == "b" else "")
    staying = decided.deployments[FRONTEND]
    assert (decided.message == "Waiting for a pod that the frontend can move to. It starts.") == (want != resource)
    assert demand_of(staying).each == {"CPU": 1.0, want: 1}
    assert deployment_of(staying)["user_config"] == deployment_of(target.frontend)["user_config"]


def test_other_versions_do_not_wait_for_a_new_plan() -> None:
    """Nor does the end of one that does harm."""
    serve = rolled_out({"a": 8}, desired("one", 2))
    serve.broken = frozenset({"two"})
    for versions in ({"versions": [{"name": "2"}]}, {"versions": [{"name": "3"}]}, {}):
        step(serve, replace(desired("two", 2), frontend=frontend_config("two", **versions)))
        (deployment,) = serve.configs[FRONTEND]["deployments"]
        assert (told(serve), deployment["user_config"].get("versions")) == ("one", versions.get("versions"))


def test_going_back_to_the_old_plan_removes_the_new_one() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    serve.broken = frozenset({"two"})
    step(serve, desired("two", 2))
    step(serve, desired("one", 2))
    assert serve.counts() == {"one/0": 2}


def test_a_third_plan_replaces_a_second_that_was_not_up() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    serve.broken = frozenset({"two"})
    step(serve, desired("two", 2))
    for _ in range(8):
        step(serve, desired("three", 2))
    assert serve.counts() == {"three/0": 2}
    assert serve.serving == "three"


def test_missing_replicas_delay_the_switch_for_a_limited_time() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    step(serve, desired("two", 3))
    serve.capacity = {"a": 4}
    for _ in range(STEPS):
        message = step(serve, desired("two", 3))
    assert serve.serving == "two"
    assert message == ""


def test_replicas_whose_nodes_come_delay_the_switch_without_a_limit() -> None:
    serve = rolled_out({"a": 4}, desired("one", 2))
    for _ in range(STEPS):
        decided = next_step(desired("two", 3), serve.state, serve.report, {"a": 8}, serve.now, late_seconds=inf)
        serve.put(decided.deployments)
        serve.tick()
    assert serve.serving == "one"
    assert decided.message == "Waiting for the replicas of plan two: stage 0 of m/p."
    serve.capacity = {"a": 5}
    for _ in range(6):
        step(serve, desired("two", 3))
    assert serve.serving == "two"


def test_scaling_changes_replicas_in_place() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2, 1))
    step(serve, desired("one", 4, 1))
    assert serve.counts() == {"one/0": 4, "one/1": 1}
    assert told(serve) == "one"


def test_a_session_at_zero_keeps_only_its_frontend_until_a_request_arrives() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2, 1))
    assert step(serve, desired("one")) == ""
    assert (serve.counts(), told(serve)) == ({}, "one")
    step(serve, desired("one", 1, 1))
    assert (serve.counts(), told(serve)) == ({"one/0": 1, "one/1": 1}, "one")


def test_a_new_plan_takes_over_from_one_at_zero() -> None:
    serve = rolled_out({"a": 8}, desired("one", 2))
    step(serve, desired("one"))
    step(serve, desired("two", 2))
    assert (serve.counts(), told(serve)) == ({"two/0": 2}, "two")


@pytest.mark.parametrize(
    ("capacity", "old", "new", "want_words", "want_gap"),
    [
        pytest.param(
            {"a": 4}, desired("one", 4), desired("two", 4), "run with fewer replicas", False, id="old plan releases one"
        ),
        pytest.param(
            {"a": 6},
            desired("one", 4),
            desired("two", 4),
            "run with fewer replicas",
            False,
            id="new plan starts with two",
        ),
        pytest.param(
            {"a": 3}, desired("one", 2, 1), desired("two", 1, 1), "removed first", True, id="no room for both"
        ),
        pytest.param({"a": 1}, desired("one", 1), desired("two", 1), "removed first", True, id="one accelerator"),
        pytest.param(
            {"a": 1},
            desired("one", 2, share=0.5),
            desired("two", 2, share=0.5),
            "run with fewer replicas",
            False,
            id="vGPUs",
        ),
    ],
)
def test_without_room_for_both_plans(
    capacity: Mapping[str, float], old: RolloutTarget, new: RolloutTarget, want_words: str, want_gap: bool
) -> None:
    serve = rolled_out(capacity, old)
    said, gaps = migrated(serve, new)
    assert want_words in said
    assert any(gaps) == want_gap
    assert serve.serving == "two"
    assert serve.configs == new.deployments


def test_a_plan_that_never_fits_keeps_the_old_one_and_names_what_is_missing() -> None:
    serve = rolled_out({"a": 2}, desired("one", 2))
    for _ in range(STEPS):
        message = step(serve, desired("two", 1, 1, pools=("a", "b")))
    assert serve.serving == "one"
    assert serve.counts()["one/0"] == 2
    assert "lacks 1 b" in message


def test_a_first_plan_that_does_not_fit_names_what_is_missing() -> None:
    serve = ServeModel({"a": 2})
    messages = [step(serve, desired("one", 1, 1, pools=("a", "b"))) for _ in range(STEPS)]
    assert "lacks 1 b" in messages[-1]
    assert serve.counts() == {"one/0": 1, "one/1": 1}


def test_a_short_drop_of_the_capacity_does_not_reduce_the_old_plan() -> None:
    serve = rolled_out({"a": 4}, desired("one", 3))
    dip = next_step(desired("two", 3), serve.state, serve.report, {"a": 0}, serve.now)
    assert {*dip.deployments} >= set(serve.configs)
    serve.put(dip.deployments)
    assert serve.counts()["one/0"] == 3


plans = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@settings(max_examples=60)
@given(st.lists(plans, min_size=1, max_size=3), st.integers(3, 16), st.sets(st.integers(0, STEPS)))
def test_every_rollout_ends_and_removes_the_old_stages(
    sequence: list[list[int]], capacity: int, unreachable: set[int]
) -> None:
    serve = ServeModel({"a": float(max(capacity, *map(sum, sequence)))})
    for number, replicas in enumerate(sequence):
        target = desired(f"plan-{number}", *replicas)
        for at in range(STEPS * 2):
            report = None if at in unreachable else serve.report
            decided = next_step(target, serve.state, report, serve.capacity, serve.now)
            serve.put(decided.deployments)
            serve.tick()
        assert serve.serving == f"plan-{number}"
        assert serve.counts() == {f"plan-{number}/{at}": count for at, count in enumerate(replicas)}
        assert decided.message == ""


@settings(max_examples=60)
@given(plans, plans, st.integers(6, 16))
def test_if_one_replica_of_every_stage_fits_a_migration_has_no_gap(
    old: list[int], new: list[int], capacity: int
) -> None:
    serve = ServeModel({"a": float(max(capacity, sum(old), sum(new), len(old) + len(new)))})
    for _ in range(6):
        step(serve, desired("one", *old))
    for _ in range(STEPS):
        step(serve, desired("two", *new))
        assert serve.is_complete(serve.serving)
    assert serve.serving == "two"


class PodModel(ServeModel):
    """Serve on pods with one accelerator each. Pods of one template have what those of the others leave of the pool."""

    def _free(self) -> dict[str, float]:
        taken: Counter[str] = Counter()
        for name, replicas in self.replicas.items():
            for resource, units in self._each(name).items():
                taken[resource] += units * sum(replica.placed for replica in replicas)
        pods = {resource: ceil(units) for resource, units in taken.items()}
        left = Counter(self.capacity)
        for resource, count in pods.items():
            left[shared_resource(resource)] -= count
        names = {resource for name in self.configs for resource in self._each(name)}
        return {name: pods.get(name, 0) - taken[name] + max(0.0, left[shared_resource(name)]) for name in names}


@pytest.mark.parametrize(
    ("capacity", "replicas", "share", "want_words", "want_gap"),
    [
        pytest.param(8, 4, 1.0, "Switching the frontend", False, id="room for both"),
        pytest.param(4, 4, 1.0, "run with fewer replicas", False, id="the old pods make room"),
        pytest.param(2, 4, 0.5, "run with fewer replicas", False, id="vGPUs of both do not share an accelerator"),
        pytest.param(1, 1, 0.5, "removed first", True, id="one accelerator"),
    ],
)
def test_replicas_move_to_pods_of_another_template(
    capacity: int, replicas: int, share: float, want_words: str, want_gap: bool
) -> None:
    serve, old = PodModel({"a": capacity}), desired("one", replicas, share=share)
    for _ in range(4):
        step(serve, old)
    new = desired("two", replicas, pools=("a@3f9a0c51",), share=share)
    said, gaps = migrated(serve, new)

    assert want_words in said
    assert any(gaps) == want_gap
    assert serve.serving == "two"
    assert serve.configs == new.deployments
