"""The files with a process's certificate and with the authorities that it trusts, and what TLS makes of them.

They may change at any time: later connections use the new content, and those that exist stay.
"""

import logging
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_api.meta import SpecModel
from partita_runtime.serving.transport.refusal_log import RefusalLog

logger = logging.getLogger(__name__)

AUTHORITIES_FILE: Final = "ca.crt"
CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"


class TlsFiles(SpecModel):
    """Where a process finds its certificate, and whom it trusts."""

    directory: str
    """Has ca.crt (one authority or several), tls.crt and tls.key."""
    name: str
    """The DNS name that the certificates of both sides have."""


@dataclass(frozen=True)
class Contexts:
    """What the `ssl` module needs for connections, by who begins them."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Credentials:
    """The files' content, which is read again after a change."""

    def __init__(self, files: TlsFiles) -> None:
        self.name = files.name
        self._directory = Path(files.directory)
        self._state: tuple[object, ...] = ()
        """What identifies the content of the files that was read last."""
        self._contexts: Contexts | None = None
        self._refusals = RefusalLog(logger)

    def current(self) -> Contexts:
        """For the next connection. Keeps an earlier content if the files cannot be used now.

        Raises OSError if they could never be used.
        """
        try:
            state = tuple(self._identity(file) for file in (AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE))
            if self._contexts is None or state != self._state:
                self._contexts, self._state = self._read(), state
        except OSError as error:
            if self._contexts is None:
                files = f"{AUTHORITIES_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}"
                raise ConnectionError(
                    f"TLS between frontends and replicas needs {files} in {self._directory}: {error}"
                ) from error
            self._refusals.note("the earlier certificate stays in use; see %s: %s", self._directory, error)
        return self._contexts

    def _identity(self, file: str) -> tuple[int, int]:
        found = (self._directory / file).stat()
        return found.st_ino, found.st_mtime_ns

    def _read(self) -> Contexts:
        server, client = self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)
        server.verify_mode = ssl.CERT_REQUIRED
        server.num_tickets = 0  # no connection begins without certificates
        server.sslobject_class = _named_peers(self.name)
        client.check_hostname = True
        return Contexts(server, client)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_verify_locations(self._directory / AUTHORITIES_FILE)
        context.load_cert_chain(self._directory / CERTIFICATE_FILE, self._directory / KEY_FILE)
        return context


def _named_peers(name: str) -> type[ssl.SSLObject]:
    """Connections that are accepted only from peers with this name. Python by itself checks names of servers only."""

    class NamedPeer(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            certificate = self.getpeercert() or {}
            if ("DNS", name) not in certificate.get("subjectAltName", ()):
                raise ssl.SSLCertVerificationError(1, f"the certificate does not have the name {name}")

    return NamedPeer
