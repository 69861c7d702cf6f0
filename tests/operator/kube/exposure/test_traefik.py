"""Clients reach a session through a real ingress controller and a real implementation of the Gateway API."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

import grpc
import pytest
from tests.operator.handlers.conftest import Operators
from tests.operator.kube.exposure.gateway_api import gateway, gateway_api, listener
from tests.operator.kube.exposure.sessions import SELECTOR, exposed, serves
from tests.operator.kube.exposure.traefik import ADDRESS, LIVE, METHOD, Proxy, classes, live, program, run_pod, traefik
from tests.operator.kubectl import Json, Kubectl, condition, eventually, session

from partita_devtools.machine.ports import free_ports
from partita_operator.ports import GRPC, FrontendPort, SessionBackend
from partita_operator.settings.exposure import ExposureSettings

pytestmark = pytest.mark.apiserver


def machine_address() -> str:
    """An address of this machine that is not loopback, which endpoints must not be."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.200", 9))
        return str(probe.getsockname()[0])


class PathHandler(BaseHTTPRequestHandler):
    """Answers each request with its path, as a Serve proxy receives it."""

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def serve_port() -> Iterator[int]:
    """The port of an HTTP server on this machine."""
    with ThreadingHTTPServer((machine_address(), 0), PathHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def self_signed(directory: Path, host: str) -> tuple[Path, Path]:
    """A certificate for the host, and its key."""
    certificate, key = directory / "tls.crt", directory / "tls.key"
    names = ("-subj", "/CN=session", "-addext", f"subjectAltName=DNS:{host}")
    files = ("-keyout", str(key), "-out", str(certificate))
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files)
    subprocess.run(made, check=True, capture_output=True)
    return certificate, key


async def grpc_server() -> tuple[grpc.aio.Server, int]:
    """A gRPC server that answers one method of the Open Inference Protocol."""

    async def answer(_: bytes, __: object) -> bytes:
        return LIVE

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer)
    service, _, method = METHOD[1:].partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port(f"{machine_address()}:0")
    await server.start()
    return server, port


async def test_clients_reach_a_session_through_traefik(
    namespace: Kubectl, cluster: Kubectl, operators: Operators, serve_port: int, tmp_path: Path
) -> None:
    program()
    port, tls_port = free_ports(2)
    name, key = namespace.namespace, f"{namespace.namespace}/traffic"
    ingress_class, domain = f"traefik-{uuid4().hex[:8]}", f"{name}.example.com"
    server, grpc_port = await grpc_server()
    frontend = FrontendPort(GRPC, machine_address(), grpc_port, "ray", "uid-ray", name)
    operators.engine.backends[key] = SessionBackend(SELECTOR, serve_port, (frontend,))
    exposure = ExposureSettings(
        allowed_hosts=("*.{namespace}.example.com",),
        allowed_ingress_classes=(ingress_class,),
        allowed_gateways=(f"{name}/public",),
    )
    operators.settings = operators.settings.model_copy(update={"exposure": exposure})

    certificate, certificate_key = self_signed(tmp_path, f"one.{domain}")
    plain, encrypted = Proxy(port), Proxy(tls_port, certificate)

    def public(**expose: Json) -> Json:
        return serves(namespace, session("traffic", expose=expose, frontend={"grpcPort": 0}))

    with gateway_api(cluster), traefik(namespace, ingress_class, port, tls_port, tmp_path / "traefik.log"):
        namespace.apply(*classes(ingress_class))
        run_pod(namespace, SELECTOR, machine_address())
        files = (f"--cert={certificate}", f"--key={certificate_key}")
        namespace("create", "secret", "tls", "serve-tls", *files)
        namespace.apply(public(ingress={"host": f"one.{domain}", "tlsSecretName": "serve-tls"}))
        async with operators.running():
            found = await exposed(namespace, ("True", "Public"))
            assert found["status"]["url"] == f"https://one.{domain}/{key}"
            assert ADDRESS in condition(found, "Exposed")["message"]
            await encrypted.leads_to(f"one.{domain}", f"/{key}/v2/health/ready")
            for private in ("partita/signals", "partita/metrics", "openapi.json"):
                assert encrypted.get(f"one.{domain}", f"/{key}/{private}").status_code == 404

            namespace.apply(
                gateway("public", listener(name="web", port=port), gateway_class="traefik"),
                public(gateway={"name": "public", "hostname": f"two.{domain}", "grpcHostname": f"grpc.{domain}"}),
            )
            found = await eventually(
                lambda: namespace.get("isess", "traffic"),
                lambda s: s["status"]["url"] == f"http://two.{domain}:{port}/{key}" and "grpcAddress" in s["status"],
            )
            found = await exposed(namespace, ("True", "Public"))
            assert found["status"]["grpcAddress"] == f"grpc.{domain}:{port}"
            await plain.leads_to(f"two.{domain}", f"/{key}/v2/health/ready")
            assert plain.get(f"two.{domain}", f"/{key}/partita/signals").status_code == 404
            await eventually(partial(live, port, f"grpc.{domain}"), lambda answer: answer == LIVE)
    await server.stop(None)
    cluster("delete", "node", name)
    cluster("delete", "ingressclass", ingress_class)
