"""The pods of a namespace's Ray cluster that take the requests of a session. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from partita_operator.engines.kuberay.probes import HTTP_PORT
from partita_operator.engines.kuberay.rayservice_manifest import applications_of
from partita_operator.engines.kuberay.state import cluster_of_clients
from partita_operator.kube.rayservices import CLUSTER_LABEL
from partita_operator.ports import GRPC, HTTP_DIRECT, FrontendPort, ServingStatus, SessionBackend
from partita_runtime.serving.deploy.applications import frontend_name

Document = Mapping[str, Any]
SERVING_LABEL: Final = {"ray.io/serve": "true"}
"""KubeRay's label on pods that its own Service sends requests to."""


def session_backend(
    session_key: str, rayservice: Document | None, serving: ServingStatus | None, pods: Iterable[Document]
) -> SessionBackend | None:
    """The pods of the session, out of the `pods` of the RayCluster that takes requests, or will take the first ones.

    None until there is such a cluster with the session's frontend. The nodes need about a second to direct requests to
    a new Service, so it is made before the cluster serves. A session's code runs in frontends and could report any
    address, so only addresses of these pods count.
    """
    cluster = cluster_of_clients(rayservice)
    if not cluster or frontend_name(session_key) not in applications_of(rayservice):
        return None
    selector = {CLUSTER_LABEL: cluster, **SERVING_LABEL}
    reported = _reported(serving)
    if reported is None:
        return SessionBackend(selector, HTTP_PORT)
    by_address = {address: pod for pod in pods for address in _addresses(pod)}
    known = [(name, host, port) for name, host, port in reported if host in by_address]
    unknown = sorted({f"{host}:{port}" for _, host, port in reported if host not in by_address})
    return SessionBackend(
        selector,
        HTTP_PORT,
        tuple(_frontend_port(name, host, port, by_address[host]) for name, host, port in known),
        tuple(unknown),
    )


def reports_ports(serving: ServingStatus | None) -> bool:
    """Whether frontends report ports of their own."""
    return bool(_reported(serving))


def _reported(serving: ServingStatus | None) -> list[tuple[str, str, int]] | None:
    """Name, host and port of each port that a frontend reports; None if no frontend does."""
    if serving is None or not (serving.http_address or serving.grpc_address):
        return None
    found = []
    for name, addresses in ((HTTP_DIRECT, serving.http_address), (GRPC, serving.grpc_address)):
        for address in (addresses or "").split(","):
            host, _, port = address.rpartition(":")
            if port.isdecimal():
                found.append((name, host.strip("[]"), int(port)))
    return found


def _addresses(pod: Document) -> list[str]:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp") or status.get("phase") != "Running":
        return []
    return [entry["ip"] for entry in status.get("podIPs") or ()]


def _frontend_port(name: str, host: str, port: int, pod: Document) -> FrontendPort:
    meta = pod["metadata"]
    return FrontendPort(name, host, port, meta["name"], meta["uid"], pod["spec"].get("nodeName") or "")
