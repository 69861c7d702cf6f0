"""What a release is made of, and where it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita_devtools.release.signing import LocalKey

IMAGES: Final[Mapping[str, str]] = {"operator": "operator", "runtime": "serving", "profiler": "models"}
"""The value of the Dockerfile's EXTRAS for each image."""


@dataclass(frozen=True)
class ReleaseConfig:
    """A release."""

    source: Path
    """The repository."""
    out: Path
    """Folder for the wheels, the chart, and the contents of the images."""
    registry: str
    """Host and path, such as ghcr.io/partita: images are published below it, the chart below its `charts`."""
    images: tuple[str, ...] = tuple(IMAGES)
    """Names of IMAGES to publish."""
    base: str | None = None
    """Base of the images. None: a Debian 12 with Python, built here."""
    plain_http: bool = False
    """Whether the registry has no TLS."""
    key: LocalKey | None = None
    """Key of the signatures. None: cosign's signature without a key, by the identity of the workflow."""
    skipped: frozenset[str] = frozenset()
    """Names of OPTIONAL_PROGRAMS whose steps are left out."""

    @property
    def programs(self) -> frozenset[str]:
        """Names of PROGRAMS that it runs."""
        base = frozenset({"debootstrap"} if self.base is None else ())
        return frozenset({"buildah", "helm", "syft", "cosign"}) - self.skipped | base

    @property
    def state(self) -> Path:
        """Folder for what is no part of the release."""
        return self.source / ".partita"

    @property
    def image_cache(self) -> Path:
        """Folder for the layers of earlier builds."""
        return self.state / "image"
