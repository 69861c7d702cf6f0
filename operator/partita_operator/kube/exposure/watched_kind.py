"""The objects of one kind, in memory by a watch."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final

from kubernetes.aio.dynamic import Resource

from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, KubernetesError, is_missing
from partita_operator.kube.resources import ALL_NAMESPACES
from partita_operator.reconcile.world import KindState

logger = logging.getLogger(__name__)

PAUSE_S: Final = 5.0
"""Between the end of a watch and the next list."""


class WatchedKind:
    """The objects of one kind that match a label selector, in memory. The cluster may get and lose the kind."""

    def __init__(self, client: KubernetesClient, kind: Resource, places: Collection[str], labels: str = "") -> None:
        self.kind = kind
        self._problems: dict[str, str] = {}
        """Why the objects of a namespace have never been listed."""
        self._defined = True
        self._client = client
        self._labels = labels
        self._places = tuple(places)
        self._listed: set[str] = set()
        self._objects: dict[tuple[str, str], Document] = {}
        """By namespace and name."""

    def listed(self, namespace: str) -> bool:
        """Whether all objects of a namespace are known."""
        return not self._listed.isdisjoint((namespace, ALL_NAMESPACES))

    def problem(self, namespace: str) -> str:
        """Why the objects of a namespace cannot be listed now; empty if they can."""
        return self._problems.get(namespace) or self._problems.get(ALL_NAMESPACES, "")

    def state(self, namespace: str) -> KindState:
        """Whether the kind can be used in a namespace."""
        return KindState(self.listed(namespace), self._defined, self.problem(namespace))

    def all(self) -> Iterable[Document]:
        """The objects."""
        return self._objects.values()

    def get(self, namespace: str, name: str) -> Document | None:
        """One object; None if it is not known."""
        return self._objects.get((namespace, name))

    def put(self, raw: Document) -> None:
        """Add or update an object, unless a later version is known."""
        known = self._objects.get(where(raw))
        if known is None or known["metadata"]["uid"] != raw["metadata"]["uid"] or _version(raw) >= _version(known):
            self._objects[where(raw)] = {"apiVersion": self.kind.group_version, "kind": self.kind.kind, **raw}

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
            except ApiError as error:
                self._refused(place, error)
            except KubernetesError:
                pass  # the API server is away; the objects stay as they were
            await asyncio.sleep(PAUSE_S)

    def _refused(self, place: str, error: ApiError) -> None:
        self._defined = not is_missing(error)
        if not self._defined:
            self._listed.discard(place)
            self._keep(place, frozenset())
        problem = f"Partita may not list {self.kind.name}: {str(error).removesuffix('.')}."
        if place not in self._listed:
            if problem != self._problems.get(place):
                logger.warning("%s", problem)
            self._problems[place] = problem

    def _keep(self, place: str, there: Collection[tuple[str, str]]) -> None:
        """Forget the objects of a namespace, or of all namespaces, that do not exist any more."""
        for known in [name for name in self._objects if place in (ALL_NAMESPACES, name[0]) and name not in there]:
            del self._objects[known]

    async def _watch(self, place: str) -> None:
        since = await self._client.version(self.kind, place, labels=self._labels)
        found = await self._client.list(self.kind, place, labels=self._labels)
        there = {where(raw) for raw in found}
        self._keep(place, there)
        for raw in found:
            self.put(raw)
        self._listed.add(place)
        self._problems.pop(place, None)
        self._defined = True
        async with aclosing(self._client.changes(self.kind, place, labels=self._labels, since=since)) as changes:
            async for change in changes:
                if change.deleted:
                    self.forget(*where(change.object), change.object["metadata"]["uid"])
                else:
                    self.put(change.object)


def where(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name of an object; the namespace is empty for an object of the cluster."""
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def _version(raw: Document) -> int:
    version = str(raw["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0
