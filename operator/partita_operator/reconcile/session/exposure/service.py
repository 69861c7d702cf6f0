"""A session's Service and the EndpointSlices of its frontends' own ports.

The Service's selector leads to the pods with a ready Serve proxy, on any of which each session can be reached. Ports of
frontends differ from each other and change with their processes, so each has an EndpointSlice.
"""

import ipaddress
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from partita_api.inferencesession import InferenceSession
from partita_api.meta import API_VERSION, SESSION_LABEL
from partita_operator.ports import GRPC, HTTP_DIRECT, FrontendPort, SessionBackend
from partita_operator.reconcile.object_changes import Document, ObjectName

HTTP: Final = "http"
PORTS: Final[Mapping[str, int]] = {HTTP: 80, HTTP_DIRECT: 8080, GRPC: 8001}
"""The Service's ports."""
PUBLIC_PATH: Final = "/v2"
"""The part of the session's HTTP interface that is public: inference, and not what the operator reads."""
SERVICE: Final = "Service"
ENDPOINT_SLICE: Final = "EndpointSlice"
_APP_PROTOCOLS: Final = {HTTP: "http", HTTP_DIRECT: "http", GRPC: "kubernetes.io/h2c"}
_NO_POD_PORT: Final = "partita-slices"
"""Name of a port that no pod has: Kubernetes adds no endpoints of its own to the Service's port."""


def owned(session: InferenceSession, api_version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    """The manifest of an object that is deleted with the session. `metadata` in the content adds to its metadata."""
    meta = session.metadata
    added = content.pop("metadata", {})
    owner = {"apiVersion": API_VERSION, "kind": session.kind, "name": meta.name, "uid": meta.uid, "controller": True}
    metadata = {
        **added,
        "name": name,
        "namespace": meta.namespace or "default",
        "labels": {**added.get("labels", {}), "app.kubernetes.io/managed-by": "partita", SESSION_LABEL: meta.name},
        "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def service_name(session: InferenceSession) -> ObjectName:
    """Kind and name of the session's Service."""
    return SERVICE, session.metadata.name


def is_reserved(session: InferenceSession) -> bool:
    """Whether KubeRay may need a Service of this name for the RayService `partita` or one of its Ray clusters."""
    return re.fullmatch(r"partita-(.+-)?svc", session.metadata.name) is not None


def host_of(session: InferenceSession) -> str:
    """The Service's name for clients in the cluster."""
    return f"{session.metadata.name}.{session.metadata.namespace or 'default'}.svc"


def direct_ports(session: InferenceSession) -> tuple[str, ...]:
    """The ports of frontends that the session requests, by the names of the Service's ports."""
    frontend = session.spec.frontend
    requested = ((HTTP_DIRECT, frontend.http_port), (GRPC, frontend.grpc_port))
    return tuple(name for name, port in requested if port is not None)


def service(session: InferenceSession, backend: SessionBackend) -> dict[str, Any]:
    """The Service."""
    ports = [
        {
            "name": name,
            "port": PORTS[name],
            "protocol": "TCP",
            "appProtocol": _APP_PROTOCOLS[name],
            "targetPort": backend.port if name == HTTP else _NO_POD_PORT,
        }
        for name in (HTTP, *direct_ports(session))
    ]
    spec = {"type": "ClusterIP", "selector": dict(backend.selector), "ports": ports}
    return owned(session, "v1", SERVICE, session.metadata.name, spec=spec)


def endpoint_slices(session: InferenceSession, backend: SessionBackend) -> list[dict[str, Any]]:
    """An EndpointSlice for each port of a frontend that the session requests."""
    requested = direct_ports(session)
    return [_endpoint_slice(session, port) for port in backend.frontends or () if port.name in requested]


def has_endpoints(objects: tuple[Document, ...], port: str) -> bool:
    """Whether frontends can be reached at the Service's port of this name."""
    slices = (document for document in objects if document["kind"] == ENDPOINT_SLICE)
    return any(entry["name"] == port for document in slices for entry in document.get("ports") or ())


def _endpoint_slice(session: InferenceSession, port: FrontendPort) -> dict[str, Any]:
    name = session.metadata.name
    which = sha256(f"{port.uid}/{port.address}/{port.port}".encode()).hexdigest()[:8]
    namespace = session.namespace
    endpoint = {
        "addresses": [port.address],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": {"kind": "Pod", "namespace": namespace, "name": port.pod, "uid": port.uid},
        **({"nodeName": port.node} if port.node else {}),
    }
    labels = {"kubernetes.io/service-name": name, "endpointslice.kubernetes.io/managed-by": "partita.dev"}
    return owned(
        session,
        "discovery.k8s.io/v1",
        ENDPOINT_SLICE,
        f"{name}-{port.name}-{which}",
        metadata={"labels": labels},
        addressType=f"IPv{ipaddress.ip_address(port.address).version}",
        ports=[{"name": port.name, "port": port.port, "protocol": "TCP", "appProtocol": _APP_PROTOCOLS[port.name]}],
        endpoints=[endpoint],
    )
