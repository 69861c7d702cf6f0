"""The Ray clusters of engine Ray: the default one, and those that the platform offers by name."""

import asyncio
from typing import Final

from partita_api.inferencesession import InferenceSession
from partita_operator.engines.monitoring_tokens import MonitoringTokens
from partita_operator.engines.ray.engine import RayServeEngine
from partita_operator.settings.model import OperatorSettings
from partita_operator.settings.section import plain
from partita_runtime.models.policy import with_policy
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.transport.tls_files import TlsFiles

TLS_NAME: Final = "partita-ray"
"""The DNS name in the certificates of nodes."""


def serving_options(settings: OperatorSettings) -> ServingOptions:
    """How the processes of sessions run on any cluster."""
    runtime_env = with_policy(dict(settings.runtime_env), settings.models.policy)
    return ServingOptions(runtime_env=runtime_env, transport=settings.transport)


def _with_tls(options: ServingOptions, directory: str) -> ServingOptions:
    """The options on a cluster whose nodes have a certificate in this directory, if it is not empty."""
    tls = TlsFiles(directory=directory, name=TLS_NAME) if directory else None
    return options.model_copy(update={"tls": tls})


class RayClusters:
    """An engine for each Ray cluster of the settings. Each receives only its own token."""

    def __init__(self, settings: OperatorSettings, monitoring: MonitoringTokens | None = None) -> None:
        self._settings = settings.ray
        options, port = serving_options(settings), settings.ray.serve_http_port
        self._default = (
            RayServeEngine(
                settings.ray.address,
                plain(settings.ray.token),
                settings.ray.serve_url,
                port,
                _with_tls(options, settings.ray.transport_tls_directory),
                monitoring=monitoring,
            )
            if settings.ray.address
            else None
        )
        self._named = {
            cluster.name: RayServeEngine(
                cluster.address,
                plain(settings.ray.tokens.get(cluster.name)),
                cluster.serve_url or None,
                port,
                _with_tls(options, cluster.transport_tls_directory),
                cluster.admits,
                monitoring,
            )
            for cluster in settings.ray.clusters
        }

    def of(self, session: InferenceSession) -> RayServeEngine | None:
        """The engine of the cluster that the session names, else the default.

        None if there is no such cluster, or the session's namespace may not use it.
        """
        name = session.spec.engine.cluster
        if name is None:
            return self._default
        if self._settings.cluster_for(name, session.namespace) is None:
            return None
        return self._named[name]

    def all(self) -> tuple[RayServeEngine, ...]:
        """The default engine, if any, then those of the named clusters."""
        return (*((self._default,) if self._default is not None else ()), *self._named.values())

    async def close(self) -> None:
        """Closes all connections."""
        await asyncio.gather(*(engine.close() for engine in self.all()))
