"""Secrets that Partita makes, and those that it may read. It has rights on their names only."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.errors import ApiError, is_missing, refusal
from partita_operator.kube.resources import SecretResource
from partita_operator.kube.retries import retried
from partita_operator.kube.writes import read
from partita_operator.ports import EngineUnavailableError


@dataclass(frozen=True)
class SecretContent:
    """What a Secret has; empty if it does not exist."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By key."""
    owners: frozenset[str] = frozenset()
    """UIDs of the objects with which it is deleted."""


async def read_secret(client: KubernetesClient, namespace: str, name: str) -> dict[str, bytes] | None:
    """The values of a Secret by key; None if it does not exist. Raises ApiError and ApiServerUnavailableError."""
    raw = await retried(lambda: read(client, SecretResource, namespace, name))
    return None if raw is None else {key: b64decode(value) for key, value in (raw.get("data") or {}).items()}


class Secrets:
    """Reads and writes one Secret in each namespace.

    All calls raise EngineUnavailableError if the API server refuses, and ApiServerUnavailableError if it is away.
    """

    def __init__(self, client: KubernetesClient, name: str, labels: Mapping[str, str], remedy: str) -> None:
        """`remedy` says what to do if the operator has no rights on them."""
        self._client = client
        self._name = name
        self._labels = dict(labels)
        self._remedy = remedy

    async def read(self, namespace: str) -> SecretContent:
        """What it has; nothing if it does not exist."""
        try:
            return _content(await retried(lambda: self._client.get(SecretResource, self._name, namespace)))
        except ApiError as error:
            if is_missing(error):
                return SecretContent()
            raise self._refused("read", namespace, error) from error

    async def write(
        self, namespace: str, values: Mapping[str, str], owners: Sequence[Mapping[str, Any]] = ()
    ) -> SecretContent:
        """Create it with these values, or set them, and make these objects its owners. Returns all that it has.

        Values and owners of an earlier call that are left out are removed.
        """
        data = {key: b64encode(value.encode()).decode() for key, value in values.items()}
        manifest = {
            "metadata": {
                "name": self._name,
                "namespace": namespace,
                "labels": self._labels,
                "ownerReferences": [_reference(owner) for owner in owners],
            },
            "type": "Opaque",
            "data": data,
        }
        try:
            return _content(await retried(lambda: self._client.apply(SecretResource, manifest, force=True)))
        except ApiError as error:
            raise self._refused("write", namespace, error) from error

    async def delete(self, namespace: str) -> None:
        """Delete it. A missing Secret is not an error."""
        try:
            await retried(lambda: self._client.delete(SecretResource, self._name, namespace))
        except ApiError as error:
            if not is_missing(error):
                raise self._refused("delete", namespace, error) from error

    def _refused(self, what: str, namespace: str, error: ApiError) -> EngineUnavailableError:
        return EngineUnavailableError(refusal(f"{what} Secret {namespace}/{self._name}", error, self._remedy))


def _content(secret: Mapping[str, Any]) -> SecretContent:
    values = {key: b64decode(value).decode(errors="replace") for key, value in (secret.get("data") or {}).items()}
    return SecretContent(values, frozenset(owner["uid"] for owner in secret["metadata"].get("ownerReferences") or ()))


def _reference(owner: Mapping[str, Any]) -> dict[str, str]:
    meta = owner["metadata"]
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
