"""What `make install` does with packages that are not those of the lock: it installs nothing of them."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.devtools.dependencies.lock import ROOT
from tests.devtools.dependencies.wheels import write_wheel

SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


class Place:
    """A repository with one dependency, `innocent`, and the only folder of wheels that pip and uv ask."""

    def __init__(self, folder: Path) -> None:
        self.repository, self.venv, self._wheels = folder / "repository", folder / "venv", folder / "wheels"
        for each in (self.repository / "devtools", self._wheels):
            each.mkdir(parents=True)
        described = '[project]\nname = "{}"\nversion = "1"\ndependencies = []\n'
        dev = '[project.optional-dependencies]\ndev = ["innocent"]\n'
        (self.repository / "pyproject.toml").write_text(described.format("partita") + dev)
        (self.repository / "devtools/pyproject.toml").write_text(described.format("partita-devtools"))

    def wheel(self, name: str, number: str, code: str) -> str:
        """Put a wheel into the folder, and return its SHA-256."""
        return write_wheel(self._wheels, name, number, code)

    def with_uv(self) -> None:
        """The environment has the true uv already."""
        site = self.venv / SITE_PACKAGES
        site.mkdir(parents=True)
        (self.venv / "bin").mkdir()
        (self.venv / "bin/uv").symlink_to(Path(sys.prefix) / "bin/uv")
        for name in ("uv", f"uv-{version('uv')}.dist-info"):
            (site / name).symlink_to(Path(sys.prefix) / SITE_PACKAGES / name)

    def install(self, *lock: tuple[str, str, str]) -> subprocess.CompletedProcess[str]:
        """`make install` with a lock of names, versions and sums."""
        lines = [f"{name}=={number} \\\n    --hash=sha256:{digest}\n    # via\n" for name, number, digest in lock]
        (self.repository / "constraints.txt").write_text("".join(lines))
        own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self._wheels)}
        own |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(self._wheels), "UV_CACHE_DIR": str(self.venv / "cache")}
        command = ["make", "--file", str(ROOT / "Makefile"), "install", f"VENV={self.venv}", f"PYTHON={sys.executable}"]
        return subprocess.run(
            command, cwd=self.repository, env=os.environ | own, capture_output=True, text=True, check=False
        )

    def has(self, package: str) -> bool:
        return (self.venv / SITE_PACKAGES / package).exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_replaced_uv_is_not_installed(place: Place) -> None:
    true = place.wheel("uv", "1.0", "")
    place.wheel("uv", "1.0", "import os; os.system('id')")

    run = place.install(("uv", "1.0", true))

    assert run.returncode != 0
    assert "DO NOT MATCH THE HASHES" in run.stderr
    assert not place.has("uv")


def test_a_replaced_dependency_is_not_installed(place: Place) -> None:
    true = place.wheel("innocent", "1.0", "")
    place.wheel("innocent", "1.0", "import os; os.system('id')")
    place.with_uv()

    run = place.install(("uv", version("uv"), "0" * 64), ("innocent", "1.0", true))

    assert run.returncode != 0
    assert "Hash mismatch for `innocent==1.0`" in run.stderr
    assert not place.has("innocent")


def test_a_dependency_that_the_lock_lacks_is_not_installed(place: Place) -> None:
    place.wheel("innocent", "1.0", "")
    place.with_uv()

    run = place.install(("uv", version("uv"), "0" * 64))

    assert run.returncode != 0
    assert "no trusted hash was provided for: `innocent`" in " ".join(run.stderr.split())
    assert not place.has("innocent")


def test_the_dependency_of_the_lock_is_installed(place: Place) -> None:
    """The end of the installation is that of this project's packages, which this repository does not have."""
    true = place.wheel("innocent", "1.0", "")
    place.with_uv()

    place.install(("uv", version("uv"), "0" * 64), ("innocent", "1.0", true))

    assert place.has("innocent")
