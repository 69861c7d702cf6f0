"""A session on a real API server: from its manifest to Ready, through changes, to its deletion."""

import json

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kubectl import Kubectl, condition, eventually, pool, reason, session

from partita_api.profile import PROFILE_FILE, Profile

pytestmark = pytest.mark.apiserver


async def ready(namespace: Kubectl, name: str = "traffic") -> None:
    await namespace.wait("wait", f"isess/{name}", "--for=condition=Ready", "--timeout=60s")


async def test_a_manifest_leads_to_a_served_plan(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)

        found = namespace.get("isess", "traffic")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["partita.dev/finalizer"]
        assert not [name for name in found["metadata"]["annotations"] if "kopf" in name]
        (plan,) = namespace.list("pplan")
        assert found["status"]["currentPlan"]["name"] == plan["metadata"]["name"]
        assert plan["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
        assert plan["status"]["stages"][0]["ready"] >= 1
        (config_map,) = namespace.list("configmap", "-l", "partita.dev/profile")
        assert Profile.model_validate_json(config_map["data"][PROFILE_FILE]).request.pool == "fast"
        assert "traffic" in namespace("get", "partita")
        # Events are posted concurrently, and may arrive after the status.
        await eventually(
            lambda: {event["reason"] for event in namespace.list("events")},
            lambda said: said >= {"ProfilesReady", "PlanReady", "Serving"},
        )


async def test_a_changed_rate_leads_to_another_plan(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast", count=16), session("traffic"))

    async with operators.running():
        await ready(namespace)
        first = operators.engine.applied[f"{namespace.namespace}/traffic"].plan
        namespace.apply(session("traffic", rate={"requestsPerSecond": 2000}))
        found = await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: s and condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
        )
        assert found is not None
        assert found["status"]["history"] == [first.metadata.name]
        assert float(found["status"]["currentPlan"]["throughput"]) >= 2000


async def test_a_session_without_a_new_plan_keeps_its_current_plan(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)
        before = operators.engine.applied[f"{namespace.namespace}/traffic"].plan.metadata.name
        namespace.apply(session("traffic", slo={"latencyMs": 1}))
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "SLOTooTight")
        )
        assert condition(found, "Stalled")["status"] == "True"
        assert f"Plan {before} keeps serving" in condition(found, "Ready")["message"]
        assert operators.engine.applied[f"{namespace.namespace}/traffic"].plan.metadata.name == before

        namespace.apply(session("traffic"))
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))


async def test_a_changed_model_is_profiled_and_planned_again(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)
        other = session("traffic")
        other["spec"]["modules"][0]["model"]["kwargs"] = {"layers": 50}
        namespace.apply(other)
        await eventually(
            lambda: namespace.get("isess", "traffic"),
            lambda s: condition(s, "Ready").get("observedGeneration") == 2 and reason(s) == ("True", "Serving"),
        )
        assert len(operators.runner.started) == 2
        assert len(namespace.list("configmap", "-l", "partita.dev/profile")) == 2


async def test_a_deleted_session_leaves_only_its_profiles(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)
        operators.engine.removals_needed = 2
        await namespace.wait("delete", "isess/traffic", "--timeout=60s")
        assert operators.engine.applied == {}
        await eventually(lambda: namespace.list("pplan"), lambda plans: not plans)
        assert len(namespace.list("configmap", "-l", "partita.dev/profile")) == 1


async def test_a_manual_plan_is_rolled_out_after_its_approval(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic", planner={"approval": "Manual"}))

    async with operators.running():
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("False", "AwaitingApproval")
        )
        assert found is not None
        waiting = found["status"]["pendingPlan"]
        assert operators.engine.applied == {}
        namespace("patch", "pplan", waiting, "--type=merge", "-p", '{"spec":{"approved":true}}')
        await ready(namespace)
        (plan,) = namespace.list("pplan")
        assert plan["spec"]["approved"] is True
        assert plan["spec"]["modules"], "approval and status do not change the rest of the plan"
        assert reason(plan, "Approved") == ("True", "Approved")


async def test_sessions_of_one_name_in_two_namespaces(
    namespace: Kubectl, cluster: Kubectl, operators: Operators
) -> None:
    there = Kubectl(cluster.kubeconfig, f"{namespace.namespace}-too")
    cluster("create", "namespace", there.namespace)
    try:
        namespace.apply(pool("fast"), session("traffic"))
        there.apply(session("traffic", rate={"requestsPerSecond": 20}))
        async with operators.running():
            await ready(namespace)
            await ready(there)
            assert set(operators.engine.applied) == {f"{n.namespace}/traffic" for n in (namespace, there)}
            await namespace.wait("delete", "isess/traffic", "--timeout=60s")
            assert set(operators.engine.applied) == {f"{there.namespace}/traffic"}
    finally:
        cluster.clear(there.namespace)


async def test_objects_deleted_by_hand_are_created_again(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)
        (plan,) = namespace.list("pplan")
        name = plan["metadata"]["name"]
        namespace("delete", "pplan", name)
        await eventually(
            lambda: namespace.list("pplan"),
            lambda plans: [p["metadata"]["name"] for p in plans] == [name] and plans[0]["metadata"] != plan["metadata"],
        )
        namespace("delete", "configmap", "-l", "partita.dev/profile")
        await eventually(lambda: namespace.list("configmap", "-l", "partita.dev/profile"), lambda found: found)
        await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        assert len(operators.runner.started) == 2


async def test_the_operator_has_metrics_and_a_liveness_endpoint(namespace: Kubectl, operators: Operators) -> None:
    namespace.apply(pool("fast"), session("traffic"))

    async with operators.running():
        await ready(namespace)
        metrics = await operators.metrics()
        assert 'partita_reconcile_total{kind="InferenceSession",outcome="success"}' in metrics
        assert f'partita_engine_up{{session="{namespace.namespace}/traffic"}} 1.0' in metrics
        assert json.loads(await operators.health()) == {}
