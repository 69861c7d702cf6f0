"""Two sessions on six accelerators, which are too few for both."""

import asyncio

import pytest
from tests.e2e.conftest import System, emulated, until_ready
from tests.e2e.test_path import infer_url, load_until
from tests.operator.kubectl import Json, Kubectl, condition, eventually, reason
from tests.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]


def replicas(kubectl: Kubectl, session: Json | None, which: str = "ready") -> int:
    """Replicas of the session's current plan: those that are `ready`, or those that it has as `desired`."""
    assert session is not None
    plan = kubectl.get("pplan", session["status"]["currentPlan"]["name"])
    return sum(stage[which] for stage in (plan or {})["status"]["stages"])


async def test_a_session_of_lower_priority_gives_replicas_up_and_gets_them_back(
    system: System, namespace: Kubectl
) -> None:
    as_planned = {"mode": "Disabled"}
    namespace.apply(emulated("common", rate={"requestsPerSecond": 60}, autoscaling=as_planned))
    await until_ready(namespace, "common")

    def common() -> Json | None:
        return namespace.get("isess", "common")

    planned = replicas(namespace, common(), "desired")

    namespace.apply(emulated("urgent", priority=10, rate={"requestsPerSecond": 45}))
    urgent_is_ready = asyncio.create_task(until_ready(namespace, "urgent"))
    load = await load_until(
        urgent_is_ready, infer_url(system, namespace, "common"), rate=3, most_seconds=PATIENCE_SECONDS
    )
    outranked = await eventually(common, lambda found: reason(found) == ("False", "Outranked"))
    left = await eventually(lambda: replicas(namespace, common()), lambda now: now < planned)

    assert load.answered == load.sent
    assert set(load.statuses) <= {200, 504}, "a machine may stall; what is taken away must fail nothing"
    assert left >= 1
    assert f"{namespace.namespace}/urgent (priority 10) has" in condition(outranked, "Ready")["message"]
    assert "Outranked" in {event["reason"] for event in namespace.list("events")}

    await namespace.wait("delete", "isess", "urgent", f"--timeout={PATIENCE_SECONDS}s")
    await until_ready(namespace, "common")
    await eventually(lambda: replicas(namespace, common()), lambda now: now == planned)
    assert len(namespace.list("pplan")) == 1, "it comes back without another plan"
