"""When the certificate of the admission webhook expires."""

from pathlib import Path

from cryptography import x509


def expires(certificate: Path) -> float:
    """The end of the certificate's validity, in seconds since 1970; NaN if the file cannot be read now.

    A file with a chain begins with the server's own certificate.
    """
    try:
        first, *_ = x509.load_pem_x509_certificates(certificate.read_bytes())
    except (OSError, ValueError):
        return float("nan")
    return first.not_valid_after_utc.timestamp()
