"""The Serve deployment of a session's frontends: in each process a gateway, and the session behind it."""

import asyncio
import gc
import os
from typing import Any, Final

import ray
from ray import serve

from partita_runtime.logs import log_as_environment_says
from partita_runtime.serving.coordinator_actor import RankActor
from partita_runtime.serving.deploy.directory import Directory
from partita_runtime.serving.deploy.epochs import Epoch
from partita_runtime.serving.deploy.names import FRONTEND
from partita_runtime.serving.ingress.asgi import ASGIApp, gateway
from partita_runtime.serving.ingress.grpc_server import grpc_endpoint
from partita_runtime.serving.ingress.http_server import http_endpoint
from partita_runtime.serving.session.session import FrontendSettings, Session
from partita_runtime.serving.standby import Spare
from partita_runtime.serving.telemetry.trace_settings import tracer_of
from partita_runtime.serving.transport.actor_calls import RayCarrier
from partita_runtime.serving.transport.kind import Transport

JOIN_SECONDS: Final = 10.0
"""How long one of several frontends may take to find the replicas before Serve sends it requests anyhow."""
COLLECT_AFTER: Final = 20_000
"""Objects that come and stay before the garbage collector looks at them."""


class Frontend:
    """Serves one session. Which plan it serves comes by `user_config`, an Epoch, and changes in place."""

    def __init__(self, session_key: str, settings: FrontendSettings, transport: Transport = Transport.STREAMS) -> None:
        log_as_environment_says(session=session_key)
        self._tracer = tracer_of(os.environ, session_key)
        rank = RankActor(session_key, transport)
        self._session = Session(session_key, settings, Directory(), self._tracer, rank, RayCarrier(transport))
        host = ray.util.get_node_ip_address()
        self._grpc, self._http = grpc_endpoint(self._session, host), http_endpoint(self._session, host)
        self._spare = Spare()
        _collect_less()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Serve once the replica is constructed."""
        return gateway(self._session)

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Called by Serve at the start and whenever the epoch changes. Raises ValueError for one that is none."""
        self._session.start()
        epoch = Epoch.model_validate(user_config)
        self._session.reconfigure(epoch)
        ports = epoch.session.frontend
        if ports.replicas > 1:
            await self._session.first_plan(JOIN_SECONDS)
        await asyncio.gather(self._grpc.move_to(ports.grpc_port), self._http.move_to(ports.http_port))
        if ports.replicas == 1:
            self._spare.keep()
        else:
            self._spare.release()

    async def __del__(self) -> None:
        """Serve awaits this once all of its own requests are answered; it knows nothing of those by other ports."""
        self._spare.release()
        await asyncio.gather(self._grpc.close(), self._http.close())
        self._session.close()
        if self._tracer is not None:
            await asyncio.to_thread(self._tracer.close)


def _collect_less() -> None:
    """Keep the garbage collector off what was imported: looking through it again and again is a tenth of a request's
    CPU time, and now and then a pause of tens of milliseconds. A request's own objects go without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def application(args: dict[str, Any]) -> serve.Application:
    """Built by Serve from the `args` of the declarative configuration."""
    deployment = serve.deployment(name=FRONTEND)(serve.ingress()(Frontend))
    settings = FrontendSettings.model_validate(args["settings"])
    return deployment.bind(args["session_key"], settings, Transport(args.get("transport", Transport.STREAMS)))
