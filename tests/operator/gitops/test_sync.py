"""Argo CD's gitops-engine synchronizes the example repository with a cluster on which the operator works.

`make e2e-gitops` runs it. GITOPS_AGENT is the path of the engine's agent; KSTATUS may be that of a program around
kstatus (see `tests/operator/gitops/kstatus.py`). GITOPS_QUIET_SECONDS is how long nothing may be written at the end.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable

import pytest
from tests.operator.gitops.conftest import OPERATOR, Site
from tests.operator.kubectl import Json, eventually, reason, session

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(3 * 3600)]

QUIET_SECONDS = float(os.environ.get("GITOPS_QUIET_SECONDS", "60"))
TRAFFIC = "teams/team-a/traffic.yaml"


def rated(requests: int, slo: int = 200) -> Callable[[Json], None]:
    def edit(document: Json) -> None:
        document["spec"]["rate"]["requestsPerSecond"] = requests
        document["spec"]["slo"]["latencyMs"] = slo

    return edit


def serves(rate: int) -> Callable[[Json], bool]:
    """Whether the session serves the present spec, which has this rate."""

    def holds(found: Json) -> bool:
        status = found.get("status") or {}
        return (
            found["spec"]["rate"]["requestsPerSecond"] == rate
            and status["observedGeneration"] == found["metadata"]["generation"]
            and reason(found) == ("True", "Serving")
            and reason(found, "Reconciling")[0] == "False"
        )

    return holds


async def test_the_agent_and_the_operator_work_on_the_same_objects(site: Site) -> None:
    # Install. Nobody has looked at the objects yet, so they are not Current.
    await eventually(lambda: site.kubectl.get("isess", "traffic"), bool)
    await eventually(site.objects, lambda found: len(found) == 3)
    assert set(site.statuses().values()) == {"InProgress"}

    async with site.operated():
        await eventually(site.session, serves(300))
        first = site.session()["status"]["currentPlan"]["name"]
        await eventually(site.statuses, lambda found: set(found.values()) == {"Current"})

        # Change, and rollback: the earlier spec leads to the earlier plan.
        site.repository.change(TRAFFIC, rated(3000))
        await eventually(site.session, serves(3000))
        assert site.session()["status"]["currentPlan"]["name"] != first
        site.repository.revert()
        await eventually(site.session, serves(300))
        assert site.session()["status"]["currentPlan"]["name"] == first

        # A change that cannot be served is Failed, and the earlier plan keeps serving until it is reverted.
        site.repository.change(TRAFFIC, rated(300, slo=1))
        await eventually(site.statuses, lambda found: found["InferenceSession/traffic"] == "Failed")
        assert site.session()["status"]["currentPlan"]["name"] == first
        site.repository.revert()
        await eventually(site.session, serves(300))

        # Drift: the agent undoes it. What a user requests by an annotation stays.
        await site.kubectl.wait("annotate", "isess", "traffic", "partita.dev/paused=load test")
        await site.kubectl.wait(
            "patch", "isess", "traffic", "--type=merge", "-p", '{"spec":{"rate":{"requestsPerSecond":999}}}'
        )
        await eventually(site.session, lambda found: found["spec"]["rate"]["requestsPerSecond"] == 300)
        await site.kubectl.wait("annotate", "isess", "traffic", "partita.dev/paused-")
        await eventually(site.session, serves(300))

        # Prune: with the session go its plans and its applications.
        extra = session("extra", priority=-1)
        extra["metadata"]["namespace"] = "team-a"
        site.repository.add("teams/team-a/extra.yaml", extra)
        await eventually(lambda: site.kubectl.get("isess", "extra"), lambda found: reason(found)[1] == "Serving")
        site.repository.revert()
        await eventually(lambda: [name for name in site.objects() if "extra" in name], lambda found: not found)
        assert "team-a/extra" not in site.operators.engine.applied

        await eventually(site.session, serves(300))
        assert spec_managers(site) & {"partita"} == set()
        await asyncio.sleep(30)  # what the steps before have left to do
        await stays_quiet(site)


def spec_managers(site: Site) -> set[str]:
    """Who owns something in the spec of a session or pool."""
    text = site.kubectl("get", "gpupools,inferencesessions", "-A", "-o", "json", "--show-managed-fields")
    entries = [entry for item in json.loads(text)["items"] for entry in item["metadata"]["managedFields"]]
    return {entry["manager"] for entry in entries if "f:spec" in entry["fieldsV1"]}


async def stays_quiet(site: Site) -> None:
    """While the agent synchronizes again and again, nothing changes, and the operator writes nothing."""
    site.requests()
    before, synchronized, began = site.versions(), len(site.agent.results()), time.monotonic()
    while time.monotonic() - began < QUIET_SECONDS:
        await asyncio.sleep(min(30.0, QUIET_SECONDS))
        assert set(site.statuses().values()) == {"Current"}
    again = len(site.agent.results()) - synchronized
    seconds = time.monotonic() - began
    requests = site.requests(OPERATOR)
    print(f"{seconds:.0f} s, {again} objects synchronized, {len(requests)} requests of the operator")
    assert again > 0
    assert site.versions() == before, "an object was written"
    assert [request for request in requests if request.is_write] == []
