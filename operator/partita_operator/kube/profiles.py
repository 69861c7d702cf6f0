"""Profiles in ConfigMaps, one each, named by their content key.

A profile never changes under its key, so that it is kept in memory once read; that its ConfigMap is still there is
looked up again now and then.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap
from pydantic import ValidationError

from partita_api.digest import canonical_json
from partita_api.meta import POOL_LABEL, PROFILE_LABEL
from partita_api.profile import PROFILE_FILE, Profile
from partita_operator.kube.retries import is_missing, retried

LOOK_AGAIN_S: Final = 60.0


def profile_name(key: str) -> str:
    """Name of the ConfigMap that holds the profile of this content key."""
    return f"profile-{key}"


class ProfileStore:
    """The profiles of all namespaces."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str], tuple[Profile, float]] = {}

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
        await retried(lambda: self._client.apply(config_map, force=True))
        self._known[namespace, profile.key] = profile, asyncio.get_running_loop().time()

    async def _get(self, namespace: str, key: str) -> Profile | None:
        now = asyncio.get_running_loop().time()
        known = self._known.get((namespace, key))
        if known is not None and now - known[1] < LOOK_AGAIN_S:
            return known[0]
        self._known.pop((namespace, key), None)
        profile = await self._read(namespace, key)
        if profile is not None:
            self._known[namespace, key] = profile, now
        return profile

    async def _read(self, namespace: str, key: str) -> Profile | None:
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
        return profile if profile.key == key and profile.request.key == key else None
