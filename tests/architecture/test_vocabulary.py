"""One word for one thing: no name, message or page has a retired word. `docs/concepts/glossary.md` lists them."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.sources import (
    ROOT,
    comments,
    docstrings,
    documents,
    files_of_tests,
    names,
    source_files,
    texts,
    words,
)

GLOSSARY: Final = ROOT / "docs/concepts/glossary.md"
SERVING: Final = ROOT / "runtime/partita_runtime/serving"
CHART: Final = ROOT / "charts/partita"
FIGURES: Final = ROOT / "docs/benchmarks"
"""Pages that quote papers and systems with their own words."""
ROW: Final = re.compile(
    r"^\| (?P<words>[\w ,]+) \| [^|]+ \| (?P<where>names|prose|names, prose|names in serving) \|$", re.M
)
CODE: Final = re.compile(r"```.*?```|`([^`]*)`", re.DOTALL)
"""A block of code, or code in a line."""


@cache
def retired(where: str) -> frozenset[str]:
    """The words that the glossary bans there."""
    rows = ROW.finditer(GLOSSARY.read_text())
    return frozenset(
        word.strip() for row in rows if where in row["where"].split(", ") for word in row["words"].split(",")
    )


def retired_in(text: str) -> set[str]:
    """The retired words in a text, outside its code."""
    prose = " ".join(CODE.sub("", text).lower().split())
    return {word for word in retired("prose") if re.search(rf"\b{re.escape(word)}\b", prose)}


def retired_names_in(text: str) -> set[str]:
    """The names in the code of a text's lines that have a retired word."""
    mentioned = {name for code in CODE.findall(text) for name in re.findall(r"\w+", code)}
    return {name for name in mentioned if retired("names") & set(words(name))}


def test_every_row_of_the_glossary_is_read() -> None:
    section = GLOSSARY.read_text().partition("## Retired words")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| retired")]

    assert len(rows) == len(ROW.findall(section)) > 0
    assert all(retired(where) for where in ("names", "prose", "names in serving"))


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_names_have_no_retired_words(file: Path) -> None:
    banned = retired("names") | (retired("names in serving") if file.is_relative_to(SERVING) else frozenset())

    assert not {name for name in names(file) if banned & set(words(name))}


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_messages_docstrings_and_comments_have_no_retired_words(file: Path) -> None:
    assert not [(text, found) for text in (*texts(file), *comments(file)) if (found := retired_in(text))]


@pytest.mark.parametrize("file", source_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_docstrings_and_comments_mention_no_retired_names(file: Path) -> None:
    written = (*docstrings(file), *comments(file))

    assert not [(text, found) for text in written if (found := retired_names_in(text))]


@pytest.mark.parametrize("file", files_of_tests(), ids=lambda file: str(file.relative_to(ROOT)))
def test_tests_have_no_retired_words(file: Path) -> None:
    written = (*docstrings(file), *comments(file))

    assert not {name for name in names(file) if retired("names") & set(words(name))}
    assert not [(text, found) for text in written if (found := retired_in(text) | retired_names_in(text))]


@pytest.mark.parametrize(
    "file", [f for f in sorted(CHART.rglob("*")) if f.is_file()], ids=lambda file: str(file.relative_to(ROOT))
)
def test_the_chart_has_no_retired_words(file: Path) -> None:
    assert not retired_in(file.read_text())


@pytest.mark.parametrize("page", documents(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_retired_words(page: Path) -> None:
    text = GLOSSARY.read_text().partition("## Retired words")[0] if page == GLOSSARY else page.read_text()

    assert page.is_relative_to(FIGURES) or not retired_in(text) | retired_names_in(text)
