"""The certificate that the frontends and replicas of a namespace share, and when it changes. Pure; keys are random.

Sessions of a namespace trust each other, and code of sessions can read what its pods can. So all pods have one
certificate, of an authority that has issued no other one: its key is forgotten. A new certificate is in use only when
all pods have had the time to trust its authority, so connections of old and new certificates work all the time.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from partita_operator.certificates.issuing import CLOCK_SKEW, IssuedCertificate, Validity, issued, new_authority, pem
from partita_runtime.serving.transport.tls_files import AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE

LIFETIME: Final = timedelta(days=180)
RENEWED_AFTER: Final = timedelta(days=60)
TRUSTED_BEFORE_USE: Final = timedelta(days=1)
"""How long pods trust the authority of the next certificate before it is used. Kubelets need minutes at most."""
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
"""Where the next certificate waits in the Secret; pods do not mount it."""
KEYS: Final = (AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE, NEXT_CERTIFICATE, NEXT_KEY)
"""What the Secret may have."""

_COMMON_NAME: Final = "partita-ray"


def renewed(present: Mapping[str, str], name: str, now: datetime) -> dict[str, str]:
    """The values of a Secret at this time: the same ones, unless a certificate is missing, or due for its next step.

    Certificates have the DNS name `name`. The authorities of earlier certificates stay until they expire.
    """
    trusted = [authority for authority in _authorities(present) if authority.not_valid_after_utc > now]
    current = _certificate(present, CERTIFICATE_FILE, KEY_FILE, name, trusted, now)
    following = _certificate(present, NEXT_CERTIFICATE, NEXT_KEY, name, trusted, now)
    if current is None:
        current, following = following, None
    if current is None:
        authority, current = _new_certificate(name, now)
        trusted = [*trusted, authority]
    elif following is None and now >= _made(current) + RENEWED_AFTER:
        authority, following = _new_certificate(name, now)
        trusted = [*trusted, authority]
    elif following is not None and now >= _made(following) + TRUSTED_BEFORE_USE:
        current, following = following, None
    waiting = {} if following is None else _values(following, NEXT_CERTIFICATE, NEXT_KEY)
    return {
        AUTHORITIES_FILE: "".join(pem(authority).decode() for authority in trusted),
        **_values(current, CERTIFICATE_FILE, KEY_FILE),
        **waiting,
    }


def _new_certificate(name: str, now: datetime) -> tuple[x509.Certificate, IssuedCertificate]:
    """A certificate after its authority."""
    validity = Validity(now, LIFETIME)
    authority = new_authority(f"{_COMMON_NAME} authority", validity)
    return authority.certificate, issued(authority, _COMMON_NAME, [x509.DNSName(name)], validity, is_client=True)


def _made(issued: IssuedCertificate) -> datetime:
    return issued.certificate.not_valid_before_utc + CLOCK_SKEW


def _authorities(present: Mapping[str, str]) -> list[x509.Certificate]:
    with suppress(ValueError):
        return x509.load_pem_x509_certificates(present.get(AUTHORITIES_FILE, "").encode())
    return []


def _certificate(
    present: Mapping[str, str],
    certificate: str,
    key: str,
    name: str,
    trusted: list[x509.Certificate],
    now: datetime,
) -> IssuedCertificate | None:
    """The certificate under these keys; None if there is none that pods accept."""
    with suppress(KeyError, ValueError, x509.ExtensionNotFound):
        found = IssuedCertificate.from_pem(present[certificate].encode(), present[key].encode())
        names = found.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        is_named = name in names.get_values_for_type(x509.DNSName)
        if is_named and now < found.certificate.not_valid_after_utc and _is_of(found.certificate, trusted):
            return found
    return None


def _is_of(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> bool:
    for authority in authorities:
        with suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(authority)
            return True
    return False


def _values(issued: IssuedCertificate, certificate: str, key: str) -> dict[str, str]:
    return {certificate: issued.certificate_pem.decode(), key: issued.key_pem.decode()}
