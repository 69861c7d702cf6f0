"""The certificate of a session whose processes connect by TLS."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from partita_operator.certificates.renewal import renewed
from partita_runtime.serving.transport.tls_files import TlsFiles

_NAME: Final = "partita-ray.default"


def certificate_files(directory: Path) -> TlsFiles:
    """The files that all processes use, as the operator makes them."""
    directory.mkdir()
    for name, content in renewed({}, _NAME, datetime.now(UTC)).items():
        (directory / name).write_text(content)
    return TlsFiles(directory=str(directory), name=_NAME)
