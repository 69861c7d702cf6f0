"""Follows Partita's objects by watches that all viewers share, and says how old they are.

A round lists everything once and watches it then. A failure ends the round, and the next one lists again: what is known
stays until then.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

from partita_operator.console.reading.snapshot import ClusterSnapshot
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
_WORDS: Final = {Kind.POOL: "pools", Kind.SESSION: "sessions", Kind.PLAN: "plans"}


class ClusterFollower:
    """The objects that the user of the client may read. Start `run` as a task."""

    def __init__(
        self,
        client: KubernetesClient,
        server: str,
        clock: Callable[[], datetime],
        namespaces: Collection[str] = (),
        own_namespace: str = "default",
        interval_s: float = 5.0,
    ) -> None:
        """`namespaces` limits what is read; without it, `own_namespace` is read if others are refused.

        Every `interval_s` seconds a small request asks whether the API server at `server` still answers.
        """
        self._client, self._server, self._clock = client, server, clock
        self._requested, self._own, self._interval_s = tuple(namespaces), own_namespace, interval_s
        self._cache = ClusterCache(client)
        self._known = ClusterSnapshot(namespaces=self._requested)
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
                expired = isinstance(failure, ApiError) and failure.status == HTTPStatus.GONE
                if not expired:  # the next list repairs a watch that has expired
                    self._know(problem=self._in_words(failure))
                await asyncio.sleep(self._interval_s)

    async def _round(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._ask_repeatedly())]
            listed = await self._list_all()
            running += [
                tasks.create_task(self._watch(listed.cache, kind, place, version))
                for (kind, place), version in listed.versions.items()
            ]
            self._cache = listed.cache
            narrowed = listed.namespaces != self._requested
            self._know(
                namespaces=listed.namespaces,
                narrowed=narrowed,
                refused=listed.refused,
                seen_at=self._clock(),
                problem="",
            )
            await asyncio.sleep(RETRY_REFUSED_S if listed.refused or narrowed else ROUND_S)
            for task in running:
                task.cancel()

    async def _list_all(self) -> "_Listed":
        """All that may be read, with the versions at which watches begin."""
        namespaces = self._requested
        if not namespaces and not await self._may_list_sessions(ALL_NAMESPACES):
            namespaces = (self._own,)
        listed = _Listed(ClusterCache(self._client, namespaces), namespaces)
        for kind in _RESOURCES:
            for place in listed.places(kind):
                await self._begin(listed, kind, place)
        listed.cache = ClusterCache(self._client, listed.readable(Kind.SESSION) or namespaces)
        await listed.cache.refresh(kind for kind in _RESOURCES if listed.readable(kind))
        # Thousands of plans take seconds to parse, in which pages are still served.
        await asyncio.to_thread(lambda: listed.cache.cluster().ledger)
        return listed

    async def _begin(self, listed: "_Listed", kind: Kind, place: str) -> None:
        """Note from which version on the kind is watched in the namespace, or that it may not be read."""
        try:
            listed.versions[kind, place] = await self._client.version(_RESOURCES[kind], place)
        except ApiError as error:
            if is_missing(error):
                await listed.cache.refresh((kind,))  # says what to install
            if not is_forbidden(error):
                raise
            where = f" of namespace {place}" if place else ""
            listed.refused[f"{_WORDS[kind]}{where}"] = error.message

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
                await self._may_list_sessions(next(iter(self._known.namespaces), ALL_NAMESPACES))
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
    namespaces: tuple[str, ...]
    versions: dict[tuple[Kind, str], str] = field(default_factory=dict)
    """By kind and namespace: the version of the list from which a watch begins."""
    refused: dict[str, str] = field(default_factory=dict)

    def places(self, kind: Kind) -> tuple[str, ...]:
        """The namespaces in which objects of this kind are listed."""
        return (ALL_NAMESPACES,) if kind is Kind.POOL else self.namespaces or (ALL_NAMESPACES,)

    def readable(self, kind: Kind) -> tuple[str, ...]:
        """The namespaces in which the kind may be listed."""
        return tuple(place for found, place in self.versions if found is kind)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """One of the errors, which may be in groups of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
