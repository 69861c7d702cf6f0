"""The Kubernetes objects that sessions own: in memory by a watch for each kind, and written by server-side apply.

Objects are recognized by their owner, never by their name alone: an object of the same name that belongs to somebody
else is neither changed nor deleted.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from kubernetes.aio.dynamic import Resource

from partita_api.inferencesession import InferenceSession
from partita_api.meta import SESSION_LABEL
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, KubernetesError
from partita_operator.kube.resources import ALL_NAMESPACES, EndpointSliceResource, ServiceResource, exists
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import apply_owned, delete_owned, owned_by, read
from partita_operator.reconcile.actions import DeleteObject
from partita_operator.reconcile.object_changes import ObjectName

logger = logging.getLogger(__name__)

PAUSE_S: Final = 5.0
"""Between the end of a watch and the next list."""
KINDS: Final = (ServiceResource, EndpointSliceResource)


class WatchedKind:
    """The objects of one kind that match a label selector, in memory."""

    def __init__(self, client: KubernetesClient, kind: Resource, places: Collection[str], labels: str = "") -> None:
        self.kind = kind
        self.problem = ""
        """Why the objects cannot be listed now; empty if they can."""
        self._client = client
        self._labels = labels
        self._places = tuple(places)
        self._listed: set[str] = set()
        self._objects: dict[tuple[str, str], Document] = {}
        """By namespace and name."""

    @property
    def listed(self) -> bool:
        """Whether all objects are known."""
        return self._listed == set(self._places)

    def all(self) -> Iterable[Document]:
        """The objects."""
        return self._objects.values()

    def get(self, namespace: str, name: str) -> Document | None:
        """One object; None if it is not known."""
        return self._objects.get((namespace, name))

    def put(self, raw: Document) -> None:
        """Add or update an object, unless a later version is known."""
        known = self._objects.get(_where(raw))
        if known is None or known["metadata"]["uid"] != raw["metadata"]["uid"] or _version(raw) >= _version(known):
            self._objects[_where(raw)] = {"apiVersion": self.kind.group_version, "kind": self.kind.kind, **raw}

    def forget(self, namespace: str, name: str, uid: str) -> None:
        """The object has been deleted."""
        known = self._objects.get((namespace, name))
        if known is not None and known["metadata"]["uid"] == uid:
            del self._objects[namespace, name]

    async def follow(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._follow(place))

    async def _follow(self, place: str) -> None:
        while True:
            try:
                await self._watch(place)
            except KubernetesError as error:
                problem = f"Partita may not list {self.kind.name}: {str(error).removesuffix('.')}."
                if isinstance(error, ApiError) and place not in self._listed:
                    if problem != self.problem:
                        logger.warning("%s", problem)
                    self.problem = problem
            await asyncio.sleep(PAUSE_S)

    async def _watch(self, place: str) -> None:
        since = await self._client.version(self.kind, place, labels=self._labels)
        found = await self._client.list(self.kind, place, labels=self._labels)
        there = {_where(raw) for raw in found}
        for where in [w for w in self._objects if place in (ALL_NAMESPACES, w[0]) and w not in there]:
            del self._objects[where]
        for raw in found:
            self.put(raw)
        self._listed.add(place)
        self.problem = ""
        async with aclosing(self._client.changes(self.kind, place, labels=self._labels, since=since)) as changes:
            async for change in changes:
                if change.deleted:
                    self.forget(*_where(change.object), change.object["metadata"]["uid"])
                else:
                    self.put(change.object)


class SessionObjects:
    """The objects of all sessions, or of those in the given namespaces."""

    def __init__(self, client: KubernetesClient, namespaces: Collection[str] = ()) -> None:
        places = tuple(namespaces) or (ALL_NAMESPACES,)
        self._client = client
        self._kinds = {kind.kind: WatchedKind(client, kind, places, exists(SESSION_LABEL)) for kind in KINDS}

    async def watch(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for watched in self._kinds.values():
                group.create_task(watched.follow())

    @property
    def listed(self) -> bool:
        """Whether all objects are known."""
        return all(watched.listed for watched in self._kinds.values())

    @property
    def problem(self) -> str:
        """Why objects cannot be listed; empty if they can."""
        return " ".join(watched.problem for watched in self._kinds.values() if watched.problem)

    def of(self, session: InferenceSession) -> tuple[Document, ...]:
        """The objects that the session owns."""
        uid = session.metadata.uid
        return tuple(raw for watched in self._kinds.values() for raw in watched.all() if owned_by(raw, uid))

    async def taken(self, session: InferenceSession, names: Iterable[ObjectName]) -> frozenset[ObjectName]:
        """Those of the names that belong to somebody else. Only names that the session does not own are looked up."""
        found = set()
        namespace, uid = session.metadata.namespace or "default", session.metadata.uid
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
        watched.put(await apply_owned(self._client, watched.kind, manifest, watched.get(*_where(manifest))))

    async def delete(self, which: DeleteObject, namespace: str) -> None:
        """Delete an object, unless it is gone or another one has its name now.

        Raises ApiError and ApiServerUnavailableError.
        """
        watched = self._kinds[which.kind]
        await delete_owned(self._client, watched.kind, which, namespace)
        watched.forget(namespace, which.name, which.uid)


def _where(raw: Mapping[str, Any]) -> tuple[str, str]:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _version(raw: Document) -> int:
    version = str(raw["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0
