"""The two distributions: the operator's wheel has no development tools, and theirs has all of its files."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATES = {
    path.relative_to(ROOT / "devtools").as_posix()
    for path in (ROOT / "devtools" / "partita_devtools").rglob("*")
    if path.suffix in (".j2", ".css")
}


def targets(project: Path) -> Any:
    return tomllib.loads((project / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]


def test_each_distribution_lists_only_its_own_packages() -> None:
    assert not [package for package in targets(ROOT)["packages"] if "devtools" in package]
    assert targets(ROOT / "devtools")["packages"] == ["partita_devtools"]
    assert len(TEMPLATES) == 3


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
    assert {"partita_operator/cli/main.py", "partita_planner/planning.py"} <= operator
    assert devtools >= {*TEMPLATES, "partita_devtools/cli/dev.py"}
    assert not [name for name in devtools if not name.startswith("partita_devtools")]
