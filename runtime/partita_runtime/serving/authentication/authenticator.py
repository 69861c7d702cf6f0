"""Checks the credentials of requests against the clients that the session accepts."""

from collections.abc import Sequence
from typing import Final

from partita_runtime.serving.authentication.tokens import TokenError, TokenVerifier
from partita_runtime.serving.deploy.allowed_clients import AllowedClients, key_digest
from partita_runtime.serving.protocol.inference import RequestError

CREDENTIALS: Final = "authorization"
"""The header, or key of gRPC's metadata, with a client's credentials."""
MAX_CREDENTIALS: Final = 8 * 1024
"""Most characters of a client's credentials."""
_SCHEME: Final = "bearer "


class UnauthenticatedError(RequestError):
    """The session does not accept the client (401)."""

    def __init__(self, message: str, error: str = "") -> None:
        """`error` is a code of RFC 6750; empty if the client has sent no credentials."""
        super().__init__(401, message)
        self.challenge = f'Bearer realm="partita", error="{error}"' if error else 'Bearer realm="partita"'
        """Value of WWW-Authenticate."""


class Authenticator:
    """Admits requests; everybody's until the session says which clients it accepts."""

    def __init__(self) -> None:
        self._allowed: AllowedClients | None = None
        self._digests: frozenset[str] = frozenset()
        self._tokens: TokenVerifier | None = None

    def allow(self, clients: AllowedClients | None) -> None:
        """From now on admit only these clients; None for everybody."""
        if clients == self._allowed:
            return
        self._allowed = clients
        self._digests = frozenset(clients.api_keys) if clients is not None else frozenset()
        tokens = clients.tokens if clients is not None else None
        self._tokens = TokenVerifier(tokens) if tokens is not None else None

    @property
    def open(self) -> bool:
        """Whether it admits everybody."""
        return self._allowed is None

    def check(self, credentials: Sequence[str]) -> None:
        """Raises UnauthenticatedError unless the values of `CREDENTIALS` in a request are those of one client."""
        if self._allowed is None:
            return
        sent = _bearer(credentials)
        # Clients do not choose digests, so the time of this comparison says nothing about the keys.
        if self._digests and key_digest(self._allowed.salt, sent) in self._digests:
            return
        if self._tokens is None or sent.count(b".") != 2:
            raise UnauthenticatedError("the session does not accept these credentials", "invalid_token")
        try:
            self._tokens.verify(sent)
        except TokenError as error:
            raise UnauthenticatedError(f"the session does not accept this token: {error}", "invalid_token") from None


def _bearer(credentials: Sequence[str]) -> bytes:
    """The client's key or token. Raises UnauthenticatedError if there is not exactly one."""
    if not credentials:
        raise UnauthenticatedError("the session needs credentials; send the header `Authorization: Bearer KEY`")
    (value, *more) = credentials
    if more:
        raise UnauthenticatedError("send one Authorization header, not several", "invalid_request")
    if len(value) > MAX_CREDENTIALS:
        raise UnauthenticatedError(f"credentials have at most {MAX_CREDENTIALS} characters", "invalid_request")
    if value[: len(_SCHEME)].lower() != _SCHEME or not value.isascii():
        raise UnauthenticatedError("send credentials as `Authorization: Bearer KEY`", "invalid_request")
    return value[len(_SCHEME) :].strip(" ").encode()
