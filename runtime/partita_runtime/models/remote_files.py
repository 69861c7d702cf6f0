"""Files of models that lie elsewhere: in an OCI registry, or wherever fsspec reaches (S3, GCS, HTTP ...).

Credentials are the pod's own: what fsspec's packages look for, and Docker's configuration for registries. What comes
is not to be trusted before its digest has been compared.
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
"""Registries on this machine are spoken to without TLS, as Docker does."""
_TITLE: Final = "org.opencontainers.image.title"


@dataclass(frozen=True)
class Artifact:
    """A file in an artifact of an OCI registry: `oci://REGISTRY/REPOSITORY:TAG/FILE`, or `@sha256:...` for the tag."""

    reference: str
    """REGISTRY/REPOSITORY with tag, digest or both."""
    file: str
    """The title of its layer, which `oras push` makes of the file's name."""

    @classmethod
    def of(cls, uri: str) -> "Artifact":
        """The artifact that a URI names. Raises ModelError."""
        found = _ARTIFACT.fullmatch(uri)
        if found is None or not (found["tag"] or found["digest"]):
            raise ModelError(
                ModelErrorReason.FILE_UNREADABLE,
                f"{uri} names no file of an artifact; write oci://REGISTRY/REPOSITORY:TAG/FILE, or @sha256:DIGEST for "
                "the tag",
            )
        return cls(uri[len("oci://") : found.start("file") - 1], found["file"])


def fetch(uri: str, sha256: str, target: Path) -> None:
    """Write the file at `uri`, of which the session says the digest, to `target`. Raises ModelError."""
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
            f"{uri} cannot be fetched ({type(error).__name__}); see whether it is there, whether the pod has "
            "credentials for it, and whether the package for it is in the image (oras for oci://, fsspec's for "
            "others, such as s3fs)",
        ) from error


def _pull(artifact: Artifact, uri: str, sha256: str, target: Path) -> None:
    """A blob's digest in its registry is that of its content, so that another file is not even fetched."""
    from oras.provider import Registry

    host = urlsplit(uri).hostname
    registry = Registry(insecure=host in _PLAIN_HTTP)
    container = registry.get_container(artifact.reference)
    layers = registry.get_manifest(container).get("layers", [])
    digests = {(layer.get("annotations") or {}).get(_TITLE, ""): layer["digest"] for layer in layers}
    if artifact.file not in digests:
        there = ", ".join(sorted(filter(None, digests))) or "none"
        raise ModelError(
            ModelErrorReason.FILE_UNREADABLE,
            f"{artifact.reference} has no file {artifact.file}; its files are: {there}",
        )
    if digests[artifact.file] != f"sha256:{sha256}":
        raise ModelError(
            ModelErrorReason.FORBIDDEN,
            f"{uri} is another file than the session says: its digest is {digests[artifact.file]}; correct sha256, or "
            "name the artifact that has the right file",
        )
    registry.download_blob(container, digests[artifact.file], str(target))
