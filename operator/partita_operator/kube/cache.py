"""All of Partita's objects, kept in memory: listed now and then, and brought up to date by watch events and writes.

The operator's own writes go in at once, so that a pass sees what the one before did. Lists repair what a broken
watch has missed.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx2
from lightkube import AsyncClient

from partita_api.gpupool import GPUPool
from partita_api.inferencesession import InferenceSession
from partita_api.meta import API_VERSION
from partita_api.pipelineplan import PipelinePlan
from partita_operator.kube.resources import (
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

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._raw: dict[Key, Document] = {}
        self._cluster: Cluster | None = None
        self._models: dict[Key, tuple[Document, str | None, Any]] = {}

    async def refresh(self) -> None:
        """List everything anew. Raises ApiServerUnavailableError and KindMissingError."""
        for kind in _RESOURCES:
            listed = {key_of(kind, raw): raw for raw in await retried(partial(self._list, kind))}
            for key in [k for k in self._raw if k[0] is kind and k not in listed]:
                self.forget(key)
            for raw in listed.values():
                self.put(kind, raw)

    def put(self, kind: Kind, raw: Document) -> None:
        """Take an object in, unless a newer version of it is known."""
        key = key_of(kind, raw)
        known = self._raw.get(key)
        if known is not None and _is_older(raw, known):
            return
        self._raw[key] = raw
        self._cluster = None

    def forget(self, key: Key) -> None:
        """The object has been deleted."""
        if self._raw.pop(key, None) is not None:
            self._models.pop(key, None)
            self._cluster = None

    @property
    def known(self) -> tuple[Key, ...]:
        """The keys of all objects, in order."""
        return tuple(sorted(self._raw))

    def cluster(self) -> Cluster:
        """All objects as API models."""
        if self._cluster is None:
            self._cluster = self._read()
        return self._cluster

    async def _list(self, kind: Kind) -> list[Document]:
        namespaces: dict[str, Any] = {} if kind is Kind.POOL else {"namespace": "*"}
        try:
            return [raw async for raw in self._client.list(_RESOURCES[kind], **namespaces)]
        except httpx2.HTTPStatusError as error:
            # Not an ApiError: the answer to an unknown kind is plain text rather than a Status.
            if error.response.status_code != HTTPStatus.NOT_FOUND:
                raise
            raise KindMissingError(
                f"the cluster has no {kind} ({API_VERSION}); install its definition: partita crds | kubectl apply -f -"
            ) from error

    def _read(self) -> Cluster:
        plans = {key[1]: plan for key in self.known if key[0] is Kind.PLAN and (plan := self._plan(key)) is not None}
        pools: dict[str, GPUPool] = {}
        sessions: dict[str, InferenceSession] = {}
        unreadable: dict[str, str] = {}
        for key in self.known:
            complaint, name = "", key[1]
            if key[0] is Kind.POOL:
                pools[name], complaint = self._model(key, None, lambda raw, _: read_pool(raw))
            elif key[0] is Kind.SESSION:
                plan = plans.get(_active_plan(self._raw[key]))
                sessions[name], complaint = self._model(key, recorded_spec(plan) if plan else None, read_session)
            if complaint:
                unreadable[name] = complaint
        return Cluster(pools=pools, sessions=sessions, plans=tuple(plans.values()), unreadable=unreadable)

    def _plan(self, key: Key) -> PipelinePlan | None:
        return self._model(key, None, lambda raw, _: read_plan(raw))

    def _model(self, key: Key, recorded: str | None, read: Callable[[Document, str | None], T]) -> T:
        """The object as a model, which is read only once: most objects are as they were the last time."""
        raw = self._raw[key]
        known = self._models.get(key)
        if known is None or known[0] is not raw or known[1] != recorded:
            known = self._models[key] = raw, recorded, read(raw, recorded)
        model: T = known[2]
        return model


def _active_plan(raw: Document) -> str:
    """namespace/name of the plan in force of a session."""
    active = (raw.get("status") or {}).get("activePlan") or {}
    return f"{raw['metadata']['namespace']}/{active.get('name')}"


def _is_older(raw: Document, known: Document) -> bool:
    """Whether `raw` is an earlier version of the object than `known`.

    Resource versions of one object are compared as the numbers that they are since Kubernetes began.
    """
    if raw["metadata"].get("uid") != known["metadata"].get("uid"):
        return False
    old, new = (str(o["metadata"].get("resourceVersion", "")) for o in (known, raw))
    return old.isdigit() and new.isdigit() and int(new) < int(old)
