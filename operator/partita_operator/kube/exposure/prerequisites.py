"""What addresses need and sessions do not own: a DNS, IngressClasses, Gateways, and Secrets with certificates."""

import asyncio
from functools import partial

from partita_api.inferencesession import InferenceSession
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError
from partita_operator.kube.exposure.cluster_dns import ClusterDns
from partita_operator.kube.exposure.watched_kind import WatchedKind
from partita_operator.kube.resources import ALL_NAMESPACES, GatewayResource, IngressClassResource, SecretResource
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import read
from partita_operator.reconcile.world import PublicWorld
from partita_operator.settings.exposure import ExposureSettings


class Prerequisites:
    """Reads only what the settings let sessions use."""

    def __init__(self, client: KubernetesClient, settings: ExposureSettings) -> None:
        self._client = client
        self._settings = settings
        self._dns = ClusterDns()
        self._classes = WatchedKind(client, IngressClassResource, (ALL_NAMESPACES,))
        namespaces = sorted({gateway.partition("/")[0] for gateway in settings.allowed_gateways})
        self._gateways = WatchedKind(client, GatewayResource, namespaces)

    async def watch(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dns.watch())
            if self._settings.allowed_ingress_classes:
                group.create_task(self._classes.follow())
            if self._settings.allowed_gateways:
                group.create_task(self._gateways.follow())

    async def of(self, session: InferenceSession) -> PublicWorld:
        """What there is for the session's addresses. Raises ApiServerUnavailableError."""
        gateway = _gateway(session)
        classes = frozenset(raw["metadata"]["name"] for raw in self._classes.all())
        return PublicWorld(
            ingress_classes=classes if self._classes.listed(ALL_NAMESPACES) else None,
            has_tls_secret=await self._has_secret(session),
            gateways=self._gateways.state(gateway[0] if gateway else session.namespace),
            gateway=self._gateways.get(*gateway) if gateway else None,
            has_dns=self._dns.works,
        )

    async def _has_secret(self, session: InferenceSession) -> bool | None:
        """Whether the Secret of the session's Ingress exists; None if it names none, or one that is not checked."""
        expose = session.spec.expose
        name = expose.ingress.tls_secret_name if expose is not None and expose.ingress is not None else None
        if name not in self._settings.checked_tls_secrets:
            return None
        namespace = session.namespace
        try:
            return await retried(partial(read, self._client, SecretResource, namespace, name)) is not None
        except ApiError:
            return None


def _gateway(session: InferenceSession) -> tuple[str, str] | None:
    """Namespace and name of the Gateway that the session names."""
    gateway = session.spec.expose.gateway if session.spec.expose is not None else None
    return (gateway.namespace or session.namespace, gateway.name) if gateway is not None else None
