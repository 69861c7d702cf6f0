"""The version of a release. All parts have the same one."""

import tomllib
from pathlib import Path

import yaml

from partita_devtools.errors import DevError


def release_version(source: Path, tag: str | None = None) -> str:
    """The version of the packages and the chart in a repository.

    Raises DevError if they differ, or if `tag` (such as v0.1.0) is that of another version.
    """
    chart = yaml.safe_load((source / "charts/partita/Chart.yaml").read_text())
    found = {
        "pyproject.toml": _package_version(source),
        "devtools/pyproject.toml": _package_version(source / "devtools"),
        "charts/partita/Chart.yaml (version)": str(chart["version"]),
        "charts/partita/Chart.yaml (appVersion)": str(chart["appVersion"]),
    }
    if tag is not None:
        found[f"tag {tag}"] = tag.removeprefix("v")
    if len(set(found.values())) > 1:
        listed = "\n".join(f"  {place}: {version}" for place, version in found.items())
        raise DevError(f"the versions differ; make them equal:\n{listed}")
    return found["pyproject.toml"]


def _package_version(folder: Path) -> str:
    version: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    return version
