"""Follows Partita's objects by watches that all viewers share, and says how old they are.

A round lists everything once and watches it then. A failure ends the round, and the next one lists again: what is known
stays until then.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from partita_operator.console.reading.snapshot import ClusterSnapshot, Part
from partita_operator.kube.cache import ClusterCache, Kind, KindMissingError, key_of
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import NoClusterError
from partita_operator.kube.errors import ApiError, KubernetesError, is_forbidden, is_missing
from partita_operator.kube.resources import ALL_NAMESPACES, PlanResource, PoolResource, SessionResource
from partita_operator.kube.retries import ApiServerUnavailableError

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 10.0
"""After so many seconds without an answer to a small request, the objects count as old."""
ROUND_S: Final = 600.0
"""How long a round lasts. The next list repairs what a broken watch has missed."""
RETRY_REFUSED_S: Final = 30.0
"""The same while something may not be read: rights can be given at any time."""

_RESOURCES: Final = {Kind.POOL: PoolResource, Kind.SESSION: SessionResource, Kind.PLAN: PlanResource}
_PARTS: Final = {Kind.POOL: Part.POOLS, Kind.SESSION: Part.SESSIONS, Kind.PLAN: Part.PLANS}


class ClusterFollower:
    """The objects that the user of the client may read. Start `run` as a task."""

    def __init__(
        self,
        client: KubernetesClient,
        server: str,
        clock: Callable[[], datetime],
        namespace: str | None = None,
        own_namespace: str = "default",
        interval_s: float = 5.0,
    ) -> None:
        """`namespace` limits what is read; `own_namespace` is read if others are refused.

        Every `interval_s` seconds a small request asks whether the API server at `server` still answers.
        """
        self._client, self._server, self._clock = client, server, clock
        self._requested, self._own, self._interval_s = namespace, own_namespace, interval_s
        self._cache = ClusterCache(client)
        self._known = ClusterSnapshot(namespace=namespace or ALL_NAMESPACES)
        self._change = asyncio.Event()
        self.revision = 0
        """Grows with every change of the snapshot except for its time."""

    @property
    def snapshot(self) -> ClusterSnapshot:
        """What is known now."""
        return replace(self._known, cluster=self._cache.cluster())

    async def changed(self, since: int) -> int:
        """The revision, once it is another one than `since`."""
        while self.revision == since:
            await self._change.wait()
        return self.revision

    async def run(self) -> None:
        """Follow the objects until it is cancelled."""
        while True:
            failure: BaseException | None = None
            try:
                await self._round()
            except* Exception as failures:
                failure = _first(failures)
            if failure is not None:
                if not (
                    isinstance(failure, ApiError) and failure.status == HTTPStatus.GONE
                ):  # the next list repairs it
                    self._know(problem=self._in_words(failure))
                await asyncio.sleep(self._interval_s)

    async def _round(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._ask_repeatedly())]
            listed = await self._list_all()
            running += [
                tasks.create_task(self._watch(listed.cache, kind, listed.place(kind), version))
                for kind, version in listed.versions.items()
            ]
            self._cache = listed.cache
            narrowed = listed.namespace != (self._requested or ALL_NAMESPACES)
            self._know(
                namespace=listed.namespace, narrowed=narrowed, refused=listed.refused, seen_at=self._clock(), problem=""
            )
            await asyncio.sleep(RETRY_REFUSED_S if listed.refused or narrowed else ROUND_S)
            for task in running:
                task.cancel()

    async def _list_all(self) -> "_Listed":
        """All that may be read, with the versions at which watches begin."""
        namespace = self._requested or ALL_NAMESPACES
        if not self._requested and not await self._may_list_sessions(ALL_NAMESPACES):
            namespace = self._own
        listed = _Listed(ClusterCache(self._client, (namespace,)), namespace)
        for kind, resource in _RESOURCES.items():
            try:
                listed.versions[kind] = await self._client.version(resource, listed.place(kind))
                await listed.cache.refresh((kind,))
            except ApiError as error:
                listed.versions.pop(kind, None)
                if is_missing(error):
                    await listed.cache.refresh((kind,))  # says what to install
                if not is_forbidden(error):
                    raise
                listed.refused[_PARTS[kind]] = error.message
        # Thousands of plans take seconds to parse, in which pages are still served.
        await asyncio.to_thread(lambda: listed.cache.cluster().ledger)
        return listed

    async def _may_list_sessions(self, namespace: str) -> bool:
        try:
            await self._client.version(SessionResource, namespace)
        except ApiError as error:
            return not is_forbidden(error)
        return True

    async def _watch(self, cache: ClusterCache, kind: Kind, namespace: str, since: str) -> None:
        async for event in self._client.changes(_RESOURCES[kind], namespace, since=since):
            if event.deleted:
                cache.forget(key_of(kind, event.object))
            else:
                cache.put(kind, event.object)
            self._announce()

    async def _ask_repeatedly(self) -> None:
        """Notice within seconds that the API server does not answer: a watch does not."""
        while True:
            await asyncio.sleep(self._interval_s)
            async with asyncio.timeout(PATIENCE_S):
                await self._may_list_sessions(self._known.namespace)
            if self._known.seen_at is not None and not self._known.problem:
                self._known = replace(self._known, seen_at=self._clock())

    def _know(self, **fields: Any) -> None:
        before, self._known = self._known, replace(self._known, **fields)
        if before != self._known:
            self._announce()

    def _announce(self) -> None:
        self.revision += 1
        self._change.set()
        self._change.clear()

    def _in_words(self, error: BaseException) -> str:
        match error:
            case ApiError():
                return f"The API server at {self._server} refuses: {error.message}"
            case TimeoutError():
                return f"The API server at {self._server} does not answer within {PATIENCE_S:g} s."
            case KindMissingError() | NoClusterError():
                return f"{str(error)[:1].upper()}{str(error)[1:]}"
            case KubernetesError() | ApiServerUnavailableError():
                return f"The API server at {self._server} does not answer: {error}"
            case _:
                logger.error("the cluster cannot be followed", exc_info=error)
                return f"The cluster cannot be read, because of a {type(error).__name__}. Report it as a bug."


@dataclass
class _Listed:
    """What one round has listed."""

    cache: ClusterCache
    namespace: str
    versions: dict[Kind, str] = field(default_factory=dict)
    refused: dict[Part, str] = field(default_factory=dict)

    def place(self, kind: Kind) -> str:
        """The namespace in which objects of this kind are listed."""
        return ALL_NAMESPACES if kind is Kind.POOL else self.namespace


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the errors, which may be in groups of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
