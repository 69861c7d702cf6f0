"""Debian packages with the programs that nodes and their images need."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from partita_devtools.errors import DevError

NODE_PACKAGES: Final = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "/bin/busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""The package of each program of a node; programs are on PATH, or have a path."""
IMAGE_PACKAGES: Final = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""The package of each program that builds an image."""


def require_packages(packages: Mapping[str, str]) -> None:
    """Raises DevError with the command that installs the packages whose programs are absent."""
    absent = [package for program, package in packages.items() if not _exists(program)]
    if absent:
        raise DevError(f"packages are missing; install them with: apt-get install {' '.join(absent)}")


def _exists(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None
