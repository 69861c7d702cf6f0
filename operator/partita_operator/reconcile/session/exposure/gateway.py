"""A session's routes of a Gateway: their manifests, and the listeners of the Gateway that accept them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from partita_api.inferencesession import InferenceSession
from partita_api.session.expose import GatewayExposure
from partita_operator.ports import GRPC
from partita_operator.reconcile.session.exposure.policy import gateway_key
from partita_operator.reconcile.session.exposure.service import HTTP, PORTS, PUBLIC_PATH, owned
from partita_runtime.serving.deploy.names import route_prefix

GROUP: Final = "gateway.networking.k8s.io"
GATEWAY: Final = "Gateway"
HTTP_ROUTE: Final = "HTTPRoute"
GRPC_ROUTE: Final = "GRPCRoute"
GRPC_SERVICE: Final = "inference.GRPCInferenceService"
"""The gRPC service of the Open Inference Protocol."""
_HTTPS: Final = "HTTPS"
_DEFAULT_PORTS: Final[Mapping[str, int]] = {"HTTP": 80, _HTTPS: 443}
"""The protocols of listeners that routes can have."""

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Listener:
    """A listener that accepts a route."""

    protocol: str
    port: int

    def url(self, host: str) -> str:
        """Scheme, host and port for clients."""
        port = "" if self.port == _DEFAULT_PORTS[self.protocol] else f":{self.port}"
        return f"{self.protocol.lower()}://{host}{port}"


def http_route(session: InferenceSession, exposure: GatewayExposure) -> dict[str, Any]:
    """The HTTPRoute. The path is not rewritten: Ray Serve finds the session by it."""
    path = {"type": "PathPrefix", "value": f"{route_prefix(session.key)}{PUBLIC_PATH}"}
    return _route(session, exposure, HTTP_ROUTE, exposure.hostname, {"path": path}, PORTS[HTTP])


def grpc_route(session: InferenceSession, exposure: GatewayExposure, hostname: str) -> dict[str, Any]:
    """The GRPCRoute. The protocol has no name of the session, so the host belongs to the session alone."""
    method = {"type": "Exact", "service": GRPC_SERVICE}
    return _route(session, exposure, GRPC_ROUTE, hostname, {"method": method}, PORTS[GRPC])


def listener_for(gateway: Document, manifest: Document) -> Listener | None:
    """The listener by which clients reach a route, one with TLS if there is any; None if no listener accepts it."""
    accepting = [listener for listener in _listeners(gateway) if not refusal(listener, gateway, manifest)]
    if not accepting:
        return None
    chosen = next((listener for listener in accepting if listener["protocol"] == _HTTPS), accepting[0])
    return Listener(chosen["protocol"], chosen["port"])


def refusals(gateway: Document, manifest: Document) -> Iterator[str]:
    """Why each listener does not accept a route."""
    for listener in _listeners(gateway):
        if why := refusal(listener, gateway, manifest):
            yield f"{listener['name']}: {why}"


def refusal(listener: Document, gateway: Document, manifest: Document) -> str:
    """Why a listener does not accept a route; empty if it may. Selectors of namespaces are left to the controller."""
    (parent,), (host,) = manifest["spec"]["parentRefs"], manifest["spec"]["hostnames"]
    allowed = listener.get("allowedRoutes") or {}
    namespaces = (allowed.get("namespaces") or {}).get("from", "Same")
    kinds = [kind["kind"] for kind in allowed.get("kinds") or () if kind.get("group", GROUP) == GROUP]
    if parent.get("sectionName", listener["name"]) != listener["name"]:
        return "not the listener of sectionName"
    if listener["protocol"] not in _DEFAULT_PORTS:
        return f"protocol {listener['protocol']}"
    if not _serves_host(listener.get("hostname") or "", host):
        return f"only hosts {listener['hostname']}"
    if allowed.get("kinds") and manifest["kind"] not in kinds:
        return f"no routes of kind {manifest['kind']}"
    same = gateway["metadata"]["namespace"] == manifest["metadata"]["namespace"]
    if namespaces == "None" or (namespaces == "Same" and not same):
        return "no routes from the session's namespace"
    return ""


def gateway_addresses(gateway: Document) -> tuple[str, ...]:
    """The addresses that the controller has reported for the Gateway."""
    return tuple(address["value"] for address in (gateway.get("status") or {}).get("addresses") or ())


def _route(
    session: InferenceSession, exposure: GatewayExposure, kind: str, hostname: str, match: dict[str, Any], port: int
) -> dict[str, Any]:
    namespace, _, name = gateway_key(session, exposure).partition("/")
    parent = {"group": GROUP, "kind": GATEWAY, "namespace": namespace, "name": name}
    if exposure.section_name is not None:
        parent["sectionName"] = exposure.section_name
    backend = {"name": session.metadata.name, "port": port}
    spec = {
        "parentRefs": [parent],
        "hostnames": [hostname],
        "rules": [{"matches": [match], "backendRefs": [backend]}],
    }
    return owned(session, f"{GROUP}/v1", kind, session.metadata.name, spec=spec)


def _listeners(gateway: Document) -> tuple[Document, ...]:
    return tuple(gateway["spec"].get("listeners") or ())


def _serves_host(pattern: str, host: str) -> bool:
    """Whether a listener's hostname includes the host: `*.` stands for one or more labels, empty for all hosts."""
    return pattern in ("", host) or (pattern.startswith("*.") and host.endswith(pattern[1:]))
