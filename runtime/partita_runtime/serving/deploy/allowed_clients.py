"""The clients that frontends accept, as data in their `user_config`. It has digests of API keys, never the keys."""

import hmac

from partita_api.meta import SpecModel
from partita_runtime.serving.deploy.public_keys import PublicKey


class TokenRules(SpecModel):
    """Which tokens of one issuer are accepted."""

    issuer: str
    audiences: tuple[str, ...]
    claims: dict[str, tuple[str, ...]] = {}
    """Values of other claims, of which a token must have one each."""
    keys: tuple[PublicKey, ...]


class AllowedClients(SpecModel):
    """The clients whose requests are answered; nobody's if it names none."""

    salt: str = ""
    """Differs from session to session: equal keys of two sessions have different digests."""
    api_keys: tuple[str, ...] = ()
    """Digests of API keys."""
    tokens: TokenRules | None = None


def key_digest(salt: str, key: bytes) -> str:
    """The digest of an API key. It hides only keys that nobody can guess."""
    return hmac.digest(salt.encode(), key, "sha256").hex()
