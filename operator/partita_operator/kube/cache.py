"""All of Partita's objects in memory: listed periodically, and kept up to date by watch events and by writes.

The operator's own writes are added at once: a pass sees the writes of the pass before it. A list repairs what a broken
watch missed.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from partita_api.meta import API_VERSION
from partita_operator.kube.client import KubernetesClient, Listing
from partita_operator.kube.errors import ApiError, KubernetesError, is_missing
from partita_operator.kube.resources import (
    ALL_NAMESPACES,
    Document,
    PlanResource,
    PoolResource,
    SessionResource,
    install_crds,
    read_plan,
    read_pool,
    read_session,
    recorded_spec_json,
)
from partita_operator.kube.retries import retried
from partita_operator.reconcile.capacity.cluster import Cluster

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Kind(StrEnum):
    """The kinds of objects in the cache."""

    POOL = "GPUPool"
    SESSION = "InferenceSession"
    PLAN = "PipelinePlan"


_RESOURCES: Final[Mapping[Kind, Any]] = {
    Kind.POOL: PoolResource,
    Kind.SESSION: SessionResource,
    Kind.PLAN: PlanResource,
}


class KindMissingError(Exception):
    """The API server does not serve one of Partita's kinds. The message names it and says how to install it."""


Key = tuple[Kind, str]
"""A kind and namespace/name, or only the name of a cluster-scoped object."""


def key_of(kind: Kind, raw: Document) -> Key:
    """The key of an object."""
    meta = raw["metadata"]
    return kind, f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


class ClusterCache:
    """The objects as last seen. Not thread-safe."""

    def __init__(self, client: KubernetesClient, namespaces: Collection[str] = ()) -> None:
        """All namespaces by default."""
        self._client = client
        self._namespaces = tuple(namespaces) or (ALL_NAMESPACES,)
        self._raw: dict[Key, Document] = {}
        self._changed: set[Key] = set()
        """The objects created, changed or deleted since `_cluster` was made."""
        self._cluster = Cluster()
        self._gone: dict[Key, str] = {}
        """The uids of the objects deleted since the last list request began."""
        self._listing = asyncio.Lock()
        """Held during a list request."""
        self.refused: frozenset[str] = frozenset()
        """The namespaces that could not be listed. What is known of them may be old, or nothing."""

    async def refresh(self, kinds: Iterable[Kind] = tuple(Kind)) -> None:
        """List the objects of these kinds again. Raises ApiServerUnavailableError and KindMissingError.

        A creation, change or deletion that arrives during a list request is newer than its answer.
        """
        async with self._listing:
            for kind in kinds:
                await self._refresh(kind)

    async def _refresh(self, kind: Kind) -> None:
        before, self._gone = dict(self._raw), {}
        found = await retried(partial(self._list, kind))
        listed = {key_of(kind, raw): raw for raw in found.objects}
        for key, raw in before.items():
            is_known = raw["metadata"].get("namespace") not in found.refused
            if key[0] is kind and is_known and key not in listed and self._raw.get(key) is raw:
                self.forget(key)
        for key, raw in listed.items():
            if self._gone.get(key) != raw["metadata"].get("uid", ""):
                self.put(kind, raw)
        if kind is Kind.SESSION:
            self._note(found.refused)

    def put(self, kind: Kind, raw: Document) -> None:
        """Add or update an object, unless a newer version of it is known."""
        key = key_of(kind, raw)
        known = self._raw.get(key)
        if known is not None and not _is_newer(raw, known):
            return
        self._raw[key] = _without_managers(raw)
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """The object has been deleted."""
        raw = self._raw.pop(key, None)
        if raw is not None:
            self._changed.add(key)
            self._gone[key] = raw["metadata"].get("uid", "")

    def last_seen(self, key: Key) -> Document | None:
        """An object as last seen; None if it is not known."""
        return self._raw.get(key)

    @property
    def known(self) -> tuple[Key, ...]:
        """The keys of all objects, in order."""
        return tuple(sorted(self._raw))

    def cluster(self) -> Cluster:
        """All objects as API models. Only those changed since the last call are parsed."""
        if self._changed:
            self._cluster = self._read(self._cluster)
            self._changed.clear()
        return self._cluster

    async def watchable(self) -> tuple[str, ...]:
        """The namespaces whose sessions may be listed now; empty for all of the cluster.

        All those of the settings if none may be listed, or the API server does not answer.
        """
        if self._namespaces == (ALL_NAMESPACES,):
            return ()
        try:
            refused = (await self._list(Kind.SESSION)).refused
        except (KubernetesError, KindMissingError):
            return self._namespaces
        self._note(refused)
        return tuple(place for place in self._namespaces if place not in refused)

    def _note(self, refused: frozenset[str]) -> None:
        for place in sorted(refused - self.refused):
            logger.warning(
                "namespace %s is not served: Partita may not list its sessions. If it exists, an upgrade of the chart "
                "makes the operator's role there again. If not, remove it from `namespaces` of the chart.",
                place,
            )
        self.refused = refused

    async def _list(self, kind: Kind) -> Listing:
        places = (ALL_NAMESPACES,) if kind is Kind.POOL else self._namespaces
        try:
            return await self._client.list_in(_RESOURCES[kind], places)
        except ApiError as error:
            if not is_missing(error):
                raise
            raise KindMissingError(
                f"the cluster has no {kind} ({API_VERSION}); install its definition: `{install_crds()}`"
            ) from error

    def _read(self, before: Cluster) -> Cluster:
        plans, pools, sessions = dict(before.plans), dict(before.pools), dict(before.sessions)
        unreadable = dict(before.unreadable)
        # A session with an unusable spec has the spec of its current plan.
        unread = {(Kind.SESSION, name) for name in unreadable if "/" in name}
        for kind, name in sorted(self._changed | unread, key=lambda key: key[0] is not Kind.PLAN):
            unreadable.pop(name, None)
            raw = self._raw.get((kind, name))
            complaint = ""
            match kind:
                case Kind.PLAN:
                    _set(plans, name, read_plan(raw) if raw else None)
                case Kind.POOL:
                    pool, complaint = read_pool(raw) if raw else (None, "")
                    _set(pools, name, pool)
                case Kind.SESSION:
                    plan = plans.get(_current_plan(raw)) if raw else None
                    recorded = recorded_spec_json(plan) if plan else None
                    session, complaint = read_session(raw, recorded) if raw else (None, "")
                    _set(sessions, name, session)
            if complaint:
                unreadable[name] = complaint
        return Cluster(pools, sessions, plans, unreadable, before.ledger)


def _set(found: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value


def _current_plan(raw: Document) -> str:
    """namespace/name of a session's current plan."""
    active = (raw.get("status") or {}).get("currentPlan") or {}
    return f"{raw['metadata']['namespace']}/{active.get('name')}"


def _without_managers(raw: Document) -> Document:
    """The object without metadata.managedFields, which can be larger than the rest and which nobody reads."""
    meta = {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
    return {**raw, "metadata": meta}


def _is_newer(raw: Document, known: Document) -> bool:
    """Whether `raw` is a later version of the object than `known`, or another object with the same name.

    Resource versions of one object are compared as numbers; Kubernetes has never used anything else.
    """
    if raw["metadata"].get("uid") != known["metadata"].get("uid"):
        return True
    old, new = (str(o["metadata"].get("resourceVersion", "")) for o in (known, raw))
    return int(new) > int(old) if old.isdigit() and new.isdigit() else new != old
