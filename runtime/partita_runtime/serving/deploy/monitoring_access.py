"""Who may read a session's measurements, `partita/signals` and `partita/metrics`. Pure.

Each namespace has a token, which the operator and Prometheus send as `Authorization: Bearer <token>`. A frontend knows
only its digest, from a variable of its process: what Ray's dashboard shows of an application does not have the token.
"""

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final

VARIABLE: Final = "PARTITA_MONITORING_TOKEN_SHA256"
"""Environment variable with the digest. Frontends of earlier versions ignore it."""
_SCHEME: Final = "bearer"


def token_digest(token: str) -> str:
    """What a frontend knows of the token: it is random, so nobody finds it by its digest."""
    return sha256(token.encode()).hexdigest()


def authorization(token: str) -> dict[str, str]:
    """The header of a request that reads measurements."""
    return {"Authorization": f"Bearer {token}"}


def may_monitor(header: str, digest: str) -> bool:
    """Whether the value of a request's Authorization header has the token with this digest. Nobody has an empty one."""
    scheme, _, token = header.partition(" ")
    given = token_digest(token.strip())
    return bool(digest) and scheme.lower() == _SCHEME and compare_digest(given, digest)


def with_monitoring(runtime_env: dict[str, Any], digest: str) -> dict[str, Any]:
    """A Ray runtime environment with the digest; unchanged for an empty one."""
    if not digest:
        return runtime_env
    variables: Mapping[str, str] = runtime_env.get("env_vars", {})
    return {**runtime_env, "env_vars": {**variables, VARIABLE: digest}}


def has_monitoring(runtime_env: Mapping[str, Any]) -> bool:
    """Whether a Ray runtime environment has a digest."""
    return VARIABLE in runtime_env.get("env_vars", {})


def without_monitoring(runtime_env: Mapping[str, Any]) -> dict[str, Any]:
    """A Ray runtime environment as it was before it had the digest."""
    others = {name: value for name, value in runtime_env.get("env_vars", {}).items() if name != VARIABLE}
    kept = {name: value for name, value in runtime_env.items() if name != "env_vars"}
    return {**kept, "env_vars": others} if others else kept
