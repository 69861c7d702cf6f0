"""The programs that a release needs beside Python's."""

import shutil
from collections.abc import Collection, Mapping
from typing import Final

from partita_devtools.errors import DevError

PROGRAMS: Final[Mapping[str, str]] = {
    "buildah": "Debian package buildah",
    "helm": "https://helm.sh/docs/intro/install",
    "syft": "https://github.com/anchore/syft#installation",
    "cosign": "https://docs.sigstore.dev/cosign/system_config/installation",
}
"""How to install each one."""

OPTIONAL_PROGRAMS: Final = frozenset({"syft", "cosign"})
"""Those that a dry run does without: lists of contents, and signatures."""


def missing_programs() -> frozenset[str]:
    """Names of PROGRAMS that are not on PATH."""
    return frozenset(program for program in PROGRAMS if shutil.which(program) is None)


def require_programs(skipped: Collection[str]) -> None:
    """Raises DevError that says how to install what is missing, unless it is skipped."""
    missing = [f"{name} ({PROGRAMS[name]})" for name in PROGRAMS if name in missing_programs() - set(skipped)]
    if missing:
        raise DevError(f"a release needs programs that are missing: {', '.join(missing)}")
