"""Reads JSON Web Key Sets (RFC 7517). Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from pydantic import ValidationError

from partita_runtime.serving.deploy.public_keys import MAX_KEYS, PublicKey

_FIELDS: Final = ("kty", "kid", "alg", "n", "e", "crv", "x", "y")
_FOR_SIGNATURES: Final = (None, "sig")


class NoKeysError(Exception):
    """A key set has no key that verifies tokens; the message says why."""


def signature_keys(text: str | bytes) -> tuple[PublicKey, ...]:
    """The public keys of asymmetric signatures in a key set; others are left out.

    Raises NoKeysError if there is none, or too many.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        raise NoKeysError("the key set is not JSON") from None
    listed = answer.get("keys") if isinstance(answer, Mapping) else None
    if not isinstance(listed, list):
        raise NoKeysError("it is not a JSON Web Key Set, an object with keys")
    found = tuple(_keys(listed))
    if not found:
        raise NoKeysError("the key set has no key of signatures (RSA of 2048 to 4096 bits, EC or Ed25519)")
    if len(found) > MAX_KEYS:
        raise NoKeysError(f"the key set has {len(found)} keys, more than {MAX_KEYS}")
    return found


def loaded(key: PublicKey) -> Any | None:
    """The key for signatures; None if there is none with these numbers, such as a point that is not on the curve."""
    fields = key.model_dump(mode="json", exclude_none=True)
    try:
        return jwt.PyJWK(fields, algorithm=str(key.algorithms[0])).key
    except (jwt.PyJWTError, UnsupportedAlgorithm, ValueError):
        return None


def _keys(listed: list[Any]) -> Iterator[PublicKey]:
    for item in listed:
        if not isinstance(item, Mapping) or item.get("use") not in _FOR_SIGNATURES:
            continue
        try:
            key = PublicKey.model_validate({name: item[name] for name in _FIELDS if item.get(name) is not None})
        except ValidationError:
            continue
        if loaded(key) is not None:
            yield key
