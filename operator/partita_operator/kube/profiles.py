"""Profiles in ConfigMaps, one each, named by their content key.

A profile never changes under its key, so that it is kept in memory once read. A watch tells which ConfigMaps have been
changed or deleted by hand; those, and all where the watch has a gap, are read again.
"""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.core.client import LabelSelector
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.operators import exists
from lightkube.resources.core_v1 import ConfigMap
from pydantic import ValidationError

from partita_api.digests import canonical_json
from partita_api.meta import POOL_LABEL, PROFILE_LABEL
from partita_api.profile import PROFILE_FILE, Profile
from partita_operator.kube.resources import ALL_NAMESPACES
from partita_operator.kube.retries import is_missing, retried

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 60.0
"""How long a profile counts as being there where no watch tells of it."""
REQUEST_S: Final = 300
"""How long one watch request lasts. The next goes on where it ended."""
WATCH_S: Final = 1800.0
"""After so long everything is read again: a connection may be dead without a word."""
AGAIN_S: Final = 5.0
"""Between the end of a watch and the next."""


def profile_name(key: str) -> str:
    """Name of the ConfigMap that holds the profile of this content key."""
    return f"profile-{key}"


@dataclass
class _Watch:
    """A watch that is up."""

    heard: dict[tuple[str, str], int]
    """The last versions known, by namespace and name: what was read while it told something may be older."""


@dataclass(frozen=True)
class _Known:
    """A profile as it was read."""

    profile: Profile
    looked: float
    watch: _Watch | None
    """The watch that has told of all changes since; None if there was none."""


class ProfileStore:
    """The profiles of all namespaces, or of those given."""

    def __init__(self, client: AsyncClient, namespaces: Collection[str] = ()) -> None:
        self._client = client
        self._places = tuple(namespaces) or (ALL_NAMESPACES,)
        self._known: dict[tuple[str, str], _Known] = {}
        self._watches: dict[str, _Watch] = {}
        """Those that are up, by the place that they watch."""

    async def load(self, namespace: str, keys: Collection[str]) -> dict[str, Profile]:
        """Those of the profiles that are there, by content key."""
        found = await asyncio.gather(*(self._get(namespace, key) for key in sorted(keys)))
        return {profile.key: profile for profile in found if profile is not None}

    async def store(self, namespace: str, profile: Profile) -> None:
        """Keep a profile."""
        config_map = ConfigMap(
            metadata=ObjectMeta(
                name=profile_name(profile.key),
                namespace=namespace,
                labels={PROFILE_LABEL: profile.key, POOL_LABEL: profile.request.pool},
            ),
            data={PROFILE_FILE: canonical_json(profile)},
        )
        watch = self._watch_of(namespace)
        self._keep(namespace, profile, watch, await retried(lambda: self._client.apply(config_map, force=True)))

    async def watch(self) -> None:
        """Watch until cancelled. Where that cannot be done, profiles are looked up again now and then."""
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._watch_again_and_again(place))

    async def _watch_again_and_again(self, place: str) -> None:
        said = ""
        while True:
            try:
                async with asyncio.timeout(WATCH_S):
                    await self._watch_once(place)
            except TimeoutError:
                said = ""
            except (ApiError, httpx2.HTTPError, ValueError) as error:  # the last for half a line of JSON
                if repr(error) != said:
                    said = repr(error)
                    logger.info("the watch of profiles ended, and is begun again: %s", said)
            finally:
                self._watches.pop(place, None)
            await asyncio.sleep(AGAIN_S)

    async def _watch_once(self, place: str) -> None:
        """Watch from now on. What was read before counts as unknown then; nothing need be listed."""
        labels: LabelSelector = {PROFILE_LABEL: exists()}
        listed = self._client.list(ConfigMap, namespace=place, labels=labels, chunk_size=1)
        async for _ in listed:
            break
        changes = self._client.watch(
            ConfigMap, namespace=place, labels=labels, resource_version=listed.resourceVersion, server_timeout=REQUEST_S
        )
        watch = self._watches[place] = _Watch({})
        async for _, config_map in changes:
            self._hear(watch, config_map)

    def _hear(self, watch: _Watch, config_map: ConfigMap) -> None:
        meta = config_map.metadata
        assert meta is not None
        assert meta.namespace is not None
        assert meta.name is not None
        where, version = (meta.namespace, meta.name), _version(config_map)
        if version > watch.heard.get(where, 0):
            watch.heard[where] = version
            self._known.pop(where, None)

    def _watch_of(self, namespace: str) -> _Watch | None:
        return self._watches.get(namespace if namespace in self._places else ALL_NAMESPACES)

    def _keep(self, namespace: str, profile: Profile, watch: _Watch | None, config_map: ConfigMap) -> None:
        """Keep what was read or written while the watch was up, unless that has told of something newer."""
        where, version = (namespace, profile_name(profile.key)), _version(config_map)
        if watch is not None:
            if watch.heard.get(where, 0) > version:
                return
            watch.heard[where] = version  # which it may tell only now
        labelled = config_map.metadata is not None and PROFILE_LABEL in (config_map.metadata.labels or {})
        now = asyncio.get_running_loop().time()
        self._known[where] = _Known(profile, now, watch if labelled and version else None)

    async def _get(self, namespace: str, key: str) -> Profile | None:
        watch, now = self._watch_of(namespace), asyncio.get_running_loop().time()
        where = namespace, profile_name(key)
        known = self._known.get(where)
        if known is not None and ((watch is not None and known.watch is watch) or now - known.looked < LOOK_AGAIN_S):
            return known.profile
        self._known.pop(where, None)
        return await self._read(namespace, key, watch)

    async def _read(self, namespace: str, key: str, watch: _Watch | None) -> Profile | None:
        try:
            config_map = await retried(lambda: self._client.get(ConfigMap, profile_name(key), namespace=namespace))
        except ApiError as error:
            if is_missing(error):
                return None
            raise
        try:
            profile = Profile.model_validate_json((config_map.data or {}).get(PROFILE_FILE, ""))
        except ValidationError:
            return None
        # One that was edited, or made by another version, counts as missing and is made again.
        if profile.key != key or profile.request.key != key:
            return None
        self._keep(namespace, profile, watch, config_map)
        return profile


def _version(config_map: ConfigMap) -> int:
    """The resource version of one object, a number since Kubernetes began; 0 if it is none after all."""
    meta = config_map.metadata
    version = meta.resourceVersion if meta is not None else None
    return int(version) if version is not None and version.isdigit() else 0
