"""Certificates, and authorities that issue them. Pure, except that keys are random."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid so long before they are made: clocks of other machines may be late."""

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate, also of an authority, and its private key."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)

    @classmethod
    def from_pem(cls, certificate: bytes, key: bytes) -> Self:
        """Raises ValueError unless both are PEM, and belong together."""
        loaded = serialization.load_pem_private_key(key, password=None)
        made = x509.load_pem_x509_certificate(certificate)
        if not isinstance(loaded, PrivateKey) or loaded.public_key() != made.public_key():
            raise ValueError("the key is not the one of the certificate")
        return cls(made, loaded)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return pem(self.certificate)

    @property
    def key_pem(self) -> bytes:
        """The key as PEM (PKCS #8), without a password."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


@dataclass(frozen=True)
class Validity:
    """When a certificate is made, and how long it is valid afterwards."""

    made: datetime
    lasts: timedelta


def pem(certificate: x509.Certificate) -> bytes:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def new_authority(name: str, validity: Validity) -> IssuedCertificate:
    """An authority with this common name, which signs itself. It may sign no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
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
    subject = _name(name)
    builder = (
        _builder(subject, subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return IssuedCertificate(builder.sign(key, hashes.SHA256()), key)


def issued(
    authority: IssuedCertificate,
    name: str,
    alternative_names: Sequence[x509.GeneralName],
    validity: Validity,
    *,
    is_client: bool = False,
) -> IssuedCertificate:
    """A certificate of `authority` for a server, which may also show it as a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, *([ExtendedKeyUsageOID.CLIENT_AUTH] if is_client else [])]
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(_name(name), issuer.subject, key, validity)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(signed_by, critical=False)
    )
    return IssuedCertificate(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, validity: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity.made - CLOCK_SKEW)
        .not_valid_after(validity.made + validity.lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
