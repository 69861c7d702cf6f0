"""Authorities and certificates of processes under test."""

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from partita_operator.certificates.issuing import IssuedCertificate, Validity, issued, new_authority
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, TlsFiles

NAME: Final = "partita-ray.vision"
"""The name of the processes of one Ray cluster."""
OTHER_NAME: Final = "partita-ray.speech"
"""The name of the processes of another one."""
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Authority:
    """An authority that issues certificates."""

    own: IssuedCertificate

    @classmethod
    def new(cls) -> "Authority":
        return cls(new_authority("partita-ray", Validity(datetime.now(UTC), _DAY)))

    def issue(self, name: str = NAME, ended: timedelta = timedelta(0), is_client: bool = True) -> IssuedCertificate:
        """A certificate for one day; it has ended some time ago if `ended` is not 0."""
        made = datetime.now(UTC) - (_DAY + ended if ended else timedelta(0))
        return issued(self.own, name, [x509.DNSName(name)], Validity(made, _DAY), is_client=is_client)


def self_signed() -> IssuedCertificate:
    """A certificate that has issued itself."""
    return new_authority(NAME, Validity(datetime.now(UTC), _DAY))


def write(directory: Path, trusted: Iterable[Authority], own: IssuedCertificate) -> TlsFiles:
    """Make or replace a process's files."""
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        AUTHORITIES_FILE: b"".join(authority.own.certificate_pem for authority in trusted),
        CERTIFICATE_FILE: own.certificate_pem,
        KEY_FILE: own.key_pem,
    }
    for name, content in contents.items():
        (directory / f".{name}").write_bytes(content)
        (directory / f".{name}").rename(directory / name)
    return TlsFiles(directory=str(directory), name=NAME)


def client_context(files: TlsFiles | None = None) -> ssl.SSLContext:
    """TLS of a client that trusts everyone; with the certificate of these files, if any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if files is not None:
        context.load_cert_chain(Path(files.directory) / CERTIFICATE_FILE, Path(files.directory) / KEY_FILE)
    return context


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS of a server that accepts everyone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(files.directory) / CERTIFICATE_FILE, Path(files.directory) / KEY_FILE)
    return context
