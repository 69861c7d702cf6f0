"""Remote model files: in an OCI registry, or on any file system of fsspec (S3, GCS, HTTP ...).

Credentials are those of the pod: fsspec's packages find them, and registries use Docker's configuration. Do not trust a
file before its digest is compared.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from partita_runtime.models.errors import ModelError, ModelErrorReason

OCI: Final = "oci"
_ARTIFACT: Final = re.compile(
    r"oci://(?P<registry>[^/@]+)/(?P<repository>[a-z0-9][a-z0-9._/-]*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]*))?(@(?P<digest>sha256:[0-9a-f]{64}))?/(?P<file>[^/:@]+)"
)
_PLAIN_HTTP: Final = ("localhost", "127.0.0.1", "::1")
"""Local registries are used without TLS, as by Docker."""
_TITLE: Final = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Artifact:
    """A file in an artifact of an OCI registry: `oci://REGISTRY/REPOSITORY:TAG/FILE`, or `@sha256:...` for the tag."""

    reference: str
    """REGISTRY/REPOSITORY with tag, digest or both."""
    file: str
    """The title of its layer, which `oras push` sets to the file's name."""

    @classmethod
    def of(cls, uri: str) -> "Artifact":
        """The artifact of a URI. Raises ModelError."""
        found = _ARTIFACT.fullmatch(uri)
        if found is None or not (found["tag"] or found["digest"]):
            raise ModelError(
                ModelErrorReason.FILE_UNREADABLE,
                f"{uri} is not a file of an artifact; write oci://REGISTRY/REPOSITORY:TAG/FILE, or @sha256:DIGEST for "
                "the tag",
            )
        return cls(uri[len("oci://") : found.start("file") - 1], found["file"])


def fetch(uri: str, sha256: str, target: Path) -> None:
    """Write the file at `uri` with this digest to `target`. Raises ModelError."""
    try:
        if urlsplit(uri).scheme == OCI:
            _pull(Artifact.of(uri), uri, sha256, target)
        else:
            import fsspec

            with fsspec.open(uri) as content, target.open("wb") as file:
                shutil.copyfileobj(content, file)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{uri} cannot be fetched ({type(error).__name__}); check that it exists, that the pod has credentials for "
            "it, and that the image has the package for it (oras for oci://, else that of fsspec, such as s3fs)",
        ) from error


def _pull(artifact: Artifact, uri: str, sha256: str, target: Path) -> None:
    """A blob's digest in its registry is that of its content, so a wrong file is not fetched."""
    from oras.provider import Registry

    host = urlsplit(uri).hostname
    registry = Registry(insecure=host in _PLAIN_HTTP)
    container = registry.get_container(artifact.reference)
    layers = registry.get_manifest(container).get("layers", [])
    digests = {(layer.get("annotations") or {}).get(_TITLE, ""): layer["digest"] for layer in layers}
    if artifact.file not in digests:
        files = ", ".join(sorted(filter(None, digests))) or "none"
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{artifact.reference} has no file {artifact.file}; its files are: {files}",
        )
    if digests[artifact.file] != f"sha256:{sha256}":
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{uri} does not match its digest {sha256}: its digest is {digests[artifact.file]}; correct the digest "
            "(sha256 in the session, or models.allowedFiles of the chart), or use the artifact with the right file",
        )
    registry.download_blob(container, digests[artifact.file], str(target))
