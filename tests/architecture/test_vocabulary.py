"""One word for one thing: retired words are in no name and on no page. `docs/concepts/glossary.md` lists them."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import ROOT, documents, names, source_files, words

GLOSSARY: Final = ROOT / "docs/concepts/glossary.md"
SERVING: Final = ROOT / "runtime/partita_runtime/serving"
FIGURES: Final = ROOT / "docs/benchmarks"
"""Pages that quote papers and systems with their own words."""
ROW: Final = re.compile(
    r"^\| (?P<words>[\w ,]+) \| [^|]+ \| (?P<where>names|prose|names, prose|names in serving) \|$", re.M
)
CODE: Final = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)


@cache
def retired(where: str) -> frozenset[str]:
    """The words that the glossary bans there."""
    rows = ROW.finditer(GLOSSARY.read_text())
    return frozenset(
        word.strip() for row in rows if where in row["where"].split(", ") for word in row["words"].split(",")
    )


def test_every_row_of_the_glossary_is_read() -> None:
    section = GLOSSARY.read_text().partition("## Retired words")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| retired")]

    assert len(rows) == len(ROW.findall(section)) > 0
    assert all(retired(where) for where in ("names", "prose", "names in serving"))


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_names_have_no_retired_words(file: Path) -> None:
    banned = retired("names") | (retired("names in serving") if file.is_relative_to(SERVING) else frozenset())

    assert not {name for name in names(file) if banned & set(words(name))}


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_retired_words(page: Path) -> None:
    text = GLOSSARY.read_text().partition("## Retired words")[0] if page == GLOSSARY else page.read_text()
    quotes = page.is_relative_to(FIGURES)
    prose = " ".join(CODE.sub("", text).lower().split())

    assert not {word for word in retired("prose") if not quotes and re.search(rf"\b{re.escape(word)}\b", prose)}
