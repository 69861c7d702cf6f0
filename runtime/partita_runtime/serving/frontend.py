"""The Serve deployment of a session's frontends: each process has the session and its servers."""

import asyncio
import gc
import os
from typing import Any, Final

import ray
from ray import serve

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.coordinator_actors import ActorCoordinatorFinder
from partita_runtime.serving.deploy import monitoring_access
from partita_runtime.serving.deploy.directory import Directory
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.deploy.names import FRONTEND
from partita_runtime.serving.ingress.asgi import ASGIApp, asgi_application
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.ingress.http_server import http_endpoint
from partita_runtime.serving.session.session import Session
from partita_runtime.serving.session.settings import FrontendSettings
from partita_runtime.serving.standby import StandbyProcess
from partita_runtime.serving.telemetry.trace_settings import tracer_of
from partita_runtime.serving.transport.actor_calls import RayTransport
from partita_runtime.serving.transport.kind import TransportKind
from partita_runtime.serving.transport.tls_files import TlsFiles

JOIN_SECONDS: Final = 10.0
"""How long one of several frontends may search for replicas before Serve sends it requests."""
COLLECT_AFTER: Final = 20_000
"""New objects after which the garbage collector runs."""


class FrontendReplica:
    """Serves one session. Its `user_config` is the Epoch to serve, which changes in place."""

    def __init__(
        self,
        session_key: str,
        settings: FrontendSettings,
        kind: TransportKind = TransportKind.STREAMS,
        tls: TlsFiles | None = None,
    ) -> None:
        log_as_environment_says(session=session_key)
        self._tracer = tracer_of(os.environ, session_key)
        coordinator = ActorCoordinatorFinder(session_key, kind, tls)
        transport = RayTransport(kind, tls)
        self._session = Session(session_key, settings, Directory(), self._tracer, coordinator, transport)
        host = ray.util.get_node_ip_address()
        self._grpc, self._http = grpc_endpoint(self._session, host), http_endpoint(self._session, host)
        self._standby = StandbyProcess()
        _collect_less()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Serve calls this once the replica is constructed."""
        return asgi_application(self._session, os.environ.get(monitoring_access.VARIABLE, ""))

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Serve calls this at the start and whenever the epoch changes. Raises ValueError for an invalid epoch."""
        self._session.start()
        epoch = Epoch.model_validate(user_config)
        self._session.reconfigure(epoch)
        ports = epoch.session.frontend
        if ports.replicas > 1:
            await self._session.first_plan(JOIN_SECONDS)
        await asyncio.gather(self._grpc.move_to(ports.grpc_port), self._http.move_to(ports.http_port))
        if ports.replicas == 1:
            self._standby.keep()
        else:
            self._standby.release()

    async def __del__(self) -> None:
        """Serve awaits this once all of its own requests are answered; those on other ports are answered here."""
        self._standby.release()
        await asyncio.gather(self._grpc.close(), self._http.close())
        await self._session.request_log.finish()
        self._session.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)


def _collect_less() -> None:
    """Exclude imported objects from garbage collection, and run it less often.

    Scanning them takes a tenth of a request's CPU time, with pauses of tens of milliseconds. The objects of a request
    are freed without the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def application(args: dict[str, Any]) -> serve.Application:
    """Built by Serve from the `args` of the declarative configuration."""
    deployment = serve.deployment(name=FRONTEND)(serve.ingress()(FrontendReplica))
    settings = FrontendSettings.model_validate(args["settings"])
    kind = TransportKind(args.get("transport", TransportKind.STREAMS))
    tls = TlsFiles.model_validate(args["tls"]) if "tls" in args else None
    return deployment.bind(args["session_key"], settings, kind, tls)
