"""A session's routes of a Gateway, its public addresses, and what the condition Exposed says about them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import session

from partita_api.inferencesession import EngineType, InferenceSession
from partita_operator.ports import ServingStatus, SessionBackend
from partita_operator.reconcile.actions import DeleteObject
from partita_operator.reconcile.capacity.cluster import Cluster
from partita_operator.reconcile.object_changes import marked
from partita_operator.reconcile.session.exposure.decision import Exposure, expose, needed_objects
from partita_operator.reconcile.session.exposure.gateway import grpc_route, http_route, listener_for, refusals
from partita_operator.reconcile.session.exposure.service import service
from partita_operator.reconcile.world import ExposureWorld, KindState, PublicWorld, SessionWorld
from partita_operator.settings.exposure import ExposureSettings
from partita_operator.settings.kuberay import KubeRaySettings
from partita_operator.settings.model import OperatorSettings

ALLOWED = ExposureSettings(
    allowed_hosts=("*.example.com",), allowed_gateways=("gateways/public",), allowed_ingress_classes=("nginx",)
)
SETTINGS = OperatorSettings(kuberay=KubeRaySettings(image="x"), default_engine=EngineType.KUBERAY, exposure=ALLOWED)
CLUSTER_URL = "http://traffic.default.svc/default/traffic"
BACKEND = SessionBackend({"ray.io/cluster": "one"}, 8000, ())
ROUTE = DeleteObject("gateway.networking.k8s.io/v1", "HTTPRoute", "traffic", "uid-HTTPRoute")
GATEWAY_FIELDS = {"name": "public", "namespace": "gateways", "hostname": "serve.example.com"}


def exposed(**gateway: Any) -> InferenceSession:
    fields = {**GATEWAY_FIELDS, **gateway}
    frontend = {"grpcPort": 0} if "grpcHostname" in fields else {}
    return session("traffic").model("m").with_spec(expose={"gateway": fields}, frontend=frontend).build()


def listener(**fields: Any) -> dict[str, Any]:
    anyone = {"namespaces": {"from": "All"}}
    return {"name": "https", "protocol": "HTTPS", "port": 443, "allowedRoutes": anyone, **fields}


def gateway(*listeners: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": "public", "namespace": "gateways"}
    return {"metadata": metadata, "spec": {"listeners": list(listeners)}, "status": status}


def accepted(manifest: dict[str, Any], *conditions: tuple[str, str], generation: int = 1) -> dict[str, Any]:
    """A stored route with these conditions: type and status. They are about the generation."""
    made = marked(manifest)
    told = [
        {"type": type, "status": status, "reason": "Why", "message": "Because.", "observedGeneration": generation}
        for type, status in conditions
    ]
    (parent,) = manifest["spec"]["parentRefs"]
    metadata = {**made["metadata"], "uid": f"uid-{made['kind']}", "generation": 1}
    parents = [{"parentRef": parent, "conditions": told}] if told else []
    return {**made, "metadata": metadata, "status": {"parents": parents}}


OWN, BOTH = exposed(), exposed(grpcHostname="grpc.example.com")
HTTP = http_route(OWN, OWN.spec.expose.gateway)
OK = (("Accepted", "True"), ("ResolvedRefs", "True"))
LISTED = {kind: KindState() for kind in ("HTTPRoute", "GRPCRoute", "Ingress")}


def stored_service(of: InferenceSession) -> dict[str, Any]:
    made = marked(service(of, BACKEND))
    return {**made, "metadata": {**made["metadata"], "uid": "uid-Service"}}


def world(*routes: dict[str, Any], at: dict[str, Any] | None, of: InferenceSession = OWN) -> ExposureWorld:
    """A world with a Service, these routes, and a Gateway."""
    return ExposureWorld(
        BACKEND,
        (stored_service(of), *routes),
        kinds=LISTED,
        public=PublicWorld(gateways=KindState(), gateway=at),
    )


def exposure(of_world: ExposureWorld, of: InferenceSession = OWN, **settings: Any) -> Exposure:
    serving = ServingStatus(url="http://engine/default/traffic")
    chosen = SETTINGS.model_copy(update=settings)
    return expose(SessionWorld(session=of, cluster=Cluster(), settings=chosen, serving=serving, exposure=of_world))


def test_the_routes_lead_to_the_ports_of_the_service() -> None:
    (rule,) = HTTP["spec"]["rules"]
    grpc = grpc_route(BOTH, BOTH.spec.expose.gateway, "grpc.example.com")

    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/default/traffic/v2"}}]
    assert rule["backendRefs"] == [{"name": "traffic", "port": 80}]
    assert grpc["spec"]["rules"] == [
        {
            "matches": [{"method": {"type": "Exact", "service": "inference.GRPCInferenceService"}}],
            "backendRefs": [{"name": "traffic", "port": 8001}],
        }
    ]
    assert grpc["spec"]["hostnames"] == ["grpc.example.com"]


@pytest.mark.parametrize(
    ("listeners", "url"),
    [
        pytest.param([listener()], "https://serve.example.com", id="HTTPS"),
        pytest.param([listener(protocol="HTTP", port=80)], "http://serve.example.com", id="HTTP"),
        pytest.param([listener(port=8443)], "https://serve.example.com:8443", id="another port"),
        pytest.param(
            [listener(name="http", protocol="HTTP", port=80), listener()], "https://serve.example.com", id="TLS"
        ),
        pytest.param([listener(hostname="serve.example.com")], "https://serve.example.com", id="the host"),
        pytest.param([listener(hostname="*.com")], "https://serve.example.com", id="a wildcard of several labels"),
        pytest.param(
            [listener(allowedRoutes={"namespaces": {"from": "Selector"}})],
            "https://serve.example.com",
            id="a selector is left to the controller",
        ),
        pytest.param(
            [listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": [{"kind": "HTTPRoute"}]})],
            "https://serve.example.com",
            id="the kind",
        ),
    ],
)
def test_the_url_is_that_of_the_listener(listeners: list[dict[str, Any]], url: str) -> None:
    found = exposure(world(accepted(HTTP, *OK), at=gateway(*listeners, addresses=[{"value": "192.0.2.1"}])))

    assert (found.url, found.cluster_url) == (f"{url}/default/traffic", CLUSTER_URL)
    assert found.finding is not None
    assert (found.finding.status, str(found.finding.reason)) == (True, "Public")
    assert "192.0.2.1" in found.finding.message
    assert found.actions == ()


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        pytest.param(listener(hostname="other.example.com"), "only hosts other.example.com", id="another host"),
        pytest.param(
            listener(hostname="*.serve.example.com"), "only hosts *.serve.example.com", id="too long a wildcard"
        ),
        pytest.param(listener(protocol="TCP"), "protocol TCP", id="another protocol"),
        pytest.param(listener(allowedRoutes={}), "no routes from the session's namespace", id="its own namespace"),
        pytest.param(
            listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]}),
            "no routes of kind HTTPRoute",
            id="another kind",
        ),
    ],
)
def test_a_listener_that_does_not_accept_the_route_says_why(refused: dict[str, Any], why: str) -> None:
    assert list(refusals(gateway(refused), HTTP)) == [f"https: {why}"]
    assert listener_for(gateway(refused), HTTP) is None


def test_only_the_listener_of_the_section_counts() -> None:
    of = exposed(sectionName="internal")
    found = exposure(world(at=gateway(listener()), of=of), of)

    assert found.finding is not None
    assert str(found.finding.reason) == "NoListener"
    assert "https: not the listener of sectionName" in found.finding.message


@pytest.mark.parametrize(
    ("of_world", "want", "message", "writes"),
    [
        pytest.param(world(at=None), "GatewayMissing", "Gateway gateways/public does not exist", 1, id="no Gateway"),
        pytest.param(world(at=gateway()), "NoListener", "has no listeners", 1, id="no listeners"),
        pytest.param(
            world(at=gateway(listener(hostname="x.example.com"))),
            "NoListener",
            "for host serve.example.com: https: only hosts x.example.com",
            1,
            id="no listener for the host",
        ),
        pytest.param(world(at=gateway(listener())), "WaitingForController", "HTTPRoute traffic", 1, id="first write"),
        pytest.param(
            world(
                accepted(HTTP),
                at=gateway(
                    listener(), conditions=[{"type": "Accepted", "status": "Unknown", "message": "Nobody is here."}]
                ),
            ),
            "WaitingForController",
            "Its condition Accepted is Unknown: Nobody is here.",
            0,
            id="no controller",
        ),
        pytest.param(
            world(accepted(HTTP, *OK, generation=0), at=gateway(listener())),
            "WaitingForController",
            "HTTPRoute traffic",
            0,
            id="accepted before a change",
        ),
        pytest.param(
            world(accepted(HTTP, ("Accepted", "False")), at=gateway(listener())),
            "RouteRejected",
            "rejects HTTPRoute traffic. Why: Because.",
            0,
            id="rejected",
        ),
        pytest.param(
            world(accepted(HTTP, ("Accepted", "True"), ("ResolvedRefs", "False")), at=gateway(listener())),
            "RouteRejected",
            "Why: Because.",
            0,
            id="its Service is not found",
        ),
        pytest.param(
            replace(world(at=gateway(listener())), taken=frozenset({("HTTPRoute", "traffic")})),
            "NameTaken",
            "HTTPRoute traffic exists",
            0,
            id="name taken",
        ),
        pytest.param(
            replace(
                world(at=None),
                kinds={"HTTPRoute": KindState(listed=False, defined=False, problem="Not found.")},
            ),
            "GatewayAPIMissing",
            "lacks HTTPRoute of gateway.networking.k8s.io/v1",
            0,
            id="no Gateway API",
        ),
        pytest.param(
            replace(world(at=None), public=PublicWorld(gateways=KindState(listed=False, problem="No right."))),
            "ExposureFailed",
            "No right.",
            0,
            id="no right",
        ),
    ],
)
def test_what_is_missing_is_named_and_the_service_stays(
    of_world: ExposureWorld, want: str, message: str, writes: int
) -> None:
    found = exposure(of_world)

    assert found.finding is not None
    assert found.finding.status is not True
    assert str(found.finding.reason) == want
    assert message in found.finding.message
    assert len(found.actions) == writes
    assert (found.url, found.cluster_url) == (CLUSTER_URL, None)


def grpc_world(*conditions: tuple[str, str]) -> ExposureWorld:
    http = accepted(http_route(BOTH, BOTH.spec.expose.gateway), *OK)
    grpc = accepted(grpc_route(BOTH, BOTH.spec.expose.gateway, "grpc.example.com"), *conditions)
    return world(http, grpc, at=gateway(listener()), of=BOTH)


def test_grpc_has_a_host_of_its_own() -> None:
    found = exposure(grpc_world(*OK), BOTH)

    assert found.grpc_address == "grpc.example.com:443"
    assert found.finding is not None
    assert "gRPC clients reach it at grpc.example.com:443" in found.finding.message
    assert found.actions == ()


def test_http_is_public_while_the_grpc_route_is_rejected() -> None:
    found = exposure(grpc_world(("Accepted", "False")), BOTH)

    assert found.url == "https://serve.example.com/default/traffic"
    assert found.grpc_address is None
    assert found.finding is not None
    assert str(found.finding.reason) == "RouteRejected"
    assert "GRPCRoute" in found.finding.message


def test_grpc_without_a_host_is_mentioned() -> None:
    of = session("traffic").model("m").with_spec(expose={"gateway": GATEWAY_FIELDS}, frontend={"grpcPort": 0}).build()
    found = exposure(world(accepted(HTTP, *OK), at=gateway(listener()), of=of), of)

    assert found.finding is not None
    assert found.finding.status is True
    assert "set gateway.grpcHostname" in found.finding.message


def test_routes_that_are_not_requested_any_more_are_deleted() -> None:
    plain = session("traffic").model("m").build()

    assert exposure(world(accepted(HTTP, *OK), at=None, of=plain), plain).actions == (ROUTE,)


def test_another_gateway_than_the_allowed_ones_is_refused_before_it_is_looked_up() -> None:
    found = exposure(world(accepted(HTTP, *OK), at=None), exposed(namespace="kube-system"))

    assert found.finding is not None
    assert str(found.finding.reason) == "ExposeNotAllowed"
    assert "Gateway kube-system/public" in found.finding.message
    assert "exposure.allowedGateways of the chart has only gateways/public" in found.finding.message
    assert found.actions == (ROUTE,)


def test_nothing_changes_until_the_gateways_are_read() -> None:
    unread = replace(world(accepted(HTTP, *OK), at=None), public=PublicWorld())
    found = exposure(unread)

    assert found.finding is None
    assert found.actions == ()


def test_both_routes_are_looked_up() -> None:
    assert list(needed_objects(BOTH, ALLOWED)) == [
        ("Service", "traffic"),
        ("HTTPRoute", "traffic"),
        ("GRPCRoute", "traffic"),
    ]
