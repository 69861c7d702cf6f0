"""Heads that keep their state in a Redis: what KubeRay is told of it. Pure."""

from typing import Any, Final

from partita_operator.engines.kuberay.authentication import SECRET
from partita_operator.settings.kuberay import KubeRaySettings

PASSWORD_KEY: Final = "redis_password"
"""Where the password is in the Secret that Partita makes in each namespace."""
_NAMED_KEY: Final = "password"
"""Where it is in the Secret that the settings name."""


def fault_tolerance(namespace: str, settings: KubeRaySettings) -> dict[str, Any]:
    """Fields of a Ray cluster whose head keeps its state in the Redis; empty without a Redis.

    Each Ray cluster has a part of the Redis of its own.
    """
    if not settings.redis_address:
        return {}
    options: dict[str, Any] = {"redisAddress": settings.redis_address_of(namespace)}
    if settings.redis_secret:
        options["redisPassword"] = _from_secret(settings.redis_secret, _NAMED_KEY)
    elif settings.shares_redis_password:
        options["redisPassword"] = _from_secret(SECRET, PASSWORD_KEY)
    return {"gcsFaultToleranceOptions": options}


def _from_secret(name: str, key: str) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
