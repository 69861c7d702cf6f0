"""The list of an image's contents by the real syft: packages under the image's own name."""

import json
import shutil
from pathlib import Path

import pytest
from tests.devtools.release.images import write_image

from partita_devtools.errors import DevError
from partita_devtools.release.contents import list_contents, require_package
from partita_devtools.release.programs import PROGRAMS

INSTALLED = "opt/partita/lib/python3.11/site-packages/partita-1.2.3.dist-info"
IMAGE = {
    f"{INSTALLED}/METADATA": "Metadata-Version: 2.4\nName: partita\nVersion: 1.2.3\n",
    "etc/os-release": "ID=debian\nVERSION_ID=12\n",
    "var/lib/dpkg/status": "Package: tool\nStatus: install ok installed\nArchitecture: all\nVersion: 4-5\n",
    "var/lib/dpkg/info/tool.md5sums": "d41d8cd98f00b204e9800998ecf8427e  usr/bin/tool\n",
    "usr/bin/tool": "#!/bin/sh\n",
}
"""A package of Python, and one of Debian that owns a file."""


@pytest.fixture
def contents(tmp_path: Path) -> Path:
    if shutil.which("syft") is None:
        pytest.skip(f"no syft: {PROGRAMS['syft']}")
    write_image(tmp_path / "image.tar", IMAGE)
    found = tmp_path / "contents.json"
    list_contents(
        tmp_path / "image.tar", "ghcr.io/partita/operator", "1.2.3", found, log=tmp_path / "log", report=print
    )
    return found


def test_packages_are_found(contents: Path) -> None:
    require_package(contents, "partita", "1.2.3")
    require_package(contents, "tool", "4-5")


def test_the_list_has_the_name_of_the_image_and_not_this_machines(contents: Path, tmp_path: Path) -> None:
    assert json.loads(contents.read_text())["name"] == "ghcr.io/partita/operator"
    assert str(tmp_path) not in contents.read_text()


def test_the_list_has_packages_and_not_their_files(contents: Path) -> None:
    assert "usr/bin/tool" not in contents.read_text()


@pytest.mark.parametrize(
    ("name", "problem"),
    [("partita", r"contain partita 9\.9, .* has 1\.2\.3$"), ("torch", r"contain torch 9\.9, .* lacks it$")],
)
def test_a_package_that_is_not_in_the_list_is_named(name: str, problem: str, tmp_path: Path) -> None:
    contents = tmp_path / "contents.json"
    contents.write_text(json.dumps({"packages": [{"name": "partita", "versionInfo": "1.2.3"}]}))

    with pytest.raises(DevError, match=problem):
        require_package(contents, name, "9.9")
