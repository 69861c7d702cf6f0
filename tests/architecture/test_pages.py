"""Lines of pages and code are short, the README is one screen or two, commands inside of sentences can be pasted."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import ROOT, documents
from tests.docs.pages import blocks

MOST_CHARACTERS: Final = 130
MOST_CHARACTERS_OF_CODE: Final = 100
"""What the column of the site shows on a laptop; `docs/assets/site.css` sets its width."""
MOST_LINES_OF_THE_README: Final = 100
HEADER_OF_A_TABLE: Final = re.compile(r"^(?P<header>\|.*\|)\n\|[-:| ]+\|$", re.MULTILINE)
INSTALLED: Final = re.compile(r"pip install [^`\n]*?'?(?P<package>partita|\.)\[(?P<extras>[\w,]+)\]")


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_short(page: Path) -> None:
    """Rows of tables cannot be broken."""
    lines = enumerate(page.read_text().splitlines(), start=1)

    assert [n for n, line in lines if len(line) > MOST_CHARACTERS and not line.lstrip().startswith("|")] == []


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_column_of_the_site(page: Path) -> None:
    """A reader of commands, manifests and diagrams does not scroll to the side."""
    lines = [line for block in blocks(str(page.relative_to(ROOT))) for line in block.text.splitlines()]

    assert [line for line in lines if len(line) > MOST_CHARACTERS_OF_CODE] == []


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_each_column_of_a_table_has_a_name(page: Path) -> None:
    headers = [match["header"] for match in HEADER_OF_A_TABLE.finditer(page.read_text())]

    assert [header for header in headers if any(not cell.strip() for cell in header.strip("|").split("|"))] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MOST_LINES_OF_THE_README


def test_pages_install_extras_from_the_checkout() -> None:
    """No package index has Partita yet."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    found = [match for page in documents() for match in INSTALLED.finditer(page.read_text())]

    assert len(found) > 4
    assert {match["package"] for match in found} == {"."}
    assert {extra for match in found for extra in match["extras"].split(",")} <= known
