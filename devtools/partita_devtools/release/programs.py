"""The programs that a release needs beside Python's."""

import shutil
from collections.abc import Collection, Mapping
from typing import Final

from partita_devtools.errors import DevError

PROGRAMS: Final[Mapping[str, str]] = {
    "buildah": "apt-get install buildah",
    "debootstrap": "apt-get install debootstrap",
    "docker-registry": "apt-get install docker-registry",
    "helm": "https://github.com/helm/helm/releases/tag/v3.22.0",
    "syft": "https://github.com/anchore/syft/releases/tag/v1.57.0",
    "cosign": "https://github.com/sigstore/cosign/releases/tag/v3.1.3",
}
"""Where to get each one. The workflow of a release installs the same versions."""

OPTIONAL_PROGRAMS: Final = ("cosign", "syft")
"""Those that a dry run can do without: signatures, and lists of contents."""


def missing_programs() -> frozenset[str]:
    """Names of PROGRAMS that are not on PATH."""
    return frozenset(program for program in PROGRAMS if shutil.which(program) is None)


def require_programs(needed: Collection[str], optional: Collection[str] = ()) -> None:
    """Raises DevError that says where to get each of `needed` that is missing, and how to skip those of `optional`."""
    missing = [name for name in PROGRAMS if name in missing_programs() & set(needed)]
    if missing:
        message = "a release needs programs that are missing; get them:"
        message += "".join(f"\n  {name}: {PROGRAMS[name]}" for name in missing)
        skipping = " ".join(f"--skip {name}" for name in missing if name in optional)
        raise DevError(f"{message}\nTo leave out their steps: {skipping}" if skipping else message)
