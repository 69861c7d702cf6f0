"""The tokens of the Ray clusters: made by Partita, one for each namespace, or named by the settings."""

import secrets
import time
from typing import Final

from partita_operator.engines.kuberay.authentication import SECRET, TOKEN_KEY, RayToken
from partita_operator.engines.kuberay.rayservice_manifest import LABELS
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.secrets import Secrets
from partita_operator.settings.kuberay import KubeRaySettings, RayAuthentication
from partita_operator.settings.section import plain

_TOKEN_BYTES: Final = 32
_READ_SECONDS: Final = 30.0
"""How long a token is used before it is read again."""


class RayTokens:
    """Reads and makes tokens. The calls raise the errors of `Secrets`."""

    def __init__(self, client: KubernetesClient, settings: KubeRaySettings) -> None:
        self._secrets = Secrets(client, SECRET, LABELS)
        self._settings = settings
        self._known: dict[str, tuple[RayToken, float]] = {}
        """By namespace, with the time of the reading."""

    async def read(self, namespace: str) -> RayToken | None:
        """The namespace's token. None if it has none yet, or without authentication."""
        if self._settings.authentication is RayAuthentication.DISABLED:
            return None
        if self._settings.auth_secret:
            return RayToken(self._settings.auth_secret, plain(self._settings.token), generated=False)
        known = self._known.get(namespace)
        if known is not None and time.monotonic() - known[1] < _READ_SECONDS:
            return known[0]
        self._known.pop(namespace, None)
        value = (await self._secrets.read(namespace)).get(TOKEN_KEY)
        return self._remember(namespace, value) if value else None

    async def ensure(self, namespace: str) -> RayToken | None:
        """The namespace's token, which is made if it has none. None without authentication."""
        token = await self.read(namespace)
        if token is not None or self._settings.authentication is RayAuthentication.DISABLED:
            return token
        made = await self._secrets.write(namespace, {TOKEN_KEY: secrets.token_urlsafe(_TOKEN_BYTES)})
        return self._remember(namespace, made[TOKEN_KEY])

    async def remove(self, namespace: str) -> None:
        """Deletes the token that was made for the namespace."""
        self._known.pop(namespace, None)
        if self._settings.authentication is RayAuthentication.TOKEN and not self._settings.auth_secret:
            await self._secrets.delete(namespace)

    def _remember(self, namespace: str, value: str) -> RayToken:
        token = RayToken(SECRET, value, generated=True)
        self._known[namespace] = (token, time.monotonic())
        return token
