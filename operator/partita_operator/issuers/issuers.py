"""Reads the public keys of issuers again and again, and keeps the last ones while an issuer does not answer."""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from typing import Final

from partita_operator.engines.bounded_client import BoundedClient, NoAnswerError
from partita_operator.reconcile.world import IssuerKeys
from partita_operator.settings.clients import IssuerSettings
from partita_runtime.serving.authentication.key_set import NoKeysError, signature_keys

logger = logging.getLogger(__name__)

READ_AGAIN_SECONDS: Final = 60.0
"""A new key of an issuer is accepted after this time at most. What clients send causes no request to an issuer."""
RETRY_SECONDS: Final = 10.0
"""Pause after a failure."""
ANSWER_SECONDS: Final = 10.0
"""From the connection to the last byte of an answer."""
MOST_BYTES: Final = 256 * 1024
"""Of an answer. A key takes some 2 KiB with its certificates."""


class Issuers:
    """The keys of all issuers of the settings."""

    def __init__(
        self,
        issuers: Sequence[IssuerSettings],
        read_again_seconds: float = READ_AGAIN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._issuers = issuers
        self._read_again_seconds = read_again_seconds
        self._retry_seconds = retry_seconds
        self._found: dict[str, IssuerKeys] = {}

    def keys(self, issuer: str) -> IssuerKeys:
        """What is known of an issuer's keys."""
        return self._found.get(issuer, IssuerKeys(problem="They have not been read yet."))

    async def watch(self) -> None:
        """Read the keys until cancelled."""
        async with asyncio.TaskGroup() as group:
            for issuer in self._issuers:
                group.create_task(self._follow(issuer))

    async def _follow(self, issuer: IssuerSettings) -> None:
        client = BoundedClient(seconds=ANSWER_SECONDS, most_bytes=MOST_BYTES, verify=_verification(issuer))
        try:
            while True:
                found = await self._read(client, issuer)
                if found.problem and found.problem != self.keys(issuer.issuer).problem:
                    logger.warning("issuer %s: %s", issuer.issuer, found.problem)
                self._found[issuer.issuer] = found
                await asyncio.sleep(self._retry_seconds if found.problem else self._read_again_seconds)
        finally:
            await client.close()

    async def _read(self, client: BoundedClient, issuer: IssuerSettings) -> IssuerKeys:
        """The keys that the issuer has now; the last ones, and why, if it does not say."""
        before = self.keys(issuer.issuer).keys
        try:
            answer = await client.request("GET", issuer.jwks_uri, headers={"Accept": "application/json"})
            if answer.status != 200:
                raise NoAnswerError(f"the answer's status is {answer.status}")
            return IssuerKeys(signature_keys(answer.body))
        except (NoAnswerError, NoKeysError) as error:
            return IssuerKeys(before, f"{issuer.jwks_uri}: {error}.")


def _verification(issuer: IssuerSettings) -> ssl.SSLContext | bool:
    """How the server's certificate is checked."""
    return ssl.create_default_context(cadata=issuer.ca_certificates) if issuer.ca_certificates else True
