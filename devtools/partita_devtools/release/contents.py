"""The list of what an image contains, in SPDX by syft."""

import json
import os
from pathlib import Path

from partita_devtools.errors import DevError
from partita_devtools.machine.commands import Report, run_logged

_SETTINGS = {
    # Packages without the files that they own, 1.3 MB instead of 7 for the operator's image: cosign sends all of it to
    # the public log of signatures.
    "SYFT_RELATIONSHIPS_PACKAGE_FILE_OWNERSHIP": "false",
    "SYFT_CHECK_FOR_APP_UPDATE": "false",
}


def list_contents(archive: Path, image: str, version: str, contents: Path, *, log: Path, report: Report) -> None:
    """Write the packages of an archive of docker to `contents`, as those of the `image` in its registry.

    Raises DevError with the end of the log if it fails.
    """
    named = ["--source-name", image, "--source-version", version]
    run_logged(
        ["syft", "scan", f"docker-archive:{archive}", *named, "--output", f"spdx-json={contents}"],
        phase=f"listing the contents of {image}",
        log=log,
        report=report,
        environment={**os.environ, **_SETTINGS},
    )


def require_package(contents: Path, name: str, version: str) -> None:
    """Raises DevError if a list of contents lacks this package in this version."""
    found = {package["versionInfo"] for package in _packages(contents) if package["name"] == name}
    if version not in found:
        known = f"has {', '.join(sorted(found))}" if found else "lacks it"
        raise DevError(f"the image should contain {name} {version}, but its list of contents {contents} {known}")


def _packages(contents: Path) -> list[dict[str, str]]:
    packages: list[dict[str, str]] = json.loads(contents.read_text())["packages"]
    return packages
