"""The Kubernetes objects that sessions own: in memory by a watch for each kind, and written by server-side apply.

Objects are recognized by their owner, never by their name alone: an object of the same name that belongs to somebody
else is neither changed nor deleted.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from kubernetes.aio.dynamic import Resource

from partita_api.inferencesession import InferenceSession
from partita_api.meta import SESSION_LABEL
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.exposure.watched_kind import WatchedKind, where
from partita_operator.kube.resources import (
    ALL_NAMESPACES,
    EndpointSliceResource,
    GRPCRouteResource,
    HTTPRouteResource,
    IngressResource,
    ServiceResource,
    exists,
)
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import apply_owned, delete_owned, owned_by, read
from partita_operator.reconcile.actions import DeleteObject
from partita_operator.reconcile.object_changes import ObjectName
from partita_operator.reconcile.world import KindState
from partita_operator.settings.exposure import ExposureSettings

KINDS: Final = (ServiceResource, EndpointSliceResource)
"""What every session with pods has."""


def public_kinds(settings: ExposureSettings) -> tuple[Resource, ...]:
    """The kinds of public addresses that the platform lets sessions have."""
    ingresses = (IngressResource,) if settings.allowed_ingress_classes else ()
    routes = (HTTPRouteResource, GRPCRouteResource) if settings.allowed_gateways else ()
    return (*ingresses, *routes)


class SessionObjects:
    """The objects of all sessions, or of those in the given namespaces."""

    def __init__(
        self, client: KubernetesClient, namespaces: Collection[str] = (), public: Collection[Resource] = ()
    ) -> None:
        """`public` are the kinds of public addresses, without which the session's Service works as well."""
        places = tuple(namespaces) or (ALL_NAMESPACES,)
        self._client = client
        self._kinds = {
            kind.kind: WatchedKind(client, kind, places, exists(SESSION_LABEL)) for kind in (*KINDS, *public)
        }
        self._basic = tuple(self._kinds[kind.kind] for kind in KINDS)

    async def watch(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watched in self._kinds.values():
                group.create_task(watched.follow())

    def listed(self, namespace: str) -> bool:
        """Whether all Services and EndpointSlices of a namespace are known."""
        return all(watched.listed(namespace) for watched in self._basic)

    def problem(self, namespace: str) -> str:
        """Why Services or EndpointSlices of a namespace cannot be listed; empty if they can."""
        return " ".join(filter(None, (watched.problem(namespace) for watched in self._basic)))

    def kinds(self, namespace: str) -> Mapping[str, KindState]:
        """The state of each kind that is watched, in a namespace."""
        return {name: watched.state(namespace) for name, watched in self._kinds.items()}

    def of(self, session: InferenceSession) -> tuple[Document, ...]:
        """The objects that the session owns."""
        uid = session.metadata.uid
        return tuple(raw for watched in self._kinds.values() for raw in watched.all() if owned_by(raw, uid))

    async def taken(self, session: InferenceSession, names: Iterable[ObjectName]) -> frozenset[ObjectName]:
        """Those of the names that belong to somebody else. Only names that the session does not own are looked up."""
        found = set()
        namespace, uid = session.namespace, session.metadata.uid
        for kind, name in names:
            known = self._kinds[kind].get(namespace, name)
            if known is not None and owned_by(known, uid):
                continue
            raw = await retried(partial(read, self._client, self._kinds[kind].kind, namespace, name))
            if raw is not None and not owned_by(raw, uid):
                found.add((kind, name))
        return frozenset(found)

    async def apply(self, manifest: Mapping[str, Any]) -> None:
        """Write an object: create it, or change it if the session owns it.

        Raises NameTakenError if an object of somebody else has the name, ApiError and ApiServerUnavailableError.
        """
        watched = self._kinds[manifest["kind"]]
        watched.put(await apply_owned(self._client, watched.kind, manifest, watched.get(*where(manifest))))

    async def delete(self, which: DeleteObject, namespace: str) -> None:
        """Delete an object, unless it is gone or another one has its name now.

        Raises ApiError and ApiServerUnavailableError.
        """
        watched = self._kinds[which.kind]
        await delete_owned(self._client, watched.kind, which, namespace)
        watched.forget(namespace, which.name, which.uid)
