"""Links between pages lead to files, headings and folders that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import ROOT

FOLDERS: Final = ("docs", "examples", "benchmarks", "charts")
PAGES: Final = [
    *sorted(ROOT.glob("*.md")),
    *(page for folder in FOLDERS for page in sorted((ROOT / folder).rglob("*.md"))),
]
LINK: Final = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors that GitHub gives to the headings of a page."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found)


def dead_links(page: Path) -> Iterator[str]:
    for target, anchor in LINK.findall(page.read_text()):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in headings(file)):
            yield f"{target}#{anchor}" if anchor else target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_pages_end_with_a_next_step() -> None:
    """The last paragraph has a link. Pages to look something up have none: results, the glossary and `where.md`."""
    docs = ROOT / "docs"
    pages = {*docs.rglob("*.md")} - {docs / "concepts/glossary.md", docs / "internals/where.md"}
    pages -= {*(docs / "benchmarks").iterdir()}
    ends = {str(page.relative_to(docs)): page.read_text().rstrip().rpartition("\n\n")[2] for page in pages}

    assert [page for page, end in ends.items() if end.startswith("|") or not LINK.search(end)] == []


def test_the_table_of_contents_has_every_page() -> None:
    """Pages on benchmarks are in the table of their own folder."""
    docs = ROOT / "docs"
    contents = (docs / "README.md").read_text()
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.name != "README.md"}
    assert {page for page in pages if not page.startswith("benchmarks/") and f"]({page})" not in contents} == set()
