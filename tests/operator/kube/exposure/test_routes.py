"""HTTPRoutes and GRPCRoutes of sessions on a real API server, with the operator that keeps them."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kube.exposure.gateway_api import answer, definitions, gateway, gateway_api, listener
from tests.operator.kube.exposure.sessions import exposed, serves, versions
from tests.operator.kubectl import Json, Kubectl, condition, eventually, reason, session

from partita_operator.settings.exposure import ExposureSettings

pytestmark = pytest.mark.apiserver


@pytest.fixture
def allowing(namespace: Kubectl, operators: Operators) -> Operators:
    """Operators that let sessions have routes of Gateway `public` of the namespace."""
    exposure = ExposureSettings(
        allowed_hosts=("*.{namespace}.example.com",), allowed_gateways=(f"{namespace.namespace}/public",)
    )
    operators.settings = operators.settings.model_copy(update={"exposure": exposure})
    return operators


@pytest.fixture
def with_gateway_api(cluster: Kubectl) -> Iterator[None]:
    """The Gateway API's kinds in the cluster."""
    with gateway_api(cluster):
        yield


def public(namespace: Kubectl, **fields: Any) -> Json:
    exposure = {"name": "public", "hostname": f"serve.{namespace.namespace}.example.com", **fields}
    return serves(namespace, session("traffic", expose={"gateway": exposure}, frontend={"grpcPort": 0}))


async def settled(namespace: Kubectl) -> Json:
    found = await eventually(
        lambda: namespace.get("isess", "traffic"), lambda s: reason(s, "Reconciling") == ("False", "Settled")
    )
    assert found is not None
    return found


@pytest.mark.usefixtures("with_gateway_api")
async def test_routes_follow_their_session(namespace: Kubectl, allowing: Operators) -> None:
    def route(kind: str = "httproute") -> Any:
        return namespace.get(kind, "traffic")

    key, domain = f"{namespace.namespace}/traffic", f"{namespace.namespace}.example.com"
    cluster_url = f"http://traffic.{namespace.namespace}.svc/{key}"
    namespace.apply(public(namespace, grpcHostname=f"grpc.{domain}"))
    async with allowing.running():
        found = await exposed(namespace, ("False", "GatewayMissing"))
        assert found["status"]["url"] == cluster_url
        namespace.apply(gateway("public", listener(hostname="other.example.com")))
        found = await exposed(namespace, ("False", "NoListener"))
        assert "http: only hosts other.example.com" in condition(found, "Exposed")["message"]
        namespace.apply(gateway("public", listener(hostname=f"*.{domain}")))
        await exposed(namespace, ("Unknown", "WaitingForController"))
        answer(namespace, "httproute", accepted=False, reason="NotAllowedByListeners")
        found = await exposed(namespace, ("False", "RouteRejected"))
        assert "NotAllowedByListeners: said the controller" in condition(found, "Exposed")["message"]

        answer(namespace, "httproute", accepted=True)
        found = await exposed(namespace, ("Unknown", "WaitingForController"))
        assert "GRPCRoute" in condition(found, "Exposed")["message"]
        answer(namespace, "grpcroute", accepted=True)
        found = await exposed(namespace, ("True", "Public"))
        assert found["status"]["url"] == f"http://serve.{domain}/{key}"
        assert found["status"]["clusterUrl"] == cluster_url
        assert found["status"]["grpcAddress"] == f"grpc.{domain}:80"
        assert reason(await settled(namespace)) == ("True", "Serving")

        before = versions(namespace, "httproutes", "grpcroutes")
        await asyncio.sleep(6 * allowing.settings.resync_seconds)
        assert versions(namespace, "httproutes", "grpcroutes") == before, "nothing is written at rest"

        drift = [{"op": "replace", "path": "/spec/hostnames/0", "value": "elsewhere.example.com"}]
        namespace("patch", "httproute", "traffic", "--type=json", "-p", json.dumps(drift))
        await eventually(route, lambda r: r["spec"]["hostnames"] == [f"serve.{domain}"])

        namespace.apply(public(namespace))
        await eventually(lambda: route("grpcroute"), lambda r: r is None)
        assert route() is not None
        namespace.apply(serves(namespace, session("traffic")))
        await exposed(namespace, ("True", "ServiceReady"))
        await eventually(route, lambda r: r is None)
        assert (await settled(namespace))["status"]["url"] == cluster_url


@pytest.mark.usefixtures("with_gateway_api")
async def test_a_route_of_somebody_else_stays(namespace: Kubectl, allowing: Operators) -> None:
    metadata = {"name": "traffic"}
    spec = {"hostnames": ["theirs.example.com"]}
    namespace.apply(
        gateway("public", listener()),
        {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": metadata, "spec": spec},
    )
    theirs = namespace.get("httproute", "traffic")
    namespace.apply(public(namespace))
    async with allowing.running():
        await exposed(namespace, ("False", "NameTaken"))
        assert reason(await settled(namespace)) == ("True", "Serving")
        assert namespace.get("httproute", "traffic") == theirs


async def test_the_gateway_api_may_come_and_go(namespace: Kubectl, cluster: Kubectl, allowing: Operators) -> None:
    definitions()
    namespace.apply(public(namespace))
    async with allowing.running():
        found = await exposed(namespace, ("False", "GatewayAPIMissing"))
        assert "HTTPRoute of gateway.networking.k8s.io/v1" in condition(found, "Exposed")["message"]
        assert reason(await settled(namespace)) == ("True", "Serving"), "nothing else is disturbed"
        with gateway_api(cluster):
            await exposed(namespace, ("False", "GatewayMissing"))
            namespace.apply(gateway("public", listener()))
            await exposed(namespace, ("Unknown", "WaitingForController"))
            answer(namespace, "httproute", accepted=True)
            await exposed(namespace, ("True", "Public"))
        await exposed(namespace, ("False", "GatewayAPIMissing"))
        assert reason(await settled(namespace)) == ("True", "Serving")
