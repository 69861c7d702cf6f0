"""Verifies the tokens of one issuer: JSON Web Tokens with an asymmetric signature."""

import time
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import jwt

from partita_runtime.serving.authentication.key_set import loaded
from partita_runtime.serving.deploy.allowed_clients import TokenRules
from partita_runtime.serving.deploy.public_keys import PublicKey

LEEWAY_SECONDS: Final = 30
"""How much the clocks of issuer and frontend may differ."""
MOST_REMEMBERED: Final = 4096
"""Verified tokens that are not verified again until they expire: a signature costs as much as a whole request."""
MOST_SECONDS: Final = 3600
"""After this time a token is verified again."""
_REQUIRED: Final = ["exp", "iss", "aud"]
_LISTS_OF_WORDS: Final = ("scope", "scp")


class TokenError(Exception):
    """The token is not accepted; the message says why."""


class TokenVerifier:
    """Verifies tokens with the issuer's keys.

    The key is the one that the token's `kid` names, and the algorithm one of that key's: what the token's header says
    besides (`jku`, `x5u`, `jwk`, `x5c`) is not read.
    """

    def __init__(self, rules: TokenRules, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix seconds."""
        self._rules = rules
        self._clock = clock
        self._keys = _public_keys(rules.keys)
        self._remembered: dict[bytes, float] = {}
        """Until when tokens need not be verified again (Unix seconds), by their digests, the oldest first."""

    def verify(self, token: bytes) -> None:
        """Raises TokenError if the token is not accepted now."""
        digest = sha256(token).digest()
        if self._clock() < self._remembered.get(digest, 0.0):
            return
        self._remembered.pop(digest, None)
        expires = self._expiry(token)
        if len(self._remembered) >= MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = expires

    def _expiry(self, token: bytes) -> float:
        """Until when the token need not be verified again (Unix seconds)."""
        try:
            public, algorithms = self._key_for(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                public,
                algorithms=[*algorithms],
                issuer=self._rules.issuer,
                audience=self._rules.audiences,
                leeway=LEEWAY_SECONDS,
                options={"require": _REQUIRED},
            )
        except jwt.PyJWTError as error:
            raise TokenError(str(error)) from None
        if missing := [name for name, permitted in self._rules.claims.items() if not _has_one(claims, name, permitted)]:
            raise TokenError(f"its claim {missing[0]} has none of the values that the session wants")
        return min(int(claims["exp"]) + LEEWAY_SECONDS, self._clock() + MOST_SECONDS)

    def _key_for(self, header: Mapping[str, Any]) -> "tuple[Any, Sequence[str]]":
        kid = header.get("kid")
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        if not isinstance(kid, str) or kid not in self._keys:
            raise TokenError("its header names no key of the issuer in kid")
        return self._keys[kid]


def _public_keys(keys: Sequence[PublicKey]) -> "dict[str, tuple[Any, Sequence[str]]]":
    """Keys with their algorithms, by kid; of several with one kid the first. Keys that do not exist are left out."""
    found: dict[str, tuple[Any, Sequence[str]]] = {}
    for key in keys:
        if (public := loaded(key)) is not None:
            found.setdefault(key.kid, (public, [str(algorithm) for algorithm in key.algorithms]))
    return found


def _has_one(claims: Mapping[str, Any], name: str, permitted: Sequence[str]) -> bool:
    value = claims.get(name)
    if isinstance(value, str):
        values: Sequence[Any] = value.split() if name in _LISTS_OF_WORDS else [value]
    else:
        values = value if isinstance(value, list) else []
    return any(isinstance(item, str) and item in permitted for item in values)
