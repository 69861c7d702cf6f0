"""The tokens with which the operator and Prometheus read what frontends measure: one for each namespace.

All are derived from one random key. The Secret `partita-monitoring` of the operator's namespace has the key, and the
tokens of the namespaces with sessions: PodMonitors read them there. Session code sees requests to its frontend, so it
may learn the token of its own namespace, which reads nothing of others.
"""

import asyncio
import hmac
import secrets
import time
from typing import Final

from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.retries import ApiServerUnavailableError
from partita_operator.kube.secrets import SecretContent, Secrets
from partita_runtime.serving.deploy.applications import ServingOptions
from partita_runtime.serving.deploy.monitoring_access import token_digest

SECRET: Final = "partita-monitoring"
KEY: Final = "hmac_key"
"""Where the Secret has the key. No namespace has this name. The other keys are namespaces."""
_KEY_BYTES: Final = 32
_READ_SECONDS: Final = 30.0
"""How long a content is used before it is read again."""
_LABELS: Final = {"app.kubernetes.io/name": "partita", "app.kubernetes.io/managed-by": "partita"}
_REMEDY: Final = "Give the operator the rights on this Secret that the chart's Role for its own namespace has."


def derived_token(key: str, namespace: str) -> str:
    """A namespace's token. Nobody can derive another one from it."""
    return hmac.digest(key.encode(), namespace.encode(), "sha256").hex()


class MonitoringTokens:
    """The tokens, from a key of this process. After a restart they are others."""

    def __init__(self) -> None:
        self._key = secrets.token_urlsafe(_KEY_BYTES)

    async def of(self, namespace: str) -> str:
        """The namespace's token."""
        return derived_token(self._key, namespace)

    async def forget(self, namespace: str) -> None:
        """The namespace has no sessions now."""


class KeptMonitoringTokens(MonitoringTokens):
    """The tokens, from the key in the Secret, which is made if it is missing.

    Its calls raise the errors of `Secrets`.
    """

    def __init__(self, client: KubernetesClient, own_namespace: str) -> None:
        super().__init__()
        self._secrets = Secrets(client, SECRET, _LABELS, _REMEDY)
        self._own_namespace = own_namespace
        self._known = SecretContent()
        self._read_at = float("-inf")
        self._one_at_a_time = asyncio.Lock()

    async def of(self, namespace: str) -> str:
        """The namespace's token, once the Secret has it."""
        async with self._one_at_a_time:
            values = await self._values()
            key = values.get(KEY) or self._key
            token = derived_token(key, namespace)
            if values.get(namespace) != token:
                await self._write({**values, KEY: key, namespace: token})
            return token

    async def forget(self, namespace: str) -> None:
        """Remove the namespace's token from the Secret."""
        async with self._one_at_a_time:
            values = await self._values()
            if namespace in values:
                await self._write({name: value for name, value in values.items() if name != namespace})

    async def _values(self) -> dict[str, str]:
        """What the Secret has. While the API server is away, what it had: sessions are scaled on."""
        if time.monotonic() - self._read_at >= _READ_SECONDS:
            try:
                self._known = await self._secrets.read(self._own_namespace)
            except ApiServerUnavailableError:
                if not self._known.values:
                    raise
            finally:
                self._read_at = time.monotonic() if self._known.values else self._read_at
        return dict(self._known.values)

    async def _write(self, values: dict[str, str]) -> None:
        self._known = await self._secrets.write(self._own_namespace, values)
        self._read_at = time.monotonic()


async def with_monitoring_token(options: ServingOptions, tokens: MonitoringTokens, namespace: str) -> ServingOptions:
    """The options for frontends that let the bearer of the namespace's token read what they measure."""
    return options.model_copy(update={"monitoring_digest": token_digest(await tokens.of(namespace))})
