"""All parts of a release have one version."""

import re
import shutil
from pathlib import Path

import pytest

from partita_devtools.errors import DevError
from partita_devtools.release.version import release_version

ROOT = Path(__file__).parents[3]
PLACES = ("pyproject.toml", "devtools/pyproject.toml", "charts/partita/Chart.yaml")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The files of the repository that name its version."""
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    return tmp_path


def test_all_parts_have_one_version() -> None:
    version = release_version(ROOT)

    assert release_version(ROOT, tag=f"v{version}") == version


@pytest.mark.parametrize("place", PLACES)
def test_a_part_with_another_version_is_named(place: str, source: Path) -> None:
    text = (source / place).read_text()
    (source / place).write_text(text.replace(release_version(source), "9.9.9", 1))

    with pytest.raises(DevError, match=rf"{re.escape(place)}.*: 9\.9\.9"):
        release_version(source)


def test_a_tag_of_another_version_is_refused() -> None:
    with pytest.raises(DevError, match=r"tag v9\.9\.9: 9\.9\.9"):
        release_version(ROOT, tag="v9.9.9")
