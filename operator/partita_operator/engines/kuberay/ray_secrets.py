"""The Secret of a namespace's Ray clusters: their token, the certificate of TLS between their pods, and the password of
the Redis that keeps their heads' state.

Each is in the Secret only if the settings do not name a Secret that has it.
"""

import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from partita_operator.certificates.renewal import KEYS as TLS_KEYS
from partita_operator.certificates.renewal import renewed
from partita_operator.engines.kuberay.authentication import SECRET, TOKEN_KEY, RayToken, tls_name
from partita_operator.engines.kuberay.fault_tolerance import PASSWORD_KEY
from partita_operator.engines.kuberay.rayservice_manifest import LABELS
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.secrets import SecretContent, Secrets
from partita_operator.settings.kuberay import KubeRaySettings, RayAuthentication
from partita_operator.settings.section import plain

_TOKEN_BYTES: Final = 32
_READ_SECONDS: Final = 30.0
"""How long a content is used before it is read again."""
_REMEDY: Final = (
    "Set kuberay.image of the chart, which adds the rights to the operator's role, or name existing Secrets in "
    "kuberay.authSecret, kuberay.redisSecret and kuberay.transportTlsSecret."
)
_KEYS: Final = (TOKEN_KEY, PASSWORD_KEY, *TLS_KEYS)


class RaySecrets:
    """Reads and makes the Secrets. The calls raise the errors of `Secrets`."""

    def __init__(self, client: KubernetesClient, settings: KubeRaySettings) -> None:
        self._secrets = Secrets(client, SECRET, LABELS, _REMEDY)
        self._settings = settings
        self._known: dict[str, tuple[SecretContent, float]] = {}
        """By namespace, with the time of the reading; only Secrets that exist."""

    async def token(self, namespace: str) -> RayToken | None:
        """The namespace's token. None if it has none yet, or without authentication."""
        if self._settings.authentication is RayAuthentication.DISABLED:
            return None
        if self._settings.auth_secret:
            return RayToken(self._settings.auth_secret, plain(self._settings.token), generated=False)
        value = (await self._read(namespace)).values.get(TOKEN_KEY)
        return RayToken(SECRET, value, generated=True) if value else None

    async def ensure(self, namespace: str) -> RayToken | None:
        """The namespace's token, once its Secret has all that Ray clusters need."""
        if self._is_needed and not self._is_complete(namespace, await self._read(namespace)):
            self._known.pop(namespace, None)
            present = await self._read(namespace)
            if not self._is_complete(namespace, present):
                self._remember(namespace, await self._secrets.write(namespace, self._desired(namespace, present)))
        return await self.token(namespace)

    async def remove(self, namespace: str, clusters: Sequence[Mapping[str, Any]]) -> None:
        """Deletes the Secret, after the last of these RayClusters: KubeRay removes their state from the Redis with it.

        Kubernetes' garbage collector deletes it, so nobody has to wait.
        """
        self._known.pop(namespace, None)
        if not self._is_needed:
            return
        if not clusters:
            await self._secrets.delete(namespace)
            return
        present = await self._secrets.read(namespace)
        if present.values and present.owners != {cluster["metadata"]["uid"] for cluster in clusters}:
            await self._secrets.write(namespace, _ours(present), clusters)

    @property
    def _is_needed(self) -> bool:
        settings = self._settings
        return settings.generates_token or settings.shares_redis_password or settings.makes_certificates

    def _is_complete(self, namespace: str, present: SecretContent) -> bool:
        """Whether a Ray cluster that is made now finds all in it, and it stays."""
        return self._desired(namespace, present) == _ours(present) and not present.owners

    def _desired(self, namespace: str, present: SecretContent) -> dict[str, str]:
        """All values of Partita: server-side apply would remove those that are left out."""
        desired = _ours(present)
        if self._settings.generates_token and not desired.get(TOKEN_KEY):
            desired[TOKEN_KEY] = secrets.token_urlsafe(_TOKEN_BYTES)
        if self._settings.shares_redis_password:
            desired[PASSWORD_KEY] = plain(self._settings.redis_password) or ""
        if self._settings.makes_certificates:
            others = {key: value for key, value in desired.items() if key not in TLS_KEYS}
            desired = others | renewed(desired, tls_name(namespace), datetime.now(UTC))
        return desired

    async def _read(self, namespace: str) -> SecretContent:
        known = self._known.get(namespace)
        if known is not None and time.monotonic() - known[1] < _READ_SECONDS:
            return known[0]
        self._known.pop(namespace, None)
        content = await self._secrets.read(namespace)
        if content.values:
            self._remember(namespace, content)
        return content

    def _remember(self, namespace: str, content: SecretContent) -> None:
        self._known[namespace] = (content, time.monotonic())


def _ours(content: SecretContent) -> dict[str, str]:
    """What Partita may have written. Values of others stay without it."""
    return {key: content.values[key] for key in _KEYS if key in content.values}
