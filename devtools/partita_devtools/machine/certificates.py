"""Keys and certificates for servers that listen on the loopback interface only."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from partita_devtools.machine.files import write_private

_VALID_FOR = datetime.timedelta(days=3650)
_LOOPBACK = "127.0.0.1"


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
    key = _new_key()
    name = _name("partita-dev-ca")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _write(directory, "ca", certificate, key)


def issue_server_certificate(authority: KeyPair, directory: Path, name: str, *addresses: str) -> KeyPair:
    """Write `<name>.crt` and `<name>.key`, valid for 127.0.0.1, localhost and `addresses`, signed by `authority`."""
    key = _new_key()
    issuer, issuer_key = _load(authority)
    names = [
        *(x509.DNSName(host) for host in ("localhost", "kubernetes.default.svc")),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in (_LOOPBACK, *addresses)),
    ]
    certificate = (
        _builder(_name(name), issuer.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _write(directory, name, certificate, key)


def create_signing_key(path: Path) -> None:
    """Write a new RSA private key, such as the API server signs service-account tokens with."""
    write_private(path, _pem(_new_key()))


def _load(pair: KeyPair) -> tuple[x509.Certificate, rsa.RSAPrivateKey]:
    """Raises FileNotFoundError, and ValueError for a damaged file."""
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes()), key


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, public_key: rsa.RSAPublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID_FOR)
    )


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _write(directory: Path, name: str, certificate: x509.Certificate, key: rsa.RSAPrivateKey) -> KeyPair:
    pair = KeyPair(directory / f"{name}.crt", directory / f"{name}.key")
    write_private(pair.key, _pem(key))
    write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))
    return pair
