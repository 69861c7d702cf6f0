"""A session's Service and EndpointSlices on a real API server, with the operator that keeps them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kube.exposure.sessions import (
    FRONTEND,
    SELECTOR,
    TRAFFIC,
    exposed,
    owned_slices,
    serves,
    versions,
)
from tests.operator.kubectl import Json, Kubectl, eventually, reason

from partita_api.inferencesession import InferenceSession
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.connection import load_config
from partita_operator.kube.errors import NameTakenError
from partita_operator.kube.exposure.session_objects import SessionObjects
from partita_operator.kube.resources import ServiceResource
from partita_operator.ports import SessionBackend
from partita_operator.reconcile.actions import DeleteObject
from partita_operator.reconcile.session.exposure.service import service

pytestmark = pytest.mark.apiserver


async def test_a_session_has_a_service_that_stays(namespace: Kubectl, operators: Operators) -> None:
    def service() -> Any:
        return namespace.get("service", "traffic")

    key, host = f"{namespace.namespace}/traffic", f"traffic.{namespace.namespace}.svc"
    namespace.apply(serves(namespace, TRAFFIC))
    async with operators.running():
        await exposed(namespace, ("True", "ServiceReady"))
        found = await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: s["status"].get("httpAddress") == f"{host}:8080"
        )
        assert found["status"]["url"] == f"http://{host}/{key}"
        made = service()
        assert made["spec"]["selector"] == SELECTOR
        assert {port["name"]: port["port"] for port in made["spec"]["ports"]} == {"http": 80, "http-direct": 8080}
        (slice_,) = owned_slices(namespace)
        assert slice_["endpoints"][0]["addresses"] == [FRONTEND.address]
        assert slice_["ports"][0]["port"] == FRONTEND.port
        (own,) = [s for s in namespace.list("endpointslices") if s["metadata"]["name"] != slice_["metadata"]["name"]]
        assert {port["name"] for port in own.get("ports") or []} <= {"http"}, "Kubernetes leaves the direct port alone"

        await eventually(
            lambda: namespace.get("isess", "traffic"), lambda s: reason(s, "Reconciling") == ("False", "Settled")
        )
        before = versions(namespace)
        await asyncio.sleep(6 * operators.settings.resync_seconds)
        assert versions(namespace) == before, "nothing is written at rest"

        moved = replace(FRONTEND, address="10.9.8.8", port=32000, uid="uid-b")
        selector = {**SELECTOR, "ray.io/cluster": "partita-two"}
        operators.engine.backends[key] = SessionBackend(selector, 8000, (moved,))
        await eventually(service, lambda s: s["spec"]["selector"] == selector)
        await eventually(
            lambda: owned_slices(namespace),
            lambda found: [s["endpoints"][0]["addresses"] for s in found] == [[moved.address]],
        )
        assert service()["spec"]["clusterIP"] == made["spec"]["clusterIP"], "the address stays"

        operators.engine.backends[key] = SessionBackend(selector, 8000, None)
        namespace("patch", "service", "traffic", "--type=merge", "-p", '{"spec":{"selector":{"app":"other"}}}')
        await eventually(service, lambda s: s["spec"]["selector"] == selector)
        assert len(owned_slices(namespace)) == 1, "EndpointSlices stay while no frontend answers"
        namespace("delete", "service", "traffic")
        await eventually(service, lambda s: s is not None)

    await namespace.wait("delete", "isess", "traffic", "--wait=false")
    async with operators.running():
        await eventually(service, lambda s: s is None)


async def test_a_service_of_somebody_else_stays(namespace: Kubectl, operators: Operators) -> None:
    ports = [{"name": "theirs", "port": 1234}]
    namespace.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "traffic"}, "spec": {"ports": ports}})
    theirs = namespace.get("service", "traffic")
    namespace.apply(serves(namespace, TRAFFIC))
    async with operators.running():
        found = await exposed(namespace, ("False", "NameTaken"))
        ready = await eventually(lambda: namespace.get("isess", "traffic"), lambda s: reason(s) == ("True", "Serving"))
        assert ready["status"]["url"] == f"http://engine/{namespace.namespace}/traffic"
        assert owned_slices(namespace) == []
        assert namespace.get("service", "traffic") == theirs
        assert "Rename or delete the Service" in str(found["status"]["conditions"])
        namespace("delete", "service", "traffic")
        await exposed(namespace, ("True", "ServiceReady"))


class RacingClient(KubernetesClient):
    """Somebody else makes an object right after the operator found none."""

    theirs: Json | None = None

    async def get(self, kind: Any, name: str, namespace: str = "") -> Document:
        theirs, self.theirs = self.theirs, None
        try:
            return await super().get(kind, name, namespace)
        finally:
            if theirs is not None:
                await self.create(kind, theirs)


@pytest.fixture
async def client(namespace: Kubectl) -> AsyncIterator[RacingClient]:
    async with RacingClient(await load_config(namespace.kubeconfig)) as opened:
        yield opened


def theirs(namespace: Kubectl) -> Json:
    metadata = {"name": "traffic", "namespace": namespace.namespace}
    return {"metadata": metadata, "spec": {"ports": [{"name": "theirs", "port": 1234}]}}


def stored_session(namespace: Kubectl, manifest: Json) -> InferenceSession:
    namespace.apply(serves(namespace, manifest))
    return InferenceSession.model_validate(namespace.get("isess", "traffic"))


@pytest.mark.parametrize("racing", [pytest.param(False, id="earlier"), pytest.param(True, id="in the same moment")])
async def test_a_service_that_somebody_else_makes_is_never_written(
    namespace: Kubectl, client: RacingClient, racing: bool
) -> None:
    owner = stored_session(namespace, TRAFFIC)
    if racing:
        client.theirs = theirs(namespace)
    else:
        await client.create(ServiceResource, theirs(namespace))

    with pytest.raises(
        NameTakenError, match=r"Service \S+/traffic exists and does not belong to InferenceSession traffic"
    ):
        await SessionObjects(client).apply(service(owner, SessionBackend(SELECTOR, 8000)))

    found = namespace.get("service", "traffic")
    assert found is not None
    assert [port["name"] for port in found["spec"]["ports"]] == ["theirs"]
    assert "ownerReferences" not in found["metadata"]
    assert "labels" not in found["metadata"]


async def test_a_field_that_the_operator_leaves_out_later_is_removed(namespace: Kubectl, client: RacingClient) -> None:
    owner, backend = stored_session(namespace, TRAFFIC), SessionBackend(SELECTOR, 8000)
    objects = SessionObjects(client)
    await objects.apply(service(owner, backend))
    first = namespace.get("service", "traffic")
    namespace("label", "service", "traffic", "partita.dev/session-")  # so the operator's watch loses it

    plain = owner.model_copy(update={"spec": owner.spec.model_copy(update={"frontend": type(owner.spec.frontend)()})})
    await SessionObjects(client).apply(service(plain, backend))

    found = namespace.get("service", "traffic")
    assert first is not None
    assert found is not None
    assert {port["name"] for port in first["spec"]["ports"]} == {"http", "http-direct"}
    assert {port["name"] for port in found["spec"]["ports"]} == {"http"}
    assert found["metadata"]["uid"] == first["metadata"]["uid"]
    assert found["metadata"]["labels"]["partita.dev/session"] == "traffic"


async def test_only_the_object_that_was_seen_is_deleted(namespace: Kubectl, client: RacingClient) -> None:
    made = await client.create(ServiceResource, theirs(namespace))
    objects = SessionObjects(client)

    await objects.delete(DeleteObject("v1", "Service", "traffic", uid="another"), namespace.namespace)
    assert namespace.get("service", "traffic") is not None

    await objects.delete(DeleteObject("v1", "Service", "traffic", made["metadata"]["uid"]), namespace.namespace)
    assert namespace.get("service", "traffic") is None
