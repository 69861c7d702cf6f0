"""Files with keys and certificates, for servers that listen on the loopback interface only, and their clients."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from partita_devtools.machine.files import write_private
from partita_operator.certificates.issuing import IssuedCertificate, Validity, issued, new_authority

_VALID_FOR: Final = datetime.timedelta(days=3650)
_LOOPBACK: Final = "127.0.0.1"


@dataclass(frozen=True)
class KeyPair:
    """Paths of a PEM certificate and of its PEM private key."""

    certificate: Path
    key: Path


def load_or_create_authority(directory: Path) -> KeyPair:
    """The authority in `directory`; a new one if there is none, or if a full disk or a crash cut it off."""
    present = KeyPair(directory / "ca.crt", directory / "ca.key")
    try:
        _load(present)
    except (FileNotFoundError, ValueError):
        return create_authority(directory)
    return present


def create_authority(directory: Path) -> KeyPair:
    """Write a new certificate authority, `ca.crt` and `ca.key`, into `directory`."""
    return _write(directory, "ca", new_authority("partita-dev-ca", _from_now()))


def issue_server_certificate(authority: KeyPair, directory: Path, name: str, *addresses: str) -> KeyPair:
    """Write `<name>.crt` and `<name>.key`, valid for 127.0.0.1, localhost and `addresses`, signed by `authority`."""
    names = [
        *(x509.DNSName(host) for host in ("localhost", "kubernetes.default.svc")),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in (_LOOPBACK, *addresses)),
    ]
    return _write(directory, name, issued(_load(authority), name, names, _from_now()))


def issue_client_certificate(authority: KeyPair, directory: Path, name: str) -> KeyPair:
    """Write `<name>.crt` and `<name>.key`, which identify a client as `name`, signed by `authority`."""
    made = issued(_load(authority), name, [x509.DNSName(name)], _from_now(), is_client=True)
    return _write(directory, name, made)


def create_signing_key(path: Path) -> None:
    """Write a new RSA private key, such as the API server signs service-account tokens with."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    write_private(path, key.private_bytes(serialization.Encoding.PEM, traditional, serialization.NoEncryption()))


def _load(pair: KeyPair) -> IssuedCertificate:
    """Raises FileNotFoundError, and ValueError for a damaged file."""
    return IssuedCertificate.from_pem(pair.certificate.read_bytes(), pair.key.read_bytes())


def _from_now() -> Validity:
    return Validity(datetime.datetime.now(datetime.UTC), _VALID_FOR)


def _write(directory: Path, name: str, made: IssuedCertificate) -> KeyPair:
    pair = KeyPair(directory / f"{name}.crt", directory / f"{name}.key")
    write_private(pair.key, made.key_pem)
    write_private(pair.certificate, made.certificate_pem)
    return pair
