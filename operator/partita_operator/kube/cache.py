"""All of Partita's objects, kept in memory: listed now and then, and brought up to date by watch events and writes.

The operator's own writes go in at once, so that a pass sees what the one before did. Lists repair what a broken
watch has missed.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx2
from lightkube import AsyncClient

from partita_api.meta import API_VERSION
from partita_operator.kube.resources import (
    ALL_NAMESPACES,
    Document,
    PlanResource,
    PoolResource,
    SessionResource,
    read_plan,
    read_pool,
    read_session,
    recorded_spec,
)
from partita_operator.kube.retries import retried
from partita_operator.reconcile.world import Cluster

T = TypeVar("T")


class Kind(StrEnum):
    """The kinds of object that are kept."""

    POOL = "GPUPool"
    SESSION = "InferenceSession"
    PLAN = "PipelinePlan"


_RESOURCES: Final[Mapping[Kind, Any]] = {
    Kind.POOL: PoolResource,
    Kind.SESSION: SessionResource,
    Kind.PLAN: PlanResource,
}


class KindMissingError(Exception):
    """The API server does not serve one of Partita's kinds; the message says which, and how to install it."""


Key = tuple[Kind, str]
"""A kind, and namespace/name or, without a namespace, name."""


def key_of(kind: Kind, raw: Document) -> Key:
    """The key of an object."""
    meta = raw["metadata"]
    return kind, f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]


class ClusterCache:
    """The objects as last seen. Not for use from several threads."""

    def __init__(self, client: AsyncClient, namespaces: Collection[str] = ()) -> None:
        """Of all namespaces, unless some are given."""
        self._client = client
        self._namespaces = tuple(namespaces) or (ALL_NAMESPACES,)
        self._raw: dict[Key, Document] = {}
        self._changed: set[Key] = set()
        """What has come, changed or gone since `_cluster` was read."""
        self._cluster = Cluster()
        self._gone: dict[Key, str] = {}
        """The uids of those that went since the last list was asked for."""

    async def refresh(self) -> None:
        """List everything anew. Raises ApiServerUnavailableError and KindMissingError.

        What came, changed or went while a list was on its way is newer than the list.
        """
        for kind in _RESOURCES:
            before, self._gone = dict(self._raw), {}
            listed = {key_of(kind, raw): raw for raw in await retried(partial(self._list, kind))}
            for key, raw in before.items():
                if key[0] is kind and key not in listed and self._raw.get(key) is raw:
                    self.forget(key)
            for key, raw in listed.items():
                if self._gone.get(key) != raw["metadata"].get("uid", ""):
                    self.put(kind, raw)

    def put(self, kind: Kind, raw: Document) -> None:
        """Take an object in, unless a newer version of it is known."""
        key = key_of(kind, raw)
        known = self._raw.get(key)
        if known is not None and not _is_newer(raw, known):
            return
        self._raw[key] = raw
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """The object has been deleted."""
        raw = self._raw.pop(key, None)
        if raw is not None:
            self._changed.add(key)
            self._gone[key] = raw["metadata"].get("uid", "")

    @property
    def known(self) -> tuple[Key, ...]:
        """The keys of all objects, in order."""
        return tuple(sorted(self._raw))

    def cluster(self) -> Cluster:
        """All objects as API models. Only what has changed since the last call is read anew."""
        if self._changed:
            self._cluster = self._read(self._cluster)
            self._changed.clear()
        return self._cluster

    async def _list(self, kind: Kind) -> list[Document]:
        places: list[dict[str, Any]] = [{}] if kind is Kind.POOL else [{"namespace": name} for name in self._namespaces]
        try:
            return [raw for place in places async for raw in self._client.list(_RESOURCES[kind], **place)]
        except httpx2.HTTPStatusError as error:
            # Not an ApiError: the answer to an unknown kind is plain text rather than a Status.
            if error.response.status_code != HTTPStatus.NOT_FOUND:
                raise
            raise KindMissingError(
                f"the cluster has no {kind} ({API_VERSION}); install its definition: partita crds | kubectl apply -f -"
            ) from error

    def _read(self, before: Cluster) -> Cluster:
        plans, pools, sessions = dict(before.plans), dict(before.pools), dict(before.sessions)
        unreadable = dict(before.unreadable)
        # The spec of a session that cannot be read is that of its plan in force.
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
                    plan = plans.get(_active_plan(raw)) if raw else None
                    session, complaint = read_session(raw, recorded_spec(plan) if plan else None) if raw else (None, "")
                    _set(sessions, name, session)
            if complaint:
                unreadable[name] = complaint
        return Cluster(pools, sessions, plans, unreadable, before.ledger)


def _set(found: dict[str, T], name: str, value: T | None) -> None:
    if value is None:
        found.pop(name, None)
    else:
        found[name] = value


def _active_plan(raw: Document) -> str:
    """namespace/name of the plan in force of a session."""
    active = (raw.get("status") or {}).get("currentPlan") or {}
    return f"{raw['metadata']['namespace']}/{active.get('name')}"


def _is_newer(raw: Document, known: Document) -> bool:
    """Whether `raw` is a later version of the object than `known`, or another object of its name.

    Resource versions of one object are compared as the numbers that they are since Kubernetes began.
    """
    if raw["metadata"].get("uid") != known["metadata"].get("uid"):
        return True
    old, new = (str(o["metadata"].get("resourceVersion", "")) for o in (known, raw))
    return int(new) > int(old) if old.isdigit() and new.isdigit() else new != old
