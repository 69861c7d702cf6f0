"""From a manifest to answered requests, and what happens on the way when the world changes."""

import asyncio

import numpy as np
import pytest
from tests.e2e.conftest import IMAGE, TOLERANCE, System, ask, detection, emulated, until_ready
from tests.operator.kubectl import Json, Kubectl, condition, eventually, reason
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import Load, steady_load

from partita_api.inferencesession import InferenceSession
from partita_runtime.load.reference import WholeModels

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]


def infer_url(system: System, kubectl: Kubectl, session: str) -> str:
    return f"http://{system.endpoint(kubectl.namespace, session)}/v2/models/{session}/infer"


def transition(session: Json) -> str:
    """When Ready last changed; times sort as text."""
    when: str = condition(session, "Ready")["lastTransitionTime"]
    return when


async def load_until(task: "asyncio.Task[object]", url: str, rate: float, most_seconds: float) -> Load:
    """Load for as long as the task takes."""
    load = await steady_load(url, IMAGE[None], rate, lambda _: task.done(), most_seconds)
    await task
    return load


async def test_manifest_becomes_a_served_session_that_answers_like_its_whole_models(
    system: System, empty_namespace: Kubectl
) -> None:
    empty_namespace.apply(detection())
    found = await until_ready(empty_namespace, "detection")

    answer = ask(system, empty_namespace, "detection")

    want = WholeModels(InferenceSession.model_validate(found).spec).answer({"input": IMAGE})
    assert answer["classifier"].shape == want["classifier"].shape
    np.testing.assert_allclose(
        answer["classifier"], want["classifier"], atol=TOLERANCE * np.abs(want["classifier"]).max()
    )
    (plan,) = empty_namespace.list("pplan")
    assert plan["metadata"]["name"] == found["status"]["currentPlan"]["name"]
    assert [a["strategy"] for a in plan["spec"]["alternatives"]] == ["no-partitioning"]
    assert all(stage["ready"] >= 1 for stage in plan["status"]["stages"])
    assert len(empty_namespace.list("configmaps", "-l", "partita.dev/profile")) == 4, "two models on two pools"
    assert found["status"]["url"] == f"http://{system.endpoint(empty_namespace.namespace, 'detection')}"
    assert all(c["observedGeneration"] == 1 for c in found["status"]["conditions"])


async def test_replicas_follow_the_load_and_no_request_is_lost(system: System, namespace: Kubectl) -> None:
    autoscaling = {"windowSeconds": 3, "coolDownSeconds": 3}
    namespace.apply(emulated(rate={"requestsPerSecond": 8}, autoscaling=autoscaling))
    await until_ready(namespace, "emulated")
    url = infer_url(system, namespace, "emulated")

    def replicas() -> int:
        return sum(stage["desired"] for plan in namespace.list("pplan") for stage in plan["status"]["stages"])

    def offered_rate() -> float:
        return float((namespace.get("isess", "emulated") or {})["status"]["signals"]["offeredRate"])

    async def grow() -> None:
        await eventually(replicas, lambda now: now > planned)
        await eventually(offered_rate, lambda rate: rate > 8)

    planned = replicas()
    grown: asyncio.Task[object] = asyncio.create_task(grow())
    doubled = await load_until(grown, url, rate=30, most_seconds=PATIENCE_SECONDS)
    shrunk = asyncio.create_task(eventually(replicas, lambda now: now <= planned))
    falling = await load_until(shrunk, url, rate=2, most_seconds=PATIENCE_SECONDS)

    assert doubled.answered == doubled.sent
    assert falling.answered == falling.sent
    assert set(doubled.statuses) <= {200, 503, 504}


async def test_a_session_that_nobody_uses_scales_to_zero_until_a_request_comes_which_is_held_and_answered(
    system: System, namespace: Kubectl
) -> None:
    namespace.apply(emulated(autoscaling={"scaleToZero": {"afterSeconds": 2}}))
    await until_ready(namespace, "emulated")
    want = ask(system, namespace, "emulated")

    def pool() -> Json:
        return (namespace.get("gpupool", "e2e-emulated") or {})["status"]

    found = await eventually(
        lambda: namespace.get("isess", "emulated"), lambda s: reason(s) == ("True", "ScaledToZero")
    )
    assert found["status"]["scaleToZeroTime"]
    await eventually(
        lambda: {name for name in system.applications(namespace.namespace) if "frontend" not in name},
        lambda stages: not stages,
    )
    await eventually(lambda: float(pool()["free"]), lambda free: free == 6)
    system.kill_operator()
    system.start_operator()

    answer = await asyncio.to_thread(ask, system, namespace, "emulated")

    np.testing.assert_array_equal(answer["detector"], want["detector"])
    signals = system.signals(namespace.namespace, "emulated")
    assert signals["outcomes"].keys() <= {"in_time", "late"}
    await eventually(lambda: reason(namespace.get("isess", "emulated")), lambda now: now == ("True", "ScaledToZero"))
    said = [event["message"] for event in namespace.list("events") if event["reason"] == "Scaled"]
    assert any("all replicas are removed" in message for message in said)
    assert any("held: the session scales from zero" in message for message in said)


