"""The two distributions: the operator's wheel has no development tools, and theirs has all of its files."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def files_of_pages(package: str) -> set[str]:
    """The templates, styles and scripts of a package."""
    suffixes = (".j2", ".css", ".js")
    folder = ROOT / package
    return {path.relative_to(folder.parent).as_posix() for path in folder.rglob("*") if path.suffix in suffixes}


OF_THE_CONSOLE = files_of_pages("operator/partita_operator")
OF_THE_REPORT = files_of_pages("devtools/partita_devtools")


def targets(project: Path) -> Any:
    return tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_each_distribution_lists_only_its_own_packages() -> None:
    assert not [package for package in targets(ROOT)["packages"] if "devtools" in package]
    assert targets(ROOT / "devtools")["packages"] == ["partita_devtools"]
    assert len(OF_THE_CONSOLE) == 11
    assert len(OF_THE_REPORT) == 2


@pytest.mark.slow
def test_wheels_contain_what_they_should(tmp_path: Path) -> None:
    """Builds both."""
    words = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    for project in (ROOT, ROOT / "devtools"):
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *words, str(project)],
            check=True,
            timeout=300,
        )
    operator, devtools = (
        set(zipfile.ZipFile(next(tmp_path.glob(f"{name}-*.whl"))).namelist())
        for name in ("partita", "partita_devtools")
    )
    assert not [name for name in operator if name.startswith("partita_devtools/")]
    assert operator >= {*OF_THE_CONSOLE, "partita_operator/cli/main.py", "partita_planner/planning.py"}
    assert devtools >= {*OF_THE_REPORT, "partita_devtools/cli/dev.py"}
    assert not [name for name in devtools if not name.startswith("partita_devtools")]
