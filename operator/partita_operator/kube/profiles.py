"""Profiles in ConfigMaps: one ConfigMap for each profile, named by its content key.

A profile never changes under its key, so it stays in memory once read. So does the fact that there is none. A watch
reports ConfigMaps that were created, changed or deleted by others. These are read again. After an interruption of the
watch, all of them are read again.
"""

import asyncio
import logging
from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from partita_api.digests import canonical_json
from partita_api.meta import POOL_LABEL, PROFILE_LABEL
from partita_api.profile import PROFILE_FILE, Profile
from partita_operator.kube.client import Document, KubernetesClient
from partita_operator.kube.errors import ApiError, KubernetesError, is_missing
from partita_operator.kube.resources import ALL_NAMESPACES, ConfigMapResource, exists
from partita_operator.kube.retries import retried

logger = logging.getLogger(__name__)

READ_AGAIN_S: Final = 60.0
"""How long a profile is used without a watch."""
RESTART_S: Final = 1800.0
"""After this time the watch starts over, and every profile is read again."""
PAUSE_S: Final = 5.0
"""Between the end of a watch and the next one."""


def profile_name(key: str) -> str:
    """Name of the ConfigMap that holds the profile of this content key."""
    return f"profile-{key}"


def read_profile(config_map: Document) -> Profile | None:
    """The profile in a ConfigMap; None if it was edited by hand, or written by another version of Partita."""
    try:
        profile = Profile.model_validate_json((config_map.get("data") or {}).get(PROFILE_FILE, ""))
    except ValidationError:
        return None
    return None if profile.differences(profile.request) else profile


async def list_profiles(client: KubernetesClient, namespace: str) -> tuple[Profile, ...]:
    """The profiles in a namespace, without unreadable ones: the operator measures those again."""
    config_maps = await client.list(ConfigMapResource, namespace, labels=exists(PROFILE_LABEL))
    return tuple(profile for config_map in config_maps if (profile := read_profile(config_map)) is not None)


@dataclass
class _Watch:
    """A watch that is connected."""

    heard: dict[tuple[str, str], int]
    """The last known versions by namespace and name. An answer that was read during an event may be older."""


@dataclass(frozen=True)
class _Known:
    """A profile as last read."""

    profile: Profile | None
    """None: there is no ConfigMap of this name."""
    read_at: float
    watch: _Watch | None
    """The watch that reports all changes since; None without a watch."""


class ProfileStore:
    """The profiles of all namespaces, or of the given ones."""

    def __init__(self, client: KubernetesClient, namespaces: Collection[str] = ()) -> None:
        self._client = client
        self._places = tuple(namespaces) or (ALL_NAMESPACES,)
        self._known: dict[tuple[str, str], _Known] = {}
        self._watches: dict[str, _Watch] = {}
        """The connected watches by namespace."""

    async def load(self, namespace: str, keys: Collection[str]) -> dict[str, Profile]:
        """The profiles that exist, by content key."""
        found = await asyncio.gather(*(self._get(namespace, key) for key in sorted(keys)))
        return {profile.key: profile for profile in found if profile is not None}

    async def store(self, namespace: str, profile: Profile) -> None:
        """Write a profile to its ConfigMap."""
        config_map = {
            "metadata": {
                "name": profile_name(profile.key),
                "namespace": namespace,
                "labels": {PROFILE_LABEL: profile.key, POOL_LABEL: profile.request.pool},
            },
            "data": {PROFILE_FILE: canonical_json(profile)},
        }
        watch = self._watch_of(namespace)
        written = await retried(lambda: self._client.apply(ConfigMapResource, config_map, force=True))
        self._keep(namespace, profile, watch, written)

    async def forget(self, namespace: str, key: str) -> None:
        """Empty the profile's ConfigMap: a profile that cannot be read is missing. It needs no right to delete."""
        empty = {"metadata": {"name": profile_name(key), "namespace": namespace, "labels": {PROFILE_LABEL: key}}}
        self._known.pop((namespace, profile_name(key)), None)
        await retried(lambda: self._client.apply(ConfigMapResource, empty, force=True))
        self._known.pop((namespace, profile_name(key)), None)

    async def watch(self) -> None:
        """Watch until cancelled. Without a watch, a profile is read again after READ_AGAIN_S."""
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._watch_forever(place))

    async def _watch_forever(self, place: str) -> None:
        said = ""
        while True:
            try:
                async with asyncio.timeout(RESTART_S):
                    await self._watch_once(place)
            except TimeoutError:
                said = ""
            except KubernetesError as error:
                if repr(error) != said:
                    said = repr(error)
                    logger.info("The watch of profiles ended and starts again: %s", said)
            finally:
                self._watches.pop(place, None)
            await asyncio.sleep(PAUSE_S)

    async def _watch_once(self, place: str) -> None:
        """Watch from now on. Nothing is listed: profiles that were read before are read again."""
        labels = exists(PROFILE_LABEL)
        since = await self._client.version(ConfigMapResource, place, labels=labels)
        watch = self._watches[place] = _Watch({})
        async with aclosing(self._client.changes(ConfigMapResource, place, labels=labels, since=since)) as changes:
            async for change in changes:
                self._hear(watch, change.object)

    def _hear(self, watch: _Watch, config_map: Document) -> None:
        meta = config_map["metadata"]
        where, version = (meta["namespace"], meta["name"]), _version(config_map)
        if version > watch.heard.get(where, 0):
            watch.heard[where] = version
            self._known.pop(where, None)

    def _watch_of(self, namespace: str) -> _Watch | None:
        return self._watches.get(namespace if namespace in self._places else ALL_NAMESPACES)

    def _keep(self, namespace: str, profile: Profile, watch: _Watch | None, config_map: Document) -> None:
        """Keep a profile that was read or written, unless the watch has reported a newer version."""
        where, version = (namespace, profile_name(profile.key)), _version(config_map)
        if watch is not None:
            if watch.heard.get(where, 0) > version:
                return
            watch.heard[where] = version  # the watch may report this version only now
        labelled = PROFILE_LABEL in (config_map["metadata"].get("labels") or {})
        now = asyncio.get_running_loop().time()
        self._known[where] = _Known(profile, now, watch if labelled and version else None)

    async def _get(self, namespace: str, key: str) -> Profile | None:
        watch, now = self._watch_of(namespace), asyncio.get_running_loop().time()
        where = namespace, profile_name(key)
        known = self._known.get(where)
        if known is not None and ((watch is not None and known.watch is watch) or now - known.read_at < READ_AGAIN_S):
            return known.profile
        self._known.pop(where, None)
        return await self._read(namespace, key, watch)

    async def _read(self, namespace: str, key: str, watch: _Watch | None) -> Profile | None:
        where = namespace, profile_name(key)
        heard = watch.heard.get(where) if watch is not None else None
        try:
            config_map = await retried(lambda: self._client.get(ConfigMapResource, profile_name(key), namespace))
        except ApiError as error:
            if not is_missing(error):
                raise
            if watch is not None and watch.heard.get(where) == heard:
                self._known[where] = _Known(None, asyncio.get_running_loop().time(), watch)
            return None
        profile = read_profile(config_map)
        # A profile that was edited by hand, or written by another version, counts as missing: it is measured again.
        if profile is None or profile.key != key:
            return None
        self._keep(namespace, profile, watch, config_map)
        return profile


def _version(config_map: Document) -> int:
    """The object's resource version; 0 if it is not a number."""
    version = str(config_map["metadata"].get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0
