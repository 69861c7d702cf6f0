"""Versions beside each other: the operator routes requests of one session to another on a real Ray cluster."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.e2e.conftest import IMAGE, System, emulated, until_ready
from tests.operator.kubectl import Json, Kubectl, condition, eventually
from tests.patience import PATIENCE_SECONDS
from tests.runtime.serving.load import infer_body

from partita_runtime.serving.deploy.monitoring_access import authorization

pytestmark = [pytest.mark.e2e, pytest.mark.apiserver, pytest.mark.ray, pytest.mark.timeout(1200)]

BY_HEADER = {"name": "2", "session": "next", "header": {"name": "x-variant", "value": "b"}}


class Client:
    """A client that knows only the session `main`."""

    def __init__(self, system: System, kubectl: Kubectl, http: httpx.Client) -> None:
        self._model = f"http://{system.endpoint(kubectl.namespace, 'main')}/v2/models/main"
        self._http = http

    def infer(self, path: str = "/infer", **headers: str) -> str:
        """The version that has answered, or the status of an error."""
        content, binary = infer_body(IMAGE[None])
        sent = binary | {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._http.post(self._model + path, content=content, headers=sent)
        return answer.headers.get("partita-version", "1") if answer.is_success else str(answer.status_code)


@pytest.fixture
async def client(system: System, namespace: Kubectl) -> AsyncIterator[Client]:
    """A client of two sessions that serve."""
    namespace.apply(emulated("main"), emulated("next"))
    await until_ready(namespace, "main")
    await until_ready(namespace, "next")
    with httpx.Client(timeout=PATIENCE_SECONDS) as http:
        yield Client(system, namespace, http)


async def until_applied(kubectl: Kubectl, *versions: Json) -> Json:
    """The session once all of its versions get their requests."""
    kubectl.apply(emulated("main", versions=[*versions]))
    found = await eventually(
        lambda: condition(kubectl.get("isess", "main"), "VersionsReady"),
        lambda now: now.get("status") == "True" and now["observedGeneration"] == generation(kubectl),
    )
    session = kubectl.get("isess", "main")
    assert session is not None, found
    return session


def generation(kubectl: Kubectl) -> int:
    session = kubectl.get("isess", "main")
    assert session is not None
    return int(session["metadata"]["generation"])


async def test_another_session_answers_by_path_header_and_share_without_another_plan(
    client: Client, namespace: Kubectl
) -> None:
    before = namespace.get("isess", "main")
    assert before is not None

    await until_applied(namespace, BY_HEADER)
    await eventually(lambda: client.infer(x_variant="b"), lambda version: version == "2")
    assert client.infer("/versions/2/infer") == "2"
    assert client.infer() == "1"

    shared = await until_applied(namespace, {**BY_HEADER, "share": "50%"})
    answered: Counter[str] = Counter()
    while len(answered) < 2 and answered.total() < 100:
        answered[client.infer()] += 1
    assert answered.keys() == {"1", "2"}
    assert shared["status"]["currentPlan"] == before["status"]["currentPlan"]
    assert "2=50%" in namespace("get", "isess", "main", "-o", "wide")


async def test_a_version_that_is_deleted_costs_no_request_of_those_that_did_not_choose_it(
    client: Client, namespace: Kubectl
) -> None:
    await until_applied(namespace, {**BY_HEADER, "share": "100%"})
    await eventually(client.infer, lambda version: version == "2")

    namespace("delete", "isess", "next", "--wait=false")
    answered: Counter[str] = Counter()
    while answered["1"] < 20 and answered.total() < 500:
        answered[client.infer()] += 1
        await asyncio.sleep(0.05)

    assert answered.keys() <= {"1", "2"}
    assert answered["1"] >= 20
    assert client.infer("/versions/2/infer") == "503"
    found = await eventually(
        lambda: condition(namespace.get("isess", "main"), "VersionsReady"), lambda now: now["status"] == "False"
    )
    assert found["reason"] == "VersionMissing"


async def test_a_shadow_gets_copies_whose_answers_are_compared(
    client: Client, system: System, namespace: Kubectl
) -> None:
    await until_applied(namespace, {"name": "2", "session": "next", "shadow": {"share": "100%"}})

    def compared() -> dict[str, float]:
        assert client.infer() == "1"
        return shadow_answers(system, namespace)

    counts = await eventually(compared, lambda now: now.get("equal", 0) >= 5)

    assert counts.keys() == {"equal"}
    assert "2=100%-copied" in namespace("get", "isess", "main", "-o", "wide")


def shadow_answers(system: System, kubectl: Kubectl) -> dict[str, float]:
    """What the frontend of `main` counts, by result."""
    url = f"http://{system.endpoint(kubectl.namespace, 'main')}/partita/metrics"
    headers = authorization(system.monitoring_token(kubectl.namespace))
    text = httpx.get(url, headers=headers, timeout=PATIENCE_SECONDS).raise_for_status().text
    found = re.findall(r'^partita_shadow_answers_total\{.*result="(\w+)".*\} (\S+)$', text, re.MULTILINE)
    return {result: float(count) for result, count in found}