async def test_a_changed_slo_is_rolled_out_under_load_without_a_failed_request(
    system: System, namespace: Kubectl
) -> None:
    namespace.apply(emulated(slo={"latencyMs": 3000}, rate={"requestsPerSecond": 10}))
    before = (await until_ready(namespace, "emulated"))["status"]["currentPlan"]["name"]

    namespace.apply(emulated(slo={"latencyMs": 600}, rate={"requestsPerSecond": 10}))
    moved = asyncio.create_task(
        eventually(
            lambda: namespace.get("isess", "emulated"),
            lambda s: s["status"]["currentPlan"]["name"] != before and reason(s)[0] == "True",
        )
    )
    load = await load_until(moved, infer_url(system, namespace, "emulated"), rate=5, most_seconds=PATIENCE_SECONDS)

    assert dict(load.statuses) == {200: load.sent}
    names = {plan["metadata"]["name"] for plan in namespace.list("pplan")}
    assert before in names, "the plan before is kept for rollback"
    await eventually(
        lambda: sorted(system.applications(namespace.namespace)),
        lambda names: not any(before in name for name in names),
    )


async def test_an_operator_that_is_killed_goes_on_where_it_was(system: System, empty_namespace: Kubectl) -> None:
    empty_namespace.apply(detection())
    for want_reason in ("Profiling", "RollingOut"):
        await eventually(
            lambda: reason(empty_namespace.get("isess", "detection")),
            lambda now, want=want_reason: now[1] == want or now[0] == "True",
        )
        system.kill_operator()
        system.start_operator()

    await until_ready(empty_namespace, "detection")

    assert len(empty_namespace.list("pplan")) == 1
    assert ask(system, empty_namespace, "detection")["classifier"].shape[1] == 5


async def test_requests_are_answered_while_the_api_server_is_away(system: System, namespace: Kubectl) -> None:
    namespace.apply(emulated())
    await until_ready(namespace, "emulated")

    system.control_plane.pause_api_server()
    try:
        load = await steady_load(
            infer_url(system, namespace, "emulated"), IMAGE[None], 5, lambda sofar: sofar.sent >= 75, PATIENCE_SECONDS
        )
    finally:
        system.control_plane.resume_api_server()
    namespace.apply(emulated(rate={"requestsPerSecond": 6}))

    assert dict(load.statuses) == {200: load.sent}
    await eventually(
        lambda: condition(namespace.get("isess", "emulated"), "Ready"),
        lambda ready: ready["observedGeneration"] == 2 and ready["status"] == "True",
    )


async def test_a_restarted_ray_cluster_serves_the_same_plan_again(system: System, namespace: Kubectl) -> None:
    namespace.apply(emulated())
    before = await until_ready(namespace, "emulated")
    want = ask(system, namespace, "emulated")

    system.ray.restart()

    await eventually(
        lambda: condition(namespace.get("isess", "emulated"), "Ready"),
        lambda ready: ready["status"] == "True" and ready["lastTransitionTime"] > transition(before),
        PATIENCE_SECONDS,
    )
    np.testing.assert_array_equal(ask(system, namespace, "emulated")["detector"], want["detector"])
    after = namespace.get("isess", "emulated")
    assert after is not None
    assert after["status"]["currentPlan"] == before["status"]["currentPlan"]
    assert "EngineUnavailable" in {event["reason"] for event in namespace.list("events")}


async def test_a_deleted_session_leaves_nothing_behind(system: System, namespace: Kubectl) -> None:
    namespace.apply(emulated())
    await until_ready(namespace, "emulated")
    assert system.applications(namespace.namespace)

    await namespace.wait("delete", "isess", "emulated", f"--timeout={PATIENCE_SECONDS}s")

    assert not system.applications(namespace.namespace)
    await eventually(lambda: namespace.list("pplan"), lambda plans: not plans)
