"""A real controller of Ingresses and Gateways: Traefik, beside the control plane."""

import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import httpx
import pytest
from tests.operator.kubectl import Json, Kubectl, eventually

PROGRAM_VARIABLE = "PARTITA_TRAEFIK"
"""The program of Traefik 3.7."""
ADDRESS = "192.0.2.77"
"""What it reports as its own address."""
METHOD = "/inference.GRPCInferenceService/ServerLive"
LIVE = b"\x08\x01"
"""The message of the protocol that says `live: true`."""


def program() -> str:
    """The program. Skips the test if it is not available."""
    found = os.environ.get(PROGRAM_VARIABLE)
    if not found:
        pytest.skip(f"no Traefik; set {PROGRAM_VARIABLE} to its program")
    return found


@contextmanager
def traefik(kubectl: Kubectl, ingress_class: str, port: int, tls_port: int, log: Path) -> Iterator[None]:
    """Traefik on these ports of the machine, for Ingresses of the class and for GatewayClass `traefik`."""
    command = [
        program(),
        f"--entrypoints.web.address=:{port}",
        f"--entrypoints.tls.address=:{tls_port}",
        "--entrypoints.tls.http.tls=true",
        "--providers.kubernetesingress=true",
        f"--providers.kubernetesingress.ingressclass={ingress_class}",
        f"--providers.kubernetesingress.ingressendpoint.ip={ADDRESS}",
        "--providers.kubernetesgateway=true",
        f"--providers.kubernetesgateway.statusaddress.ip={ADDRESS}",
        "--global.checknewversion=false",
        "--global.sendanonymoususage=false",
        "--log.level=INFO",
    ]
    environment = {**os.environ, "KUBECONFIG": str(kubectl.kubeconfig)}
    with log.open("w") as file, subprocess.Popen(command, env=environment, stdout=file, stderr=file) as process:
        try:
            yield
        finally:
            process.terminate()


def classes(ingress_class: str) -> tuple[Json, Json]:
    """The classes of Traefik's Ingresses and Gateways."""
    controller = {"spec": {"controller": "traefik.io/ingress-controller"}}
    gateways = {"spec": {"controllerName": "traefik.io/gateway-controller"}}
    return (
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IngressClass",
            "metadata": {"name": ingress_class},
            **controller,
        },
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "traefik"},
            **gateways,
        },
    )


def run_pod(namespace: Kubectl, labels: dict[str, str], address: str) -> None:
    """A ready pod with these labels at an address of this machine, for the endpoints of Services."""
    node = namespace.namespace
    ready = [{"type": "Ready", "status": "True"}]
    pod = {"nodeName": node, "containers": [{"name": "ray", "image": "registry/serving:1"}]}
    namespace.apply(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray", "labels": labels}, "spec": pod},
    )
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
    namespace("patch", "pod", "ray", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


@dataclass(frozen=True)
class Proxy:
    """A port of the proxy, and the authority of its certificates if it has TLS."""

    port: int
    authority: Path | None = None

    def get(self, host: str, path: str) -> httpx.Response:
        """The answer to a client that has found the proxy by the host's name."""
        trusted = ssl.create_default_context(cafile=self.authority) if self.authority is not None else False
        scheme = "https" if self.authority is not None else "http"
        with httpx.Client(trust_env=False, verify=trusted) as client:
            url = f"{scheme}://127.0.0.1:{self.port}{path}"
            return client.get(url, headers={"host": host}, extensions={"sni_hostname": host})

    async def leads_to(self, host: str, path: str) -> None:
        """Waits until the session answers, with the path as the client sent it."""
        await eventually(partial(self._answer, host, path), lambda answer: answer == path)

    def _answer(self, host: str, path: str) -> str:
        try:
            return self.get(host, path).text
        except httpx.ConnectError as error:  # the certificate is still Traefik's own
            return str(error)


def live(port: int, host: str) -> bytes:
    """The answer of the session's gRPC service through the proxy, or the code of the error."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.default_authority", host)]) as channel:
        try:
            answer: bytes = channel.unary_unary(METHOD)(b"", timeout=10)
        except grpc.RpcError as error:
            return str(error.code()).encode()
        return answer
